"""Moves that respect capacity: fill the proposed kernels, give the overflow to the next best.

Load that fits nowhere overfills all kernels that the slice may use to one level of load over capacity, the
least possible. A table that already carries the load is kept: offered load fluctuates, and a table that
followed it would never settle. Once a replica has left the rotation the table is made anew without waiting,
if it no longer carries the load.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from controller.ports import Observation, PolicyState, Proposal
from policies.rules.capacity_pass import AllocationRequest, AllocationResult, settle


@dataclass(frozen=True, slots=True, kw_only=True)
class Headroom:
    """Planned fill of kernels, and when load alone changes the plan."""

    fill_ratio: float = 0.9  #: share of capacity that a plan may use
    return_ratio: float = 0.75  #: share that must suffice before overflow goes back
    replan_s: float = 30.0  #: least time between two moves for capacity alone, while no replica leaves


def fit_capacity(
    wanted: NDArray[np.float64],
    rank: NDArray[np.float64],
    observation: Observation,
    memory: PolicyState,
    priority: NDArray[np.int64],
    headroom: Headroom,
    kept: NDArray[np.bool_] | None = None,
) -> tuple[Proposal, PolicyState]:
    """Proposal near ``wanted`` float64 [B, S, K + 1] that overloads no kernel while another has headroom.

    rank: float64 [B, S, K], order in which kernels take overflow (lowest first, inf: never).
    ``memory`` holds ``wanted``, ``planned`` and ``planned_at_s`` of the last plan, and ``served_by``, the
    ``observation.ready`` of the last tick. kept: bool [B, S], rows
    that stay as planned while others change, and may fill a kernel completely (None: no row).
    """
    planned = np.asarray(memory["planned"], dtype=np.float64)
    settled = AllocationResult(
        table=np.empty_like(wanted),
        planned_at_s=_planned_at_s(observation, memory),
        same_rows=np.empty(wanted.shape[:2], dtype=np.bool_),
        capacity_only=np.empty(len(wanted), dtype=np.bool_),
    )
    asked = AllocationRequest(
        wanted=wanted,
        last_wanted=np.asarray(memory["wanted"], dtype=np.float64),
        planned=planned,
        in_force=np.ascontiguousarray(observation.table),
        stays=np.zeros(wanted.shape[:2], dtype=np.bool_) if kept is None else kept & planned.any(axis=2),
        rank=rank,
        offered_rps=observation.offered_rps,
        capacity_rps=observation.planned_rps,
        now_s=observation.now_s,
        order=_by_priority(tuple(priority.tolist())),
        fill_ratio=headroom.fill_ratio,
        return_ratio=headroom.return_ratio,
        replan_s=headroom.replan_s,
    )
    settle(tuple(settled), tuple(asked))
    plan = {"wanted": wanted, "planned": settled.table, "planned_at_s": settled.planned_at_s}
    proposal = Proposal(
        table=settled.table,
        ejected=np.zeros(observation.in_rotation.shape, dtype=np.bool_),
        capacity_only=settled.capacity_only,
        capacity_rows=settled.same_rows,
    )
    return proposal, {**memory, **plan, "served_by": observation.ready}


def _planned_at_s(observation: Observation, memory: PolicyState) -> NDArray[np.float64]:
    """float64 [B], time of the last plan; long ago once a replica has left the rotation since.

    Offered load fluctuates, so a plan is kept for a while. A replica that is gone does not come back with the
    next fluctuation, and every second that the others carry its load at home grows their queues.
    """
    planned_at_s = np.asarray(memory["planned_at_s"], dtype=np.float64)
    served_by = np.asarray(memory["served_by"], dtype=np.int64)
    fewer = (observation.ready < served_by).any(axis=1)
    return np.where(fewer, -np.inf, planned_at_s)


@lru_cache(maxsize=64)
def _by_priority(priority: tuple[int, ...]) -> NDArray[np.int64]:
    """int64 [S]: slices, highest priority first."""
    return np.argsort(-np.array(priority, dtype=np.int64), kind="stable")


def capacity_memory(batch: int, slices: int, kernels: int) -> PolicyState:
    """Memory for ``fit_capacity`` before the first tick."""
    return {
        "wanted": np.zeros((batch, slices, kernels + 1)),
        "planned": np.zeros((batch, slices, kernels + 1)),
        "planned_at_s": np.full(batch, -np.inf),
        "served_by": np.zeros((batch, kernels), dtype=np.int64),
    }
