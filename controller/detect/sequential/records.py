"""Records that the compiled tick of the sequential detector works on.

Axes: B fleets, U subjects (replicas, or kernels that pool theirs), S slices, C clauses, P probes, R
replicas, M probe metrics; W, H and G are ``WIDTH``, ``HEALTHS`` and ``BETS``. Axes of length "0 or 1" hold
what is there or not.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.jit import compiled
from controller.detect.streams.protocol import Flags, Floats


class Streams(NamedTuple):
    """Memory of all streams, changed in place; of one fleet without the axis B, of one subject without U."""

    cells: Floats  # [B, U, S, C, W], evidence by slice
    over_slices: Floats  # [B, U, 0 or 1, C, W], evidence over all slices (0: not watched)
    health: Floats  # [B, U, S, C, H], evidence of health; 1 where not ``tested``
    tested: Flags  # [B, U, S, C], evidence of health is wanted
    silent_s: Floats  # [B, U, S, C], of clauses on traffic, since the last observation
    standing_s: Floats  # [B, U, S, C], for how long every flush was grossly late
    standing_counts: Floats  # [B, U, S, C, 2], requests of that time, and late ones
    recent: Floats  # [B, U, S, C, 4], sums that fade
    latest: Floats  # [B, U, S, C, 4], the last sums, fading, of clauses that peers are compared by
    alarm: Flags  # [B, U, S, C], as last judged
    against: Flags  # [B, U, S, C], evidence speaks against the clause, as last judged
    excess: Floats  # [B, U, S, C], as last judged
    prior_evidence: Floats  # [B, U, S, C, G], e-processes of ``prior_active`` (G = 0: none are run; 0: spent)
    prior_evidence_over_slices: Floats  # [B, U, 1, C, G]
    prior_active: Flags  # [B, U, 1, 1], the subject has drifted, and e-processes run


class ArrivedObservations(NamedTuple):
    """One tick's observations (``EvidenceBatch`` as plain arrays)."""

    subject_of: NDArray[np.int64]  # [R], replica to subject
    received: Flags  # [B, P], probes that count
    replica: NDArray[np.int64]  # [B, P]
    slice: NDArray[np.int64]  # [B, P]
    values: Floats  # [B, P, M]; NaN: not measured
    sums: Floats  # [B, U, S, C, 4]
    news: Flags  # [B, U, S], where anything came
    doubted: Flags  # [B, U, S, C], evidence of health is wanted
    since_s: Floats  # [B], time since the last tick
    kept: Floats  # [B], what a sum that fades keeps over this tick
    drifted: Flags  # [B, U], not what was certified
    blurred: Flags  # [B, U], what the gateway counts is not of those in rotation alone


class Levels(NamedTuple):
    """When what happens. Thresholds of subjects are of such as have 1 to N peers."""

    by_slice: NDArray[Any]  # ``LOG_THRESHOLD`` [N, U, S, C]
    over_slices: NDArray[Any]  # ``LOG_THRESHOLD`` [N, U, C]
    lowered: NDArray[Any]  # ``LOG_THRESHOLD`` [S, C]
    against: NDArray[Any]  # ``LOG_THRESHOLD`` [1]
    least: float  # evidence below which none of these but ``lowered`` is reached
    at_once: NDArray[np.int64]  # [n], places of clauses of which the first observation over raises an alarm
    standing: NDArray[np.int64]  # [n], of those with a finite ``standing_after_s``
    returns: float  # evidence of health that ends an alarm
    expiry_s: float  # silence that ends an alarm on traffic
    scale: Floats  # [C], of an excess: the clause's limit
    traffic: Flags  # [C], clauses on served requests
    compared: Flags  # [C], clauses that peers are compared by
    expires: Flags  # [C], clauses that only traffic can judge
    standing_after_s: Floats  # [C], gross lateness that stands for so long is an alarm
    most_gap_s: float  # between two flushes of what stands
    owner: NDArray[np.int64]  # [U], whose replicas are peers ([0]: subjects have none)


class TickAlarms(NamedTuple):
    """``AlarmState`` of this tick alone, to fill in."""

    inside: Flags  # [B, U, S, C], False so far
    fresh: Flags  # [B, U, S, C], False so far
    judged: Floats  # [B, U, S, C, 4]


@compiled(inline="always")
def streams_of(streams, i):
    """Views of fleet ``i``, or of subject ``i`` of one fleet; ``streams`` is borrowed.

    Inlined: to hand over fifteen arrays costs as much as the work on one subject.
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
