"""What unhealthy replicas that stay in rotation say about their kernel.

The ejection cap keeps some unhealthy replicas in rotation, and they serve every slice that their kernel
serves.

*Failures.* The gateway counts failures by slice. Of a slice that a kernel does not serve it counts none, so a
policy that looks for a target finds the kernel clean. So where a condemned replica stays in rotation and the
replicas in rotation together break a clause on failures, the kernel breaks it on every slice of which the
gateway has counted too little to know better, and on those of which its own estimate is beyond the limit.

*Lateness on the way* (``judge.late_on_the_way``) likewise: two independent sources of evidence.

*A zone that fails.* Where replicas of two kernels in one zone were seen to fail, and none of another zone
(``whose_failures.struck_zones``), idle kernels look clean because they serve no traffic. Idle replicas of
that zone leave the rotation (``whose_failures.presumed_with_zone``); where the cap keeps them, the kernel is
presumed to fail by their share of its replicas, if that breaks a clause and the gateway has counted too
little to know better. This lasts while the others fail; observations of its own replicas take precedence.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.cells import kernel_count, pool, some_in
from controller.detect.clauses import applies, failing_clauses
from controller.detect.sums import COUNT, OVER, Sums, excess_of_sums
from controller.judge.replicas.departures import Case, Flags
from controller.judge.replicas.late_on_the_way import Late
from controller.judge.replicas.whose_failures import seen_to_fail, struck_zones
from controller.state import ControllerState, not_evidence_for_kernel


class Capped(NamedTuple):
    """Alarms of kernels that follow from their replicas in rotation, and how far each clause is broken."""

    alarm: Flags  # [B, K, S, C]
    excess: NDArray[np.float64]  # [B, K, S, C]


def broken_in_rotation(state: ControllerState, counted: Sums, late: Late | None, case: Case) -> Capped | None:
    """Alarms by failures and by lateness of replicas in rotation; None: no alarm.

    Needed replicas are ignored: to leave their kernel would lose the same capacity. state: after quarantine;
    counted: [B, K, S, C, 4], gateway counts; late: as quarantine computed it, because it uses the memory of
    the kernels' detector from before this tick, which may be overwritten by now.
    """
    if late is None and not bool(state.replica_condemned.any()):
        return None
    serving = case.ready & ~not_evidence_for_kernel(state)
    excess = np.maximum(_by_failures(state, serving, case), _by_lateness(serving, late, case))[:, :, None]
    if not bool((excess > 0.0).any()):
        return None
    contract, broken = case.setup.contract, np.zeros(counted.shape[:-1], dtype=np.bool_)
    some = np.flatnonzero((excess > 0.0).any(axis=(1, 2, 3)))
    own = excess_of_sums(counted[some], contract) > 0.0
    told = (counted[some][..., COUNT] < contract.min_samples) | own
    broken[some] = (excess[some] > 0.0) & told & applies(contract)
    return Capped(alarm=broken, excess=np.broadcast_to(excess, broken.shape))


def _by_failures(state: ControllerState, serving: Flags, case: Case) -> NDArray[np.float64]:
    """float64 [B, K, C], how far the replicas in rotation together are beyond a limit; 0 where none of them
    is condemned.
    """
    contract = case.setup.contract
    found = np.zeros((len(serving), case.kernels, len(contract.clause_ids)))
    places = failing_clauses(contract)
    blamed = state.replica_condemned[..., places].any(axis=2) & serving[:, :, None]
    some = np.flatnonzero(blamed.any(axis=(1, 2)))
    if some.size:  # few, so only these are summed
        together = pool(case.verdicts.replicas.judged[some], serving[some], case.owner, case.kernels)
        excess = excess_of_sums(together, contract)[..., places].max(axis=2)
        said = kernel_count(blamed[some], case.owner, case.kernels) > 0
        found[some[:, None, None], np.arange(case.kernels)[:, None], places] = np.where(said, excess, 0.0)
    return found


def _by_lateness(serving: Flags, late: Late | None, case: Case) -> NDArray[np.float64]:
    """float64 [B, K, C], how far the share of replicas in rotation that are late on the way is beyond a
    limit.

    0 for a kernel that is or recently was overloaded, where the servers' own front ends may be late.
    """
    contract = case.setup.contract
    if late is None:
        return np.zeros((len(serving), case.kernels, len(contract.clause_ids)))
    here = np.asarray(late.clauses.any(axis=2) & serving[:, :, None])
    heads = np.zeros((len(serving), case.kernels, len(contract.clause_ids), 4))
    heads[..., COUNT] = kernel_count(serving, case.owner, case.kernels)[:, :, None]
    heads[..., OVER] = kernel_count(here, case.owner, case.kernels)
    known = (heads[..., OVER] > 0.0) & ~late.overloaded[:, :, None]
    return np.where(known, excess_of_sums(heads, contract), 0.0)


def presumed_failing(state: ControllerState, counted: Sums, case: Case) -> Capped | None:
    """Kernels presumed to fail with a zone; None: none.

    state: after quarantine; counted: [B, K, S, C, 4], gateway counts.
    """
    failing = seen_to_fail(state, case)
    if failing is None:
        return None
    zone = struck_zones(failing, case)
    rotation = case.ready & ~not_evidence_for_kernel(state)
    if not some_in(zone & rotation):
        return None
    contract = case.setup.contract
    excess = np.zeros((*counted.shape[:2], 1, counted.shape[3]))
    places = failing_clauses(contract)
    presumed = _as_the_others(failing & zone, zone, rotation, case)
    excess[..., 0, places] = excess_of_sums(presumed, contract)[..., places]
    told = counted[..., COUNT] < contract.min_samples
    alarm = (excess > 0.0) & told & applies(contract)
    return Capped(alarm, np.broadcast_to(excess, alarm.shape)) if bool(alarm.any()) else None


def _as_the_others(failing: Flags, zone: Flags, rotation: Flags, case: Case) -> Sums:
    """[B, K, C, 4], one observation per replica in ``rotation``, all flags [B, R].

    A replica in the ``zone`` that has shown too little counts as the failed share of those ``failing``;
    every other replica counts as 0.
    """
    shown = case.verdicts.replicas.judged.sum(axis=2)
    together = np.where(failing[:, :, None, None], shown, 0.0).sum(axis=1)
    share = together[..., OVER] / np.maximum(together[..., COUNT], 1.0)
    unknown = (zone & rotation)[:, :, None] & (shown[..., COUNT] < case.setup.contract.min_samples)
    sums = np.zeros((len(failing), case.kernels, shown.shape[2], 4))
    sums[..., COUNT] = kernel_count(rotation, case.owner, case.kernels)[:, :, None]
    sums[..., 1:] = (kernel_count(unknown, case.owner, case.kernels) * share[:, None])[..., None]
    return sums
