"""Health H of a (kernel, slice), its level, and what the escalation policy says to do.

``H = sum_j omega_j phi_j`` with ``phi_j`` the relative excess of clause j over its threshold, counted
only while the clause is in alarm. The most severe violated clause decides the level: an L3 alarm lifts
H to the fallback threshold tau2 or above, and nothing else does; an L2 alarm lifts it to the guard
threshold tau1 or above; L1 alone stays below tau1. Sums that may not cross a threshold are bent below it
(identity up to half the room, then towards it), so H still ranks kernels within a level.

Only elementwise operations, clause after clause: a result does not depend on how many fleets are batched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contracts.compiled import CompiledContract, Level
from contracts.documents.contract import Action, Refinement

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

#: Largest relative excess that is told apart; keeps H finite where a threshold is tiny.
MOST_EXCESS = 1e9

_PLAIN_ACTION: tuple[Action, ...] = ("probe_more", "guard", "fallback")
_PLAIN_REASON = "the contract refines nothing for this family and level"


def relative_excess(value: Floats, threshold: Floats, sense: Floats) -> Floats:
    """How far ``value`` lies beyond ``threshold`` on the bad side, as a share of it; 0 inside, NaN as 0.

    All arrays broadcast; sense +1 is "at most", -1 "at least". A threshold of 0 has no relative scale:
    the excess is then the value itself.
    """
    scale = np.where(threshold == 0.0, 1.0, np.abs(threshold))
    return _bounded((value - threshold) * sense / scale)


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


def _bend(total: Floats, room: float) -> Floats:
    """``total`` up to half of ``room``, then rising strictly below it; smooth, increasing."""
    half = 0.5 * room
    bent = np.where(total <= half, total, room - half * half / np.maximum(total, half))
    return np.asarray(np.minimum(bent, np.nextafter(room, 0.0)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """What to do about one (kernel, slice), and the clause that decided it ("" when all is well)."""

    level: Level
    action: Action | None
    clause_id: str
    reason: str


def recommend(
    alarm: Flags, excess: Floats, contract: CompiledContract, refinements: Sequence[Refinement] = ()
) -> Recommendation:
    """Action of the escalation policy for one (kernel, slice).

    alarm: bool [C]; excess: float64 [C]. The most severe alarmed clause decides; among equals
    observability comes first (an unobservable kernel is rolled back whatever its drift), then the
    largest weighted excess, then the earlier clause. Its family's refinement at that level replaces the
    plain action (L1 probe more, L2 guard, L3 fallback).
    """
    if not alarm.any():
        return Recommendation(level=Level.NORMAL, action=None, clause_id="", reason="no clause is in alarm")
    weighted = contract.weight * _bounded(excess)
    decisive = max(
        np.flatnonzero(alarm).tolist(),
        key=lambda c: (int(contract.level[c]), contract.family[c] == "O", float(weighted[c]), -c),
    )
    severity = int(contract.level[decisive])
    chosen = next(
        (r for r in refinements if r.family == contract.family[decisive] and r.level == f"L{severity}"), None
    )
    return Recommendation(
        level=Level(severity - 1),
        action=chosen.action if chosen else _PLAIN_ACTION[severity - 1],
        clause_id=contract.clause_ids[decisive],
        reason=chosen.reason if chosen else _PLAIN_REASON,
    )
