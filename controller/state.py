"""The controller's state: everything that it remembers between two ticks, as named arrays.

``controller.state_json`` serialises it; a controller restored at any tick takes the same later decisions.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from controller.detect.detector import DetectorState
from controller.detect.sums import Sums
from controller.ports import PolicyState


class QuarantineReason(IntEnum):
    """Why a replica is in quarantine; "nothing else" means that it shows no other symptom."""

    NONE = 0
    DEPARTS = 1  # from its peers, on a clause
    FAILING = 2  # failed answers in a row
    HUNG = 3  # running, never answering
    ZONE = 4  # of a zone that is slow, without proof of its own
    SLOW = 5  # by its own clock or its answers' times, and nothing else
    ERRORS = 6  # fails a share of its requests, and nothing else
    RELAPSED = 7  # well again, but not for long enough yet
    LATE = 8  # on the way between gateway and server, and nothing else
    PRESUMED = 9  # idle in a zone that fails


@dataclass(frozen=True, kw_only=True)
class ControllerState:
    """State of B fleets. Never changed in place: ``tick`` returns a new one.

    Instants are in seconds of the world's clock; NaN or -inf: never yet. A class without slots, so that
    ``altered`` copies one dictionary.
    """

    ticks: NDArray[np.int64]  # [B], ticks so far
    now_s: NDArray[np.float64]  # [B], instant of the last tick

    window_began_at_s: NDArray[np.float64]  # [B], begin of the running window
    window: Sums  # [B, R, S, C, 4], sums of the running window; traffic in ``clauses.replica_places`` alone
    kernel_window: Sums  # [B, K, S, C, 4], the same of traffic alone, as the gateway counts it
    received_at_s: NDArray[np.float64]  # [B], when anything (scrape or probe) last arrived
    scraped_at_s: NDArray[np.float64]  # [B, R], newest scrape
    progressed_at_s: NDArray[np.float64]  # [B, R], last answer, or instant without anything to answer
    counted_at_s: NDArray[np.float64]  # [B, R], the engine's counters were last read
    stepped_at_s: NDArray[np.float64]  # [B, R], it last stepped
    probed_at_s: NDArray[np.float64]  # [B, R, S], newest probe
    offered_rps: NDArray[np.float64]  # [B, S], requests per second, smoothed
    answered_rps: NDArray[np.float64]  # [B, R], smoothed
    failed_rps: NDArray[np.float64]  # [B, R], smoothed
    request_tokens: NDArray[np.float64]  # [B, 4], sums over the newest requests: ``perceive.capacity_pass``
    way_s: NDArray[np.float64]  # [B, R, 3], time between gateway and server: ``perceive.on_the_way``
    way_block: NDArray[np.float64]  # [B, R, 3], the running block of ``way_s``: least outside, ended, seconds
    engine_speed: NDArray[np.float64]  # [B, R, 3], sums over the newest scrapes: ``perceive.capacity_pass``
    usual: PolicyState  # usual step times of each replica, ``perceive.usual_speed``; empty: not kept
    replica_rps: NDArray[np.float64]  # [B, K], requests per second that one replica carries of this traffic
    least_rps: NDArray[np.float64]  # [B, K], lower limit of the same
    healthy_rps: NDArray[np.float64]  # [B, K], the same at certified or usual speed
    too_many: NDArray[np.float64]  # [B, K], requests in one replica beyond those that it answers in time
    surely_too_many: NDArray[np.float64]  # [B, K], the same if no answer were longer than their mean
    filled_ratio: NDArray[
        np.float64
    ]  # [B, K], requests in the fullest replica over the largest batch in time
    planning: PolicyState  # load and capacity that moves are planned against, ``perceive.planning``
    overloaded_at_s: NDArray[np.float64]  # [B, K], last offered more than the kernel carries
    behind: NDArray[np.float64]  # [B, K], requests offered that it has not had the time to carry

    right_in_a_row: NDArray[np.int64]  # [B, R], scrapes that state the right build: ``perceive.identity``
    quarantined: NDArray[np.bool_]  # [B, R]
    quarantine_reason: NDArray[np.int64]  # [B, R], a ``judge.replicas.quarantine.QuarantineReason``
    quarantined_at_s: NDArray[np.float64]  # [B, R]
    quarantines: NDArray[np.int64]  # [B, R], times so far
    readmitted_at_s: NDArray[np.float64]  # [B, K], last time that a replica of the kernel came back
    fails_more: NDArray[np.float64]  # [B, R, 3], evidence to fail more than its kernel: ``whose_failures``
    needed: NDArray[np.bool_]  # [B, R], fails requests or is late, but cannot be spared: ``judge.sparing``
    well_since_at_s: NDArray[np.float64]  # [B, R], up and healthy since; inf: it is not (``judge.returns``)
    was_well_s: NDArray[np.float64]  # [B, R], duration of its last healthy time if that was short, else 0
    most_offered_rps: NDArray[np.float64]  # [B], recent peak load, against which replicas are spared
    down_until_at_s: NDArray[np.float64]  # [B, K], a kernel that failed as a whole counts as down until then
    answers_in_a_row: NDArray[np.int64]  # [B, K], of attempts, while it is down: ``judge.outage``
    early_returns: NDArray[np.int64]  # [B, K], for such answers, each soon followed by the next outage
    condemned: NDArray[np.bool_]  # [B, K, S, C], alarm seen and not re-certified since
    answer_loss: NDArray[np.float64]  # [B, K, S], what an answer loses there, in answers: ``judge.loss``
    replica_condemned: NDArray[np.bool_]  # [B, R, S, C], the same of a replica
    attempts: NDArray[np.float64]  # [B, K, 2], ended and failed ones of about a window, probes among them
    more_failures: NDArray[np.float64]  # [B, K, K + 1], evidence to fail more than others: ``more_failures``
    at_fault: NDArray[np.bool_]  # [B, K], fails more than others by that evidence

    load: PolicyState  # memory of the load limits, ``shield.load``
    ejected: NDArray[np.bool_]  # [B, R], by the policy
    table: NDArray[np.float64]  # [B, S, K + 1], in force, last column shed
    row_moved_at_s: NDArray[np.float64]  # [B, S], when the row last changed
    row_move_began_at_s: NDArray[np.float64]  # [B, S], when the policy last began to move it
    pending: NDArray[np.bool_]  # [B, S], a move that was not for capacity alone is not done yet
    version: NDArray[np.int64]  # [B], plans so far that differ from the one before

    replica_detector: DetectorState  # memory of the detector over replicas
    kernel_detector: DetectorState  # memory of the detector over kernels
    drift: DetectorState  # memory of the comparison with certified values; empty: probes are not compared
    bounds: DetectorState  # bounds of probe values learned in health; empty where certified values serve
    hang: DetectorState  # probes without an answer in time, ``judge.hang``; empty: not considered
    policy: PolicyState  # memory of the policy
    own_moves: PolicyState  # memory of the watch over the controller's own moves
    supervisor: PolicyState  # memory of the supervisor; empty without a meta-contract
    baseline: PolicyState  # memory of the policy that runs beside ours; empty without a meta-contract


_FIELDS = len(fields(ControllerState))


def altered(state: ControllerState, **changes: Any) -> ControllerState:
    """``state`` with the fields ``changes`` replaced: ``dataclasses.replace`` in a fifteenth of its time.

    The constructor of a frozen record sets each field by name; this copies all of them at once. TypeError for
    a name that is no field.
    """
    new = object.__new__(ControllerState)
    known = vars(new)
    known |= vars(state)
    known |= changes
    if len(known) != _FIELDS:
        raise TypeError(f"altered: expected fields of ControllerState, got {sorted(changes)}")
    return new


def next_window(state: ControllerState, closed: NDArray[np.bool_]) -> ControllerState:
    """Begin a new window where the old one is ``closed`` bool [B]."""
    if not bool(closed.any()):
        return state
    ends = closed[:, None, None, None, None]
    return altered(
        state,
        window=np.where(ends, 0.0, state.window),
        kernel_window=np.where(ends, 0.0, state.kernel_window),
        window_began_at_s=np.where(closed, state.now_s, state.window_began_at_s),
    )


def not_evidence_for_kernel(state: ControllerState) -> NDArray[np.bool_]:
    """bool [B, R]: replicas that are no evidence for their kernel: quarantined, or at fault but needed."""
    return state.quarantined | state.needed


def out_as_hung(quarantined: NDArray[np.bool_], reason: NDArray[np.int64]) -> NDArray[np.bool_]:
    """bool [B, R]: in quarantine as hung. A reset ended what it held, which says nothing of it."""
    return np.asarray(quarantined & (reason == int(QuarantineReason.HUNG)))


def planned(state: ControllerState, name: str) -> NDArray[np.float64]:
    """The array ``name`` of the load and capacity that moves are planned against (``perceive.planning``).

    Float64, requests per second: ``offered_rps`` [B, S], or the capacity of one replica, ``replica_rps`` [B,
    K], and its lower limit ``least_rps`` [B, K].
    """
    return np.asarray(state.planning[name], dtype=np.float64)
