"""Replicas that are late on the way: their server is in time, and its answers come too late all the same.

No metric of a server shows it and the gateway's times are of whole kernels, so the kernel would be condemned
for a replica behind a slow network. The time between gateway and server (``perceive.on_the_way``) depends on
no queue and no peer: where it is all of an objective, or a good part of it and what the replica shows with it
lies beyond the clause's limit, the replica is at fault. Where most of a kernel's replicas are, it is the
kernel (``judge.capped``), unless their zone is late: replicas of two kernels in it, and of no other zone any.
Then whoever is in it and served nobody, so that nothing is known of it, is taken to be late as well, where
its kernel has weight now: what leaves the others is moved there.

The way is an estimate, and the gateway counts late answers of kernels for certain: no replica has more than
its kernel, so one whose kernel has too few breaks nothing, however long its way looks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from contracts.telemetry import Source
from contracts.units import MS_PER_S
from controller.cells import kernel_count, some_within
from controller.detect.clauses import moves_traffic, replica_places
from controller.detect.detector import floats
from controller.detect.sums import COUNT, OVER, Sums, excess_of_sums
from controller.judge.replicas.departures import Case, Flags
from controller.judge.replicas.own_clock import of_weighted
from controller.judge.replicas.whose_failures import struck_zones
from controller.perceive.on_the_way import FROM_REQUEST

#: Share of the objective that the way alone has to take.
LEAST_RATIO = 0.25


class Late(NamedTuple):
    """Who is late on the way."""

    clauses: Flags  # [B, R, S, C], that it breaks so, booked in ``replica_places``
    zone: Flags  # [B, R], its zone is late
    overloaded: Flags  # [B, K], whose lateness may be its load's


def culprits_on_the_way(late: Late | None, case: Case) -> Flags | None:
    """bool [B, R, S, C]: the late, where their zone is or most of their kernel are not; None: nobody."""
    if late is None:
        return None
    mine = some_within(late.clauses, 2)
    count = kernel_count(mine, case.owner, case.kernels)
    most = 2 * (count - 1) >= kernel_count(case.ready, case.owner, case.kernels) - 1
    found = late.clauses & (late.zone | ~most[:, case.owner])[:, :, None, None]
    return found if bool(found.any()) else None


def late_on_the_way(case: Case) -> Late | None:
    """Who is, and on which clauses; None: nobody. A way as long as the objective leaves no answer in time."""
    contract, state = case.setup.contract, case.estimate.state
    late_s = case.estimate.late_s * case.ready
    if not bool(late_s.any()):
        return None
    judged = (contract.source == Source.LATENCY) & contract.is_rate & moves_traffic(contract)
    judged &= np.isin(contract.column, FROM_REQUEST)
    objective_s = np.where(judged, contract.threshold / MS_PER_S, np.inf)
    way_s = late_s[:, :, None, None]
    beyond = excess_of_sums(case.verdicts.replicas.judged, contract) > 0.0
    found = beyond & (way_s >= LEAST_RATIO * objective_s)
    found |= (way_s >= objective_s) & replica_places(contract)
    found &= _counted(case)[:, :, None]
    if not bool(found.any()):
        return None
    zone = struck_zones(some_within(found, 2), case)
    unknown = np.isnan(state.way_s).any(axis=2) & zone & case.ready & ~state.quarantined
    unknown &= of_weighted(case)
    if bool(unknown.any()):
        found |= unknown[:, :, None, None] & found.any(axis=1, keepdims=True)
    passed_s = state.now_s[:, None] - state.overloaded_at_s
    return Late(clauses=found, zone=zone, overloaded=passed_s < contract.window_s)


def _counted(case: Case) -> Flags:
    """bool [B, R, C]: a replica would break the clause if all late answers of its kernel were its own, by
    what the gateway counted of late; True where nobody counted, or what is late there is excused.
    """
    contract, known = case.setup.contract, late_of_kernels(case)
    if known is None:
        return np.ones((*case.ready.shape, len(contract.clause_ids)), dtype=np.bool_)
    overload, counted = case.estimate.overload, known.sum(axis=2)  # [B, K, C, 4]
    count, latency = counted[..., COUNT], contract.source == Source.LATENCY
    alike = latency & latency[:, None] & (contract.column == contract.column[:, None])
    late_ratio = counted[..., OVER] / np.maximum(count, 1.0)
    excused = (overload.now_s[:, None] - overload.overloaded_at_s < overload.window_s)[:, :, None]
    most = np.where((count > 0.0) & ~excused, late_ratio * (count @ alike), np.inf)[:, case.owner]
    own = case.verdicts.replicas.judged[..., COUNT].max(axis=2)
    return np.asarray(most > contract.rate_limit * own)


def late_of_kernels(case: Case) -> Sums | None:
    """What the gateway counted lately of each kernel, [B, K, S, C, 4]; None: the detector keeps no sums.

    Detectors that judge windows alone: of the one before and the running one.
    """
    if case.verdicts.kernels is not None:
        return case.verdicts.kernels.alarms.judged
    state = case.estimate.state
    if "judged" not in state.kernel_detector:
        return None
    return floats(state.kernel_detector, "judged") + state.kernel_window
