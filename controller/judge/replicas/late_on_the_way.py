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

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import CompiledContract
from contracts.telemetry import Source
from contracts.units import MS_PER_S
from controller.cells import kernel_count, some_in, some_within
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
    if not some_in(late_s):
        return None
    found = _breaking(late_s, case)
    if not bool(found.any()):
        return None
    zone = struck_zones(some_within(found, 2), case)
    unknown = np.isnan(state.way_s).any(axis=2) & zone & case.ready & ~state.quarantined
    unknown &= of_weighted(case)
    if some_in(unknown):
        found |= unknown[:, :, None, None] & found.any(axis=1, keepdims=True)
    passed_s = state.now_s[:, None] - state.overloaded_at_s
    return Late(clauses=found, zone=zone, overloaded=passed_s < contract.window_s)


def _breaking(late_s: NDArray[np.float64], case: Case) -> Flags:
    """bool [B, R, S, C]: the way of ``late_s`` [B, R], with what the replica shows, breaks the clause."""
    contract, judged = case.setup.contract, case.verdicts.replicas.judged
    found = np.zeros(judged.shape[:-1], dtype=np.bool_)
    fleet, replica = at = np.nonzero(late_s > 0.0)  # few: of the others nothing is looked at
    mine, way_s, objective_s = judged[at], late_s[at][:, None, None], _objective_s(contract)
    broken = (excess_of_sums(mine, contract) > 0.0) & (way_s >= LEAST_RATIO * objective_s)
    broken |= (way_s >= objective_s) & replica_places(contract)
    counted = _counted(mine[..., COUNT].max(axis=1), fleet, replica, case)
    found[at] = broken & counted[:, None]
    return found


@lru_cache(maxsize=64)
def _objective_s(contract: CompiledContract) -> NDArray[np.float64]:
    """float64 [C]: of clauses on answers' times that move traffic; inf of all others."""
    judged = (contract.source == Source.LATENCY) & contract.is_rate & moves_traffic(contract)
    judged &= np.isin(contract.column, FROM_REQUEST)
    return np.where(judged, contract.threshold / MS_PER_S, np.inf)


@lru_cache(maxsize=64)
def _alike(contract: CompiledContract) -> Flags:
    """bool [C, C]: both on the same time of answers."""
    latency = contract.source == Source.LATENCY
    return np.asarray(latency & latency[:, None] & (contract.column == contract.column[:, None]))


def _counted(
    own: NDArray[np.float64], fleet: NDArray[np.int64], replica: NDArray[np.int64], case: Case
) -> Flags:
    """bool [N, C]: the ``replica`` [N] of the ``fleet`` [N], which was judged by ``own`` [N, C] observations,
    would break the clause if all late answers of its kernel were its own, by what the gateway counted of
    late; True where nobody counted, or what is late there is excused.
    """
    contract, known = case.setup.contract, late_of_kernels(case)
    if known is None:
        return np.ones(own.shape, dtype=np.bool_)
    overload, counted = case.estimate.overload, known.sum(axis=2)  # [B, K, C, 4]
    count = counted[..., COUNT]
    late_ratio = counted[..., OVER] / np.maximum(count, 1.0)
    excused = (overload.now_s[:, None] - overload.overloaded_at_s < overload.window_s)[:, :, None]
    most = np.where((count > 0.0) & ~excused, late_ratio * (count @ _alike(contract)), np.inf)
    return np.asarray(most[fleet, case.owner[replica]] > contract.rate_limit * own)


def late_of_kernels(case: Case) -> Sums | None:
    """What the gateway counted lately of each kernel, [B, K, S, C, 4]; None: the detector keeps no sums.

    Detectors that judge windows alone: of the one before and the running one, as long as the kernels are not
    judged. They take the running one into their memory where it closes, in place where it is given away.
    """
    if case.verdicts.kernels is not None:
        return case.verdicts.kernels.alarms.judged
    state = case.estimate.state
    if "judged" not in state.kernel_detector:
        return None
    return floats(state.kernel_detector, "judged") + state.kernel_window
