"""What replicas at fault that stay in rotation say of their kernel: the ejection cap keeps some.

*Failures.* The gateway counts them by slice, and of a slice that a kernel does not serve it counts none: to a
policy that looks for a better place, the kernel looks clean. But requests of every slice go to the same
replicas. So where a condemned replica stays in rotation and those in rotation together break a clause on
failures, the kernel breaks it on every slice of which the gateway has counted too little to know better, and
on those of which its own estimate lies beyond the limit as well.

*Lateness on the way* (``judge.late_on_the_way``) likewise: two witnesses that know nothing of each other.

*A zone that fails.* Where replicas of two kernels in one zone are out because they fail, and of no other zone
(``whose_failures.struck_zones``), whoever looks for a place for their traffic finds idle kernels clean:
nobody has asked them for anything. If enough of an idle kernel stands in that zone to break a clause on
failures at the rate of those that are out, it is presumed to break it, wherever the gateway has counted too
little to know better. That holds while they are out, and what its replicas have shown goes first.
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
from controller.judge.replicas.quarantine_pass import ERRORS
from controller.judge.replicas.whose_failures import struck_zones
from controller.state import ControllerState, speaks_for_nobody


class Capped(NamedTuple):
    """Where replicas in rotation speak for their kernel, and how far its clause is broken."""

    alarm: Flags  # [B, K, S, C]
    excess: NDArray[np.float64]  # [B, K, S, C]


def broken_in_rotation(state: ControllerState, counted: Sums, late: Late | None, case: Case) -> Capped | None:
    """Of ``state`` after quarantine; counted: [B, K, S, C, 4], what the gateway knows; None: nowhere.

    Who is needed says nothing: to leave its kernel would lose the same capacity. ``late`` is as quarantine
    found it: it stands on what the kernels' detector knew before this tick, and of a state that is given away
    that is written over by now.
    """
    if late is None and not bool(state.replica_condemned.any()):
        return None
    serving = case.ready & ~speaks_for_nobody(state)
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
    """float64 [B, K, C], how far those in rotation together are beyond a limit, one of them condemned."""
    contract = case.setup.contract
    found = np.zeros((len(serving), case.kernels, len(contract.clause_ids)))
    places = failing_clauses(contract)
    blamed = state.replica_condemned[..., places].any(axis=2) & serving[:, :, None]
    some = np.flatnonzero(blamed.any(axis=(1, 2)))
    if some.size:  # few: sums of the others are not looked at
        together = pool(case.verdicts.replicas.judged[some], serving[some], case.owner, case.kernels)
        excess = excess_of_sums(together, contract)[..., places].max(axis=2)
        said = kernel_count(blamed[some], case.owner, case.kernels) > 0
        found[some[:, None, None], np.arange(case.kernels)[:, None], places] = np.where(said, excess, 0.0)
    return found


def _by_lateness(serving: Flags, late: Late | None, case: Case) -> NDArray[np.float64]:
    """float64 [B, K, C], how far the share of those in rotation that are late on the way is beyond a limit.

    Of a kernel that is or lately was overloaded nothing: its servers' fronts may be what is late.
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
    """Of ``state`` after quarantine; counted: [B, K, S, C, 4], what the gateway knows; None: nobody."""
    out = state.quarantined & (state.quarantine_reason == ERRORS)
    if not some_in(out):
        return None
    zone = struck_zones(out, case)
    rotation = case.ready & ~speaks_for_nobody(state)
    if not some_in(zone & rotation):
        return None
    contract = case.setup.contract
    excess = np.zeros((*counted.shape[:2], 1, counted.shape[3]))
    places = failing_clauses(contract)
    presumed = _as_the_others(out & zone, zone, rotation, case)
    excess[..., 0, places] = excess_of_sums(presumed, contract)[..., places]
    told = counted[..., COUNT] < contract.min_samples
    alarm = (excess > 0.0) & told & applies(contract)
    return Capped(alarm, np.broadcast_to(excess, alarm.shape)) if bool(alarm.any()) else None


def _as_the_others(out: Flags, zone: Flags, rotation: Flags, case: Case) -> Sums:
    """[B, K, C, 4], one observation of every replica in ``rotation``: of those in the ``zone`` who have shown
    too little the share that failed of those ``out``, of all others none. Flags [B, R].
    """
    shown = case.verdicts.replicas.judged.sum(axis=2)
    those = np.where(out[:, :, None, None], shown, 0.0).sum(axis=1)
    share = those[..., OVER] / np.maximum(those[..., COUNT], 1.0)
    unknown = (zone & rotation)[:, :, None] & (shown[..., COUNT] < case.setup.contract.min_samples)
    sums = np.zeros((len(out), case.kernels, shown.shape[2], 4))
    sums[..., COUNT] = kernel_count(rotation, case.owner, case.kernels)[:, :, None]
    sums[..., 1:] = (kernel_count(unknown, case.owner, case.kernels) * share[:, None])[..., None]
    return sums
