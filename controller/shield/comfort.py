"""Comfortable load: kernels are filled to it first, and up to their limit only if that is not enough.

A policy may fill one kernel completely while others idle. Capacity is only an estimate, and a queue on a full
replica stays for minutes. On the other hand, a policy may have a reason to leave a kernel before anything is
proven. So the kernels that the policy wants are filled first, to the comfortable load and then to their
capacity; then all kernels to the comfortable load; finally, kernels that are needed up to their limit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.jit import compiled
from controller.options import ShieldLimits
from controller.shield.capacity import EPSILON, SLACK
from controller.shield.rows import Table

#: Tolerance, so that a kernel exactly at its limit does not appear to be above it.
_ROUNDING = 1.0 + 1e-9
#: Steps of ``fill_up_to``: wanted kernels to the comfortable load, then to capacity, then all to comfort.
STEPS = 3
_CARRIED = 1


class LoadLimits(NamedTuple):
    """Requests per second of B fleets' kernels, float64 [B, K]."""

    limit_rps: NDArray[np.float64]  # [B, K], upper limit of the load of a kernel
    capacity_rps: NDArray[np.float64]  # [B, K], its capacity, at most that limit
    comfort_rps: NDArray[np.float64]  # [B, K], comfortable load: the limit while other kernels have headroom


def load_limits(
    last: Table,
    offered_rps: NDArray[np.float64],
    carried_rps: NDArray[np.float64],
    limit_rps: NDArray[np.float64],
    limits: ShieldLimits,
) -> LoadLimits:
    """Load limits of kernels by their estimated capacity ``carried_rps`` and ``limit_rps``, both [B, K]."""
    comfort_rps = comfortable_rps(last, offered_rps, carried_rps, limits)
    return LoadLimits(
        limit_rps=limit_rps,
        capacity_rps=np.minimum(carried_rps * min(1.0, limits.max_load_ratio), limit_rps),
        comfort_rps=np.minimum(comfort_rps, limit_rps),
    )


def comfortable_rps(
    last: Table, offered_rps: NDArray[np.float64], capacity_rps: NDArray[np.float64], limits: ShieldLimits
) -> NDArray[np.float64]:
    """float64 [B, K]: comfortable load; a kernel that carries slightly more by ``last`` keeps its load.

    offered_rps: [B, S]; capacity_rps: [B, K].
    """
    carried_rps = np.einsum("bsk,bs->bk", last[..., :-1], offered_rps) * _ROUNDING
    filled, kept = (
        min(ratio, limits.max_load_ratio) for ratio in (limits.comfortable_load_ratio, limits.kept_load_ratio)
    )
    # Twice as fast as ``clip``, for few kernels.
    return np.asarray(np.minimum(np.maximum(carried_rps, capacity_rps * filled), capacity_rps * kept))


@compiled(forceinline=True)
def has_comfort(facts):
    """Whether some kernel's comfortable load lies below its limit."""
    found = False
    for k in range(facts.limit_rps.shape[0]):
        found = found or facts.comfort_rps[k] < facts.limit_rps[k]
    return found


@compiled(forceinline=True)
def fill_up_to(facts, outcome, step):
    """Raise the limits of kernels to what this ``step`` allows."""
    for k in range(facts.limit_rps.shape[0]):
        most_rps = facts.comfort_rps[k]
        if step <= _CARRIED and not _is_wanted(outcome, k):
            most_rps = 0.0
        elif step == _CARRIED:
            most_rps = max(most_rps, facts.capacity_rps[k])
        outcome.most_rps[k] = most_rps


@compiled(forceinline=True)
def open_unwanted(facts, outcome):
    """Let kernels that are no row's target keep a comfortable load until they are empty."""
    for k in range(facts.limit_rps.shape[0]):
        outcome.most_rps[k] = max(outcome.most_rps[k], facts.comfort_rps[k])


@compiled(forceinline=True)
def _is_wanted(outcome, k):
    """Whether kernel ``k`` is in the target of a row."""
    found = False
    for s in range(outcome.target.shape[0]):
        found = found or outcome.target[s, k] > 0.0
    return found


@compiled(forceinline=True)
def open_to_limit(facts, outcome, work):
    """Open kernels up to their limit where that helps rows with overflow.

    These are the kernels that such rows may use, and kernels to which other rows could move to make room.
    ``work.headroom_rps`` grows by what is opened.
    """
    growing = True
    for s in range(facts.allowed.shape[0]):
        if work.overflow[s] > SLACK:
            _open_row(facts, outcome, work, s)
    while growing:
        growing = False
        for s in range(facts.allowed.shape[0]):
            if _leads_on(facts, outcome, s):
                _open_row(facts, outcome, work, s)
                growing = True


@compiled(forceinline=True)
def _leads_on(facts, outcome, s):
    """Whether row ``s`` has weight on a kernel that is open to its limit and may go to one that is not."""
    inside, further = False, False
    for k in range(facts.allowed.shape[1]):
        if outcome.most_rps[k] == facts.limit_rps[k]:
            inside = inside or outcome.table[s, k] > EPSILON
        else:
            further = further or facts.allowed[s, k]
    return inside and further


@compiled(forceinline=True)
def _open_row(facts, outcome, work, s):
    """Open the kernels that row ``s`` may use up to their limit."""
    for k in range(facts.allowed.shape[1]):
        if facts.allowed[s, k]:
            work.headroom_rps[k] += facts.limit_rps[k] - outcome.most_rps[k]
            outcome.most_rps[k] = facts.limit_rps[k]
