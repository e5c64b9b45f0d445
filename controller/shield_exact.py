"""The shield's exact solver, for the few tables that water-filling cannot place: SciPy, deterministic.

Two steps. First how much of every row can be served: row after row in the order of priority, the most that
leaves the rows before it what they have (a linear program each, HiGHS). Then where: the table nearest to
the goal in the plain Euclidean norm among those that serve as much. That is a strictly convex quadratic
program, so its solution is unique and does not depend on the numbers of kernels. It is solved through its
dual, one multiplier per row and per kernel (L-BFGS-B), and polished on the active set that the dual finds.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog, minimize

Floats = NDArray[np.float64]

#: Least requests per second per request per second: keeps rows without load out of divisions.
_LEAST_RATE = 1e-9
#: Weights below this count as zero when the active set is read off.
_ACTIVE = 1e-9
#: Constraints may be missed by so much before the last scaling.
_NEAR = 1e-7


def solve_exactly(
    goal: Floats, ok: NDArray[np.bool_], rate: Floats, capacity: Floats, order: NDArray[np.int64]
) -> Floats:
    """Table [S, K + 1] nearest to ``goal`` that serves, in ``order``, the most that ``capacity`` [K] lets.

    ok: bool [S, K]; rate: requests per second [S]. Weights are 0 where not ok; what is not served is shed.
    """
    most = np.minimum(served(goal, ok, rate, capacity, order), 1.0)
    weights = _nearest(goal[:, :-1], ok, rate, capacity, most)
    weights *= np.minimum(1.0, capacity / np.maximum(rate @ weights, _LEAST_RATE))
    return np.concatenate([weights, np.maximum(1.0 - weights.sum(axis=1, keepdims=True), 0.0)], axis=1)


def served(
    goal: Floats, ok: NDArray[np.bool_], rate: Floats, capacity: Floats, order: NDArray[np.int64]
) -> Floats:
    """Share [S] of each row that is served: the lexicographic optimum in ``order``, at most the goal's."""
    slices, kernels = ok.shape
    asked = goal[:, :-1].sum(axis=1)
    bounds = [(0.0, 1.0 if allowed else 0.0) for allowed in ok.ravel()]
    by_kernel = np.kron(rate, np.eye(kernels))
    by_row = np.kron(np.eye(slices), np.ones(kernels))
    floor = np.zeros(slices)
    for s in order:
        limits = np.concatenate([capacity, asked, -floor])
        found = linprog(
            -by_row[s], A_ub=np.vstack([by_kernel, by_row, -by_row]), b_ub=limits, bounds=bounds,
            method="highs",
        )  # fmt: skip
        # A floor a rounding above what is feasible would leave nothing feasible.
        floor[s] = max(-float(found.fun) - 1e-9, 0.0) if found.status == 0 else 0.0
    return np.asarray(np.minimum(floor + 1e-9, asked))


def _nearest(goal: Floats, ok: NDArray[np.bool_], rate: Floats, capacity: Floats, most: Floats) -> Floats:
    slices, kernels = ok.shape
    scale = max(float(rate.max()), _LEAST_RATE)
    pull, room = rate / scale, capacity / scale

    def primal(multipliers: Floats) -> Floats:
        rows, columns = multipliers[:slices], multipliers[slices:]
        return np.where(ok, np.maximum(goal + rows[:, None] - pull[:, None] * columns, 0.0), 0.0)

    def dual(multipliers: Floats) -> tuple[float, Floats]:
        weights = primal(multipliers)
        value = 0.5 * float((weights**2).sum()) - float(multipliers[:slices] @ most)
        gradient = np.concatenate([weights.sum(axis=1) - most, room - pull @ weights])
        return value + float(multipliers[slices:] @ room), gradient

    bounds = [(None, None)] * slices + [(0.0, None)] * kernels
    options = {"maxiter": 2000, "maxfun": 4000, "ftol": 1e-15, "gtol": 1e-9, "maxcor": 30}
    found = minimize(
        dual, np.zeros(slices + kernels), jac=True, bounds=bounds, method="L-BFGS-B", options=options
    )
    return _polished(primal(found.x), found.x[slices:] > _ACTIVE, goal, ok, pull, room, most)


def _polished(
    weights: Floats, tight: NDArray[np.bool_], goal: Floats, ok: NDArray[np.bool_], pull: Floats,
    room: Floats, most: Floats,
) -> Floats:  # fmt: skip
    """The optimum on the active set of ``weights``; ``weights`` themselves where that set is not right."""
    slices, kernels = ok.shape
    active = (weights > _ACTIVE) & ok
    rows = active.sum(axis=1).astype(np.float64)
    cross = -pull[:, None] * active
    system = np.block([[np.diag(rows), cross], [cross.T, np.diag((pull[:, None] ** 2 * active).sum(axis=0))]])
    short = most - (goal * active).sum(axis=1)
    over = (pull[:, None] * goal * active).sum(axis=0) - room
    keep = np.concatenate([rows > 0.0, tight])
    answer = np.zeros(slices + kernels)
    answer[keep] = np.linalg.lstsq(
        system[np.ix_(keep, keep)], np.concatenate([short, over])[keep], rcond=None
    )[0]
    better = np.where(active, goal + answer[:slices, None] - pull[:, None] * answer[slices:], 0.0)
    fits = bool((pull @ better <= room * (1.0 + _NEAR) + _NEAR).all())
    right = fits and bool((better >= -_NEAR).all()) and np.allclose(better.sum(axis=1), most, atol=_NEAR)
    return np.maximum(better, 0.0) if right else weights
