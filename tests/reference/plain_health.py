"""Health by definition, in plain numpy: the reference for the compiled law."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import CompiledContract, Level
from contracts.compiled.health import MOST_EXCESS

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


def health(alarm: Flags, excess: Floats, contract: CompiledContract) -> tuple[Floats, NDArray[np.int64]]:
    """``(H, level)`` of every (kernel, slice): float64 and int64 ``[..., S]``.

    alarm: bool [..., S, C], clause in alarm; excess: float64 [..., S, C], relative excess (negative and
    NaN count as 0). Clauses that do not apply to a slice are ignored. ``level`` is a ``Level``.
    """
    weighted = _bounded(excess)
    shape = np.broadcast_shapes(alarm.shape, weighted.shape)[:-1]
    sums = [np.zeros(shape) for _ in range(3)]
    seen = [np.zeros(shape, dtype=np.bool_) for _ in range(3)]
    for clause, severity in enumerate(contract.level.tolist()):
        active = alarm[..., clause] & contract.applies[clause]
        sums[severity - 1] += np.where(active, contract.weight[clause] * weighted[..., clause], 0.0)
        seen[severity - 1] |= active
    level = np.where(seen[2], int(Level.FALLBACK), np.where(seen[1], int(Level.GUARD), int(Level.NORMAL)))
    return _combine(sums, level, contract), level.astype(np.int64)


def _combine(sums: list[Floats], level: NDArray[np.int64], contract: CompiledContract) -> Floats:
    tau1, tau2 = contract.guard_threshold, contract.fallback_threshold
    normal = _bend(sums[0], tau1)
    guard = np.minimum(tau1 + _bend(sums[0] + sums[1], tau2 - tau1), np.nextafter(tau2, 0.0))
    fallback = tau2 + (sums[0] + sums[1] + sums[2])
    return np.asarray(
        np.where(level == Level.FALLBACK, fallback, np.where(level == Level.GUARD, guard, normal))
    )


def _bounded(excess: Floats) -> Floats:
    finite = np.nan_to_num(excess, nan=0.0, posinf=MOST_EXCESS, neginf=0.0)
    return np.asarray(np.clip(finite, 0.0, MOST_EXCESS))


def _bend(total: Floats, headroom: float) -> Floats:
    half = 0.5 * headroom
    bent = np.where(total <= half, total, headroom - half * half / np.maximum(total, half))
    return np.asarray(np.minimum(bent, np.nextafter(headroom, 0.0)))
