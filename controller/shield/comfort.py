"""A comfortable load: kernels are filled to it first, and to their limit only where that is short.

A policy may fill one kernel to the brim while others idle. What it carries is an estimate, and a queue that
has grown on a full replica stays for minutes. But a policy may also know why it leaves a kernel, before
anything is proven. So the kernels that it wants are filled first, to the comfortable load and then to what
they carry; then all to the comfortable load; then those that it takes to their limit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.jit import compiled
from controller.options import ShieldLimits
from controller.shield.capacity import EPSILON, SLACK
from controller.shield.rows import Table

#: A kernel that carries just what it may must not seem to carry more.
_ROUNDING = 1.0 + 1e-9
#: Steps of ``fill_up_to``: wanted kernels to the comfortable load, these to what they carry, all to comfort.
STEPS = 3
_CARRIED = 1


class LoadLimits(NamedTuple):
    """Requests per second of B fleets' kernels, float64 [B, K]."""

    limit_rps: NDArray[np.float64]  # [B, K], the most that a kernel may carry
    capacity_rps: NDArray[np.float64]  # [B, K], what it carries, within that
    comfort_rps: NDArray[np.float64]  # [B, K], the most while the others have room as well


def load_limits(
    last: Table,
    offered_rps: NDArray[np.float64],
    carried_rps: NDArray[np.float64],
    limit_rps: NDArray[np.float64],
    limits: ShieldLimits,
) -> LoadLimits:
    """Within ``limit_rps``, of kernels that are thought to carry ``carried_rps``, both [B, K]."""
    comfort_rps = comfortable_rps(last, offered_rps, carried_rps, limits)
    return LoadLimits(
        limit_rps=limit_rps,
        capacity_rps=np.minimum(carried_rps * min(1.0, limits.max_load_ratio), limit_rps),
        comfort_rps=np.minimum(comfort_rps, limit_rps),
    )


def comfortable_rps(
    last: Table, offered_rps: NDArray[np.float64], capacity_rps: NDArray[np.float64], limits: ShieldLimits
) -> NDArray[np.float64]:
    """float64 [B, K]: up to which a kernel is filled; one that carries a little more by ``last`` keeps it.

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
    """Let kernels carry what this ``step`` allows."""
    for k in range(facts.limit_rps.shape[0]):
        most_rps = facts.comfort_rps[k]
        if step <= _CARRIED and not _is_wanted(outcome, k):
            most_rps = 0.0
        elif step == _CARRIED:
            most_rps = max(most_rps, facts.capacity_rps[k])
        outcome.most_rps[k] = most_rps


@compiled(forceinline=True)
def open_unwanted(facts, outcome):
    """Let kernels that no row aims at keep a comfortable load until they are empty."""
    for k in range(facts.limit_rps.shape[0]):
        outcome.most_rps[k] = max(outcome.most_rps[k], facts.comfort_rps[k])


@compiled(forceinline=True)
def _is_wanted(outcome, k):
    """Whether a row aims at kernel ``k``."""
    found = False
    for s in range(outcome.target.shape[0]):
        found = found or outcome.target[s, k] > 0.0
    return found


@compiled(forceinline=True)
def open_to_limit(facts, outcome, work):
    """Let kernels carry their limit that rows which found no place may go to, and that others could move on
    to so as to make way for these.
    """
    growing = True
    for s in range(facts.allowed.shape[0]):
        if work.overflow[s] > SLACK:
            _open_row(facts, outcome, s)
    while growing:
        growing = False
        for s in range(facts.allowed.shape[0]):
            if _leads_on(facts, outcome, s):
                _open_row(facts, outcome, s)
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
def _open_row(facts, outcome, s):
    """Let the kernels that row ``s`` may use carry their limit."""
    for k in range(facts.allowed.shape[1]):
        if facts.allowed[s, k]:
            outcome.most_rps[k] = facts.limit_rps[k]
