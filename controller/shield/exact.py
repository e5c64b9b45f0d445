"""The shield's exact solver, for the few tables that water-filling cannot place: SciPy, deterministic.

There are two steps. The first determines how much of every row can be served: row by row in order of
priority, the maximum that leaves earlier rows unchanged (one linear program each, HiGHS). The second
determines where: the table nearest to the target in the Euclidean norm among those that serve as much. This
is a strictly convex quadratic program, so its solution is unique and does not depend on the order of kernels.
It is solved through its dual, with one multiplier per row and per kernel (L-BFGS-B), and polished on the
active set that the dual finds.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog, minimize

from controller.shield.capacity import SLACK
from controller.shield.lesser_evil import WHOLE, comply
from controller.shield.records import Facts

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

#: Lower bound of a row's rate relative to the largest one; avoids a division by zero for rows without load.
_LEAST_RATE = 1e-9
#: Weights below this count as zero in the active set.
_ACTIVE = 1e-9
#: Largest violation of a constraint before the last scaling.
_NEAR = 1e-7


def place_exactly(facts: Facts, target: Floats) -> Floats:
    """Table [S, K + 1] nearest to ``target`` on allowed cells; where that sheds, soft cells are used too."""
    known = facts.offered_rps, facts.limit_rps, facts.order
    table = solve_exactly(target, facts.allowed, *known)
    wide = facts.allowed | (facts.loss < WHOLE)
    if (table[:, -1] <= target[:, -1] + SLACK).all() or bool((wide == facts.allowed).all()):
        return table
    table = solve_exactly(target, wide, *known)
    headroom_rps = facts.limit_rps - facts.offered_rps @ table[:, :-1]
    comply(facts, table, headroom_rps, np.zeros_like(facts.canary))
    return table


def solve_exactly(
    target: Floats, allowed: Flags, offered_rps: Floats, limit_rps: Floats, order: NDArray[np.int64]
) -> Floats:
    """Table [S, K + 1] nearest to ``target`` that serves, in ``order``, the most that ``limit_rps`` [K] lets.

    allowed: bool [S, K]; offered_rps: [S]. Weights are 0 where not allowed; what is not served is shed.
    """
    most = np.minimum(served(target, allowed, offered_rps, limit_rps, order), 1.0)
    weights = _nearest(target[:, :-1], allowed, offered_rps, limit_rps, most)
    weights *= np.minimum(1.0, limit_rps / np.maximum(offered_rps @ weights, _LEAST_RATE))
    return np.concatenate([weights, np.maximum(1.0 - weights.sum(axis=1, keepdims=True), 0.0)], axis=1)


def served(
    target: Floats, allowed: Flags, offered_rps: Floats, limit_rps: Floats, order: NDArray[np.int64]
) -> Floats:
    """Share [S] of each row that is served: the lexicographic optimum in ``order``, at most the target's."""
    slices, kernels = allowed.shape
    asked = target[:, :-1].sum(axis=1)
    bounds = [(0.0, 1.0 if may else 0.0) for may in allowed.ravel()]
    by_kernel = np.kron(offered_rps, np.eye(kernels))
    by_row = np.kron(np.eye(slices), np.ones(kernels))
    upper, least = np.vstack([by_kernel, by_row, -by_row]), np.zeros(slices)
    for s in order:
        limits = np.concatenate([limit_rps, asked, -least])
        found = linprog(-by_row[s], A_ub=upper, b_ub=limits, bounds=bounds, method="highs")
        # A bound above the feasible maximum by a rounding error would make the program infeasible.
        least[s] = max(-float(found.fun) - 1e-9, 0.0) if found.status == 0 else 0.0
    return np.asarray(np.minimum(least + 1e-9, asked))


def _nearest(target: Floats, allowed: Flags, offered_rps: Floats, limit_rps: Floats, most: Floats) -> Floats:
    """Weights [S, K] nearest to ``target`` [S, K] whose rows sum to ``most`` [S]."""
    slices, kernels = allowed.shape
    scale = max(float(offered_rps.max()), _LEAST_RATE)
    pull, headroom = offered_rps / scale, limit_rps / scale

    def primal(multipliers: Floats) -> Floats:
        rows, columns = multipliers[:slices], multipliers[slices:]
        return np.where(allowed, np.maximum(target + rows[:, None] - pull[:, None] * columns, 0.0), 0.0)

    def dual(multipliers: Floats) -> tuple[float, Floats]:
        weights = primal(multipliers)
        value = 0.5 * float((weights**2).sum()) - float(multipliers[:slices] @ most)
        gradient = np.concatenate([weights.sum(axis=1) - most, headroom - pull @ weights])
        return value + float(multipliers[slices:] @ headroom), gradient

    bounds = [(None, None)] * slices + [(0.0, None)] * kernels
    options = {"maxiter": 2000, "maxfun": 4000, "ftol": 1e-15, "gtol": 1e-9, "maxcor": 30}
    found = minimize(
        dual, np.zeros(slices + kernels), jac=True, bounds=bounds, method="L-BFGS-B", options=options
    )
    return _polished(primal(found.x), found.x[slices:] > _ACTIVE, target, allowed, pull, headroom, most)


def _polished(
    weights: Floats,
    tight: Flags,
    target: Floats,
    allowed: Flags,
    pull: Floats,
    headroom: Floats,
    most: Floats,
) -> Floats:
    """The optimum on the active set of ``weights``; ``weights`` unchanged if that set is not the optimal one.

    tight: bool [K], kernels that are full. pull [S], headroom [K]: rates and limits over the largest rate.
    """
    slices, kernels = allowed.shape
    active = (weights > _ACTIVE) & allowed
    rows = active.sum(axis=1).astype(np.float64)
    cross = -pull[:, None] * active
    system = np.block([[np.diag(rows), cross], [cross.T, np.diag((pull[:, None] ** 2 * active).sum(axis=0))]])
    short = most - (target * active).sum(axis=1)
    over = (pull[:, None] * target * active).sum(axis=0) - headroom
    keep = np.concatenate([rows > 0.0, tight])
    answer = np.zeros(slices + kernels)
    answer[keep] = np.linalg.lstsq(
        system[np.ix_(keep, keep)], np.concatenate([short, over])[keep], rcond=None
    )[0]
    better = np.where(active, target + answer[:slices, None] - pull[:, None] * answer[slices:], 0.0)
    fits = bool((pull @ better <= headroom * (1.0 + _NEAR) + _NEAR).all())
    right = fits and bool((better >= -_NEAR).all()) and np.allclose(better.sum(axis=1), most, atol=_NEAR)
    return np.maximum(better, 0.0) if right else weights
