"""What a failing replica that the ejection cap keeps in rotation says of its kernel.

The gateway counts failures by slice, and of a slice that a kernel does not serve it counts none: to a policy
that looks for a better place, the kernel looks clean. But requests of every slice go to the same replicas.
So where a condemned replica stays in rotation and those in rotation together break a clause on failures, the
kernel breaks it on every slice of which the gateway has counted too little to know better.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.cells import kernel_count, pool
from controller.detect.clauses import applies, failing_clauses
from controller.detect.sums import COUNT, Sums, excess_of_sums
from controller.judge.departures import Case, Flags
from controller.state import ControllerState, speaks_for_nobody


class Capped(NamedTuple):
    """Where failing replicas in rotation speak for their kernel, and how far its clause is broken."""

    alarm: Flags  # [B, K, S, C]
    excess: NDArray[np.float64]  # [B, K, S, C]


def failures_in_rotation(state: ControllerState, counted: Sums, case: Case) -> Capped | None:
    """Of ``state`` after quarantine; counted: [B, K, S, C, 4], what the gateway knows; None: nowhere.

    Who is needed says nothing: to leave its kernel would lose the same capacity.
    """
    contract = case.setup.contract
    failing = np.zeros(len(contract.clause_ids), dtype=np.bool_)
    failing[failing_clauses(contract)] = True
    serving = case.ready & ~speaks_for_nobody(state)
    stays = serving & (state.replica_condemned & failing).any(axis=(2, 3))
    if not bool(stays.any()):
        return None
    together = pool(case.verdicts.replicas.judged, serving, case.owner, case.kernels)
    excess = np.where(failing, excess_of_sums(together, contract), 0.0).max(axis=2, keepdims=True)
    broken = (excess > 0.0) & (kernel_count(stays, case.owner, case.kernels) > 0)[:, :, None, None]
    unknown = counted[..., COUNT] < contract.min_samples
    return Capped(alarm=broken & unknown & applies(contract), excess=np.broadcast_to(excess, unknown.shape))
