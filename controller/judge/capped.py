"""What replicas at fault that stay in rotation say of their kernel: the ejection cap keeps some.

*Failures.* The gateway counts them by slice, and of a slice that a kernel does not serve it counts none: to a
policy that looks for a better place, the kernel looks clean. But requests of every slice go to the same
replicas. So where a condemned replica stays in rotation and those in rotation together break a clause on
failures, the kernel breaks it on every slice of which the gateway has counted too little to know better.

*Lateness on the way* (``judge.late_on_the_way``) likewise, and on slices that the gateway has counted as soon
as its own estimate lies beyond the limit as well: two witnesses that know nothing of each other.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.cells import kernel_count, pool
from controller.detect.clauses import applies, failing_clauses
from controller.detect.sums import COUNT, Sums, excess_of_sums
from controller.judge.departures import Case, Flags
from controller.judge.late_on_the_way import late_replicas
from controller.state import ControllerState, speaks_for_nobody


class Capped(NamedTuple):
    """Where replicas in rotation speak for their kernel, and how far its clause is broken."""

    alarm: Flags  # [B, K, S, C]
    excess: NDArray[np.float64]  # [B, K, S, C]


def broken_in_rotation(state: ControllerState, counted: Sums, case: Case) -> Capped | None:
    """Of ``state`` after quarantine; counted: [B, K, S, C, 4], what the gateway knows; None: nowhere.

    Who is needed says nothing: to leave its kernel would lose the same capacity.
    """
    contract = case.setup.contract
    serving = case.ready & ~speaks_for_nobody(state)
    blamed = _blamed(state, case) & serving[:, :, None]
    if not bool(blamed.any()):
        return None
    on_clause = kernel_count(blamed, case.owner, case.kernels)[:, :, None] > 0
    together = pool(case.verdicts.replicas.judged, serving, case.owner, case.kernels)
    excess = np.where(on_clause, excess_of_sums(together, contract), 0.0).max(axis=2, keepdims=True)
    unknown = counted[..., COUNT] < contract.min_samples
    failing = np.isin(np.arange(unknown.shape[3]), failing_clauses(contract))
    told = unknown | (~failing & (excess_of_sums(counted, contract) > 0.0))
    broken = (excess > 0.0) & told & applies(contract)
    return Capped(alarm=broken, excess=np.broadcast_to(excess, unknown.shape))


def _blamed(state: ControllerState, case: Case) -> Flags:
    """bool [B, R, C]: condemned on failures, or late on the way now."""
    contract = case.setup.contract
    failing = np.isin(np.arange(len(contract.clause_ids)), failing_clauses(contract))
    condemned = np.asarray((state.replica_condemned & failing).any(axis=2))
    late = late_replicas(case)
    return condemned if late is None else condemned | late.any(axis=2)
