"""The law of health: how far a clause lies beyond its limit, and the level of a (kernel, slice) that follows.

``H = sum_j omega_j phi_j`` with ``phi_j`` the relative excess of clause j over its limit, counted only while
the clause is in alarm. The most severe violated clause decides the level: an L3 alarm lifts H to the fallback
threshold tau2 or above, and nothing else does; an L2 alarm lifts it to the guard threshold tau1 or above; L1
alone stays below tau1. Sums that may not cross a threshold are bent below it (identity up to half the
headroom, then towards it), so H still ranks kernels within a level.

The functions take one number at a time and are called by compiled loops; ``relative_excess`` is plain too,
elementwise over arrays. No result depends on how many fleets are batched.
"""

from __future__ import annotations

import numpy as np

from contracts.compiled.contract import Level
from contracts.jit import compiled

#: Largest relative excess; keeps H finite where a limit is tiny.
MOST_EXCESS = 1e9

# Plain integers, because compiled code does not know the enumerations.
_NORMAL, _GUARD, _FALLBACK = int(Level.NORMAL), int(Level.GUARD), int(Level.FALLBACK)


def relative_excess(value, limit, sense):
    """How far ``value`` lies beyond ``limit`` on the bad side, as a share of it; negative inside.

    sense: +1 for "at most", -1 for "at least". A limit of 0 has no relative scale: there the excess is
    absolute. All three broadcast; NaN stays NaN.
    """
    return sense * (value - limit) / (abs(limit) + (limit == 0.0))


#: ``relative_excess`` of one number, for compiled code.
excess_of = compiled(relative_excess)


@compiled
def bounded_excess(excess):
    """``excess`` as H counts it: from 0 to ``MOST_EXCESS``; NaN (nothing measured) counts as 0."""
    return 0.0 if np.isnan(excess) else min(max(excess, 0.0), MOST_EXCESS)


@compiled
def health_of(sums, severest, tau1, tau2):
    """``(H, level)`` of one (kernel, slice).

    sums: float64 [3], sum of weighted bounded excesses of the clauses in alarm, by severity L1 to L3.
    severest: severity of the worst clause in alarm, 1 to 3; 0 where none is.
    tau1, tau2: the contract's guard and fallback thresholds.
    """
    if severest == 3:
        return tau2 + (sums[0] + sums[1] + sums[2]), _FALLBACK
    if severest == 2:
        return min(tau1 + _bend(sums[0] + sums[1], tau2 - tau1), np.nextafter(tau2, 0.0)), _GUARD
    return _bend(sums[0], tau1), _NORMAL


@compiled
def _bend(total, headroom):
    """``total`` up to half of ``headroom``, then rising strictly below it; smooth, increasing."""
    half = 0.5 * headroom
    bent = total if total <= half else headroom - half * half / max(total, half)
    return min(bent, np.nextafter(headroom, 0.0))
