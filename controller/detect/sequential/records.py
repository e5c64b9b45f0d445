"""Records of the compiled tick of the sequential detector.

Axes: B fleets, U subjects (replicas, or kernels that pool their replicas), S slices, C clauses, P probes, R
replicas, M probe metrics; W, H and G are ``WIDTH``, ``HEALTHS`` and ``BETS``. An axis of length "0 or 1" is
empty where the streams do not exist.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.jit import compiled
from controller.detect.streams.protocol import Flags, Floats


class Streams(NamedTuple):
    """Memory of all streams, changed in place; axis B is absent for one fleet, axis U for one subject."""

    cells: Floats  # [B, U, S, C, W], evidence by slice
    over_slices: Floats  # [B, U, 0 or 1, C, W], evidence over all slices (0: not watched)
    health: Floats  # [B, U, S, C, H], evidence of health; 1 where not ``tested``
    tested: Flags  # [B, U, S, C], recovery is being tested
    silent_s: Floats  # [B, U, S, C], clauses on traffic: time since the last observation
    standing_s: Floats  # [B, U, S, C], time during which every flush was grossly late
    standing_counts: Floats  # [B, U, S, C, 2], requests in that time, and late ones among them
    recent: Floats  # [B, U, S, C, 4], sums with exponential decay
    latest: Floats  # [B, U, S, C, 4], the last sums, with decay, of clauses by which peers are compared
    alarm: Flags  # [B, U, S, C], as last judged
    against: Flags  # [B, U, S, C], the evidence is against the clause, as last judged
    excess: Floats  # [B, U, S, C], as last judged
    prior_evidence: (
        Floats  # [B, U, S, C, G], e-processes of ``prior_active`` (G = 0: not run; value 0: spent)
    )
    prior_evidence_over_slices: Floats  # [B, U, 1, C, G]
    prior_active: Flags  # [B, U, 1, 1], the subject has drifted, and e-processes run


class ArrivedObservations(NamedTuple):
    """One tick's observations (``EvidenceBatch`` as plain arrays)."""

    subject_of: NDArray[np.int64]  # [R], subject of each replica
    received: Flags  # [B, P], probes that count
    replica: NDArray[np.int64]  # [B, P]
    slice: NDArray[np.int64]  # [B, P]
    values: Floats  # [B, P, M]; NaN: not measured
    sums: Floats  # [B, U, S, C, 4]
    news: Flags  # [B, U, S], has observations in this tick
    doubted: Flags  # [B, U, S, C], condemned, so that evidence of health is needed
    since_s: Floats  # [B], time since the last tick
    kept: Floats  # [B], decay factor of the sums over this tick
    drifted: Flags  # [B, U], drifted from the certified baseline
    blurred: Flags  # [B, U], the gateway's counts include replicas out of rotation


class Levels(NamedTuple):
    """Thresholds and times of the detector. Thresholds depend on the number of peers, 1 to N."""

    by_slice: NDArray[Any]  # ``LOG_THRESHOLD`` [N, U, S, C]
    over_slices: NDArray[Any]  # ``LOG_THRESHOLD`` [N, U, C]
    lowered: NDArray[Any]  # ``LOG_THRESHOLD`` [S, C]
    against: NDArray[Any]  # ``LOG_THRESHOLD`` [1]
    least: float  # evidence below which none of these thresholds except ``lowered`` is reached
    at_once: NDArray[
        np.int64
    ]  # [n], places of clauses that alarm at the first observation over the threshold
    standing: NDArray[np.int64]  # [n], places of clauses with a finite ``standing_after_s``
    returns: float  # evidence of health that ends an alarm
    expiry_s: float  # time without observations that ends an alarm on traffic
    scale: Floats  # [C], unit of the excess: the clause's limit
    traffic: Flags  # [C], clauses on served requests
    compared: Flags  # [C], clauses by which peers are compared
    expires: Flags  # [C], clauses that only traffic can judge
    standing_after_s: Floats  # [C], gross lateness that lasts this long is an alarm
    most_gap_s: float  # longest gap between two flushes of persistent lateness
    owner: NDArray[np.int64]  # [U], kernel of each subject; replicas of one kernel are peers ([0]: no peers)


class TickAlarms(NamedTuple):
    """``AlarmState`` of this tick, to be filled in."""

    inside: Flags  # [B, U, S, C], False so far
    fresh: Flags  # [B, U, S, C], False so far
    judged: Floats  # [B, U, S, C, 4]


@compiled(inline="always")
def streams_of(streams, i):
    """Views of fleet ``i``, or of subject ``i`` of one fleet; ``streams`` is borrowed.

    Inlined: passing fifteen arrays costs as much as the work on one subject.
    """
    return Streams(
        streams.cells[i],
        streams.over_slices[i],
        streams.health[i],
        streams.tested[i],
        streams.silent_s[i],
        streams.standing_s[i],
        streams.standing_counts[i],
        streams.recent[i],
        streams.latest[i],
        streams.alarm[i],
        streams.against[i],
        streams.excess[i],
        streams.prior_evidence[i],
        streams.prior_evidence_over_slices[i],
        streams.prior_active[i],
    )
