"""Replicas that are late on the way: the server answers in time, but the network path makes answers late.

No server metric shows this, and the gateway's latencies are per kernel. Without this rule a kernel would be
condemned for one replica behind a slow network. The time between gateway and server (``perceive.on_the_way``)
depends on neither queue nor peers. The replica is at fault if that time takes the whole latency objective, or
if it takes a good part of it and the replica's own latencies lie beyond the clause's limit. If most replicas
of a kernel are late, the fault is the kernel's (``judge.capped``), unless a zone is late: late replicas of
two kernels in one zone, and none in any other zone. Then replicas of that zone without traffic, of which
nothing is known, are presumed late too if their kernel has weight now, because the traffic of the ejected
ones would move to them.

The time on the way is an estimate, while the gateway's counts of late answers of a kernel are exact. A
replica cannot have more late answers than its kernel. So if the kernel has too few, the replica breaks no
clause, however long its way seems to be.
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
from controller.judge.replicas.own_clock import of_serving_kernels
from controller.judge.replicas.whose_failures import struck_zones
from controller.perceive.on_the_way import FROM_REQUEST

#: Least share of the latency objective that the time on the way must take.
LEAST_RATIO = 0.25


class Late(NamedTuple):
    """Replicas that are late on the way."""

    clauses: Flags  # [B, R, S, C], clauses that the replica breaks by it, in ``replica_places``
    zone: Flags  # [B, R], its zone is late
    overloaded: Flags  # [B, K], load may be what makes the kernel late


def culprits_on_the_way(late: Late | None, case: Case) -> Flags | None:
    """bool [B, R, S, C]: clauses that replicas at fault break; None: no replica.

    A late replica is at fault if its zone is late, or if fewer than half of its peers are late.
    """
    if late is None:
        return None
    mine = some_within(late.clauses, 2)
    count = kernel_count(mine, case.owner, case.kernels)
    most = 2 * (count - 1) >= kernel_count(case.ready, case.owner, case.kernels) - 1
    culprits = late.clauses & (late.zone | ~most[:, case.owner])[:, :, None, None]
    return culprits if bool(culprits.any()) else None


def late_on_the_way(case: Case) -> Late | None:
    """Late replicas, and the clauses that they break; None: no replica."""
    contract, state = case.setup.contract, case.estimate.state
    late_s = case.estimate.late_s * case.ready
    if not some_in(late_s):
        return None
    clauses = _breaking(late_s, case)
    if not bool(clauses.any()):
        return None
    zone = struck_zones(some_within(clauses, 2), case)
    unknown = np.isnan(state.way_s).any(axis=2) & zone & case.ready & ~state.quarantined
    unknown &= of_serving_kernels(case)
    if some_in(unknown):
        clauses |= unknown[:, :, None, None] & clauses.any(axis=1, keepdims=True)
    passed_s = state.now_s[:, None] - state.overloaded_at_s
    return Late(clauses=clauses, zone=zone, overloaded=passed_s < contract.window_s)


def _breaking(late_s: NDArray[np.float64], case: Case) -> Flags:
    """bool [B, R, S, C]: the time on the way, ``late_s`` [B, R], makes the replica break the clause.

    A way as long as the objective leaves no answer in time.
    """
    contract, judged = case.setup.contract, case.verdicts.replicas.judged
    breaking = np.zeros(judged.shape[:-1], dtype=np.bool_)
    fleet, replica = at = np.nonzero(late_s > 0.0)  # few: the other replicas are not read
    mine, way_s, objective_s = judged[at], late_s[at][:, None, None], _objective_s(contract)
    broken = (excess_of_sums(mine, contract) > 0.0) & (way_s >= LEAST_RATIO * objective_s)
    broken |= (way_s >= objective_s) & replica_places(contract)
    possible = _possible_by_counts(mine[..., COUNT].max(axis=1), fleet, replica, case)
    breaking[at] = broken & possible[:, None]
    return breaking


@lru_cache(maxsize=64)
def _objective_s(contract: CompiledContract) -> NDArray[np.float64]:
    """float64 [C], s: objective of latency clauses that move traffic; inf for all other clauses."""
    judged = (contract.source == Source.LATENCY) & contract.is_rate & moves_traffic(contract)
    judged &= np.isin(contract.column, FROM_REQUEST)
    return np.where(judged, contract.threshold / MS_PER_S, np.inf)


@lru_cache(maxsize=64)
def _on_same_latency(contract: CompiledContract) -> Flags:
    """bool [C, C]: both clauses limit the same latency."""
    latency = contract.source == Source.LATENCY
    return np.asarray(latency & latency[:, None] & (contract.column == contract.column[:, None]))


def _possible_by_counts(
    own: NDArray[np.float64], fleet: NDArray[np.int64], replica: NDArray[np.int64], case: Case
) -> Flags:
    """bool [N, C]: the gateway's recent counts of late answers allow that the replica breaks the clause.

    They do if the ``replica`` [N] of the ``fleet`` [N], judged by ``own`` [N, C] observations, would break it
    with all late answers of its kernel. True also where there are no counts, or lateness is excused by
    overload.
    """
    contract, known = case.setup.contract, late_of_kernels(case)
    if known is None:
        return np.ones(own.shape, dtype=np.bool_)
    overload, counted = case.estimate.overload, known.sum(axis=2)  # [B, K, C, 4]
    count = counted[..., COUNT]
    late_ratio = counted[..., OVER] / np.maximum(count, 1.0)
    excused = (overload.now_s[:, None] - overload.overloaded_at_s < overload.window_s)[:, :, None]
    most = np.where((count > 0.0) & ~excused, late_ratio * (count @ _on_same_latency(contract)), np.inf)
    return np.asarray(most[fleet, case.owner[replica]] > contract.rate_limit * own)


def late_of_kernels(case: Case) -> Sums | None:
    """Recent gateway counts of each kernel, [B, K, S, C, 4]; None: the detector keeps no sums.

    Detectors that judge whole windows have no verdict on kernels yet at this point: the counts are those of
    the last closed window plus the running one. Such a detector adds the running window to its memory when
    the window closes, in place where it may consume that memory.
    """
    if case.verdicts.kernels is not None:
        return case.verdicts.kernels.alarms.judged
    state = case.estimate.state
    if "judged" not in state.kernel_detector:
        return None
    return floats(state.kernel_detector, "judged") + state.kernel_window
