"""Replicas to which an alarm of their kernel is attributed.

The pool of a kernel has more observations than one replica and raises an alarm earlier. When it is beyond a
limit because of one replica, that replica is removed and not the kernel. With several such replicas, or none,
the alarm stays with the kernel; only failures are divided among several replicas (``failing_members``).
"""

from __future__ import annotations

import numpy as np

from contracts.compiled.contract import CompiledContract
from controller.cells import kernel_count, pool, some_in
from controller.detect.clauses import applies, from_traffic, moves_traffic, replica_places
from controller.detect.detector import AlarmState, PooledAlarms
from controller.detect.sums import COUNT, Sums, beyond_limit, excess_of_sums
from controller.judge.replicas.departures import Case, Flags
from controller.judge.replicas.whose_failures import failing_members
from controller.state import not_evidence_for_kernel


def culprits_of(case: Case) -> Flags | None:
    """Bool [B, R, S, C]: replicas to which an alarm of their kernel is attributed; None: none.

    One replica without which the pool is inside the limit; for failures, the replicas in which they are
    gathered (``failing_members``).
    """
    if case.verdicts.kernels is None:
        return _by_closed_windows(case)
    return _by_recent_sums(case, case.verdicts.kernels)


def _by_closed_windows(case: Case) -> Flags | None:
    """By the windows that close in this tick."""
    state, closed, contract = case.estimate.state, case.estimate.closed, case.setup.contract
    if not some_in(closed):
        return None
    counted = case.ready & ~not_evidence_for_kernel(state)
    pooled = pool(state.window, counted, case.owner, case.kernels)
    enough = (pooled[..., COUNT] >= contract.min_samples) & closed[:, None, None, None]
    beyond, _ = beyond_limit(pooled, enough & applies(contract) & moves_traffic(contract), contract)
    if not bool(beyond.any()):
        return None
    alone = _sole_culprit(state.window, counted, beyond, case)
    return alone | failing_members(state.window, counted, beyond, case)


def of_kernels(found: Flags, contract: CompiledContract) -> Flags:
    """``found`` bool [B, K, S, C] of pooled replica evidence, on the slices for which it holds.

    Evidence from a replica's traffic covers all its requests, so it holds on every slice.
    """
    return np.where(from_traffic(contract), _pooled_over_slices(found, contract), found)


def _of_replicas(found: Flags, contract: CompiledContract) -> Flags:
    """``found`` bool [B, K, S, C] of kernels, moved to where the evidence of their replicas is stored."""
    somewhere = found.any(axis=2, keepdims=True) & replica_places(contract)
    return np.where(from_traffic(contract), somewhere, found)


def _pooled_over_slices(found: Flags, contract: CompiledContract) -> Flags:
    """bool [B, K, 1, C]: found on any slice where evidence of replicas is stored."""
    return np.asarray((found & replica_places(contract)).any(axis=2, keepdims=True))


def _by_recent_sums(case: Case, pooled: PooledAlarms) -> Flags | None:
    """By recent sums, in the tick in which a kernel's alarm is raised."""
    raised, verdicts = pooled.alarms.alarm & ~pooled.was_alarm, case.verdicts.replicas
    moves = moves_traffic(case.setup.contract)
    if not bool(raised.any()) or not bool((raised & moves).any()):
        return None
    counted = case.ready & ~not_evidence_for_kernel(case.estimate.state)
    beyond = _of_replicas(raised & moves, case.setup.contract)
    alone = _sole_culprit(verdicts.judged, counted, beyond, case)
    gathered = failing_members(verdicts.judged, counted, beyond, case)
    against = _speaks_against(verdicts, case.setup.contract) & counted[:, :, None, None]
    others = kernel_count(against, case.owner, case.kernels)[:, case.owner] - against
    return np.asarray((alone & (others == 0)) | gathered)


def _speaks_against(verdicts: AlarmState, contract: CompiledContract) -> Flags:
    """Bool [B, R, S, C]: the estimate lies beyond the limit."""
    if verdicts.against is not None:
        return verdicts.against
    return np.asarray(excess_of_sums(verdicts.judged, contract) > 0.0)


def _sole_culprit(sums: Sums, counted: Flags, beyond: Flags, case: Case) -> Flags:
    """Bool [B, R, S, C]: the one ``counted`` replica without which its pool is not ``beyond`` the limit."""
    owner, contract = case.owner, case.setup.contract
    some = np.flatnonzero(beyond.any(axis=(1, 2, 3)))
    own = np.where(counted[some][:, :, None, None, None], sums[some], 0.0)
    rest = pool(own, counted[some], owner, case.kernels)[:, owner] - own
    received = 2.0 * rest[..., COUNT] >= contract.min_samples
    cleared = received & (excess_of_sums(rest, contract) <= 0.0)
    culprit = np.zeros(sums.shape[:-1], dtype=np.bool_)
    alone = beyond[some][:, owner] & cleared & (excess_of_sums(own, contract) > 0.0)
    alone &= own[..., COUNT] > 0.0
    culprit[some] = alone & (kernel_count(alone, owner, case.kernels)[:, owner] == 1)
    return culprit
