"""The linear program of ``policies.program.linear_program`` and its solution (SciPy's HiGHS)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_array

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

#: Lower bound of offered rates, so that an idle slice is placed as well.
_LEAST_RPS = 0.01
#: Shares below this are rounding errors of the solver.
_EPSILON = 1e-7
#: Cost of the second kernel over the first, of the third over the second...: only breaks ties.
_TIE = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Prices, in failed requests per request (see the module), and how full kernels may be."""

    capacity: float = 0.01  #: of a request on the dearest kernel
    away: float = 0.02  #: of a request that is not served at its slice's home
    move: float = 0.005  #: of a request per second that changes its kernel
    #: of a request that the open kernels carry beyond the plan if all go as far beyond it as the fullest
    overload: float = 0.2
    shed: float = 1.0  #: of a shed request of the slice of lowest priority
    fill_ratio: float = 0.9  #: planned load over capacity
    #: greatest load over capacity at which rows that beliefs do not concern are kept
    overload_ratio: float = 1.25


@dataclass(frozen=True, slots=True, kw_only=True)
class TableProgram:
    """One fleet's program."""

    offered_rps: Floats  #: [S]
    loss: Floats  #: [K, S]
    open_: Flags  #: [K, S], cells that may serve
    capacity_rps: Floats  #: [K]
    work: Floats  #: [K], work of a request, the most expensive kernel's is 1
    last: Floats  #: [S, K + 1], table in force
    home: NDArray[np.int64]  #: [S]
    shed: Floats  #: [S], price of a shed request


def price(problem: TableProgram, costs: Costs) -> Floats:
    """Price of a request of each slice on each kernel and shed, float64 [S, K + 1]."""
    kernels, slices = problem.loss.shape
    away = costs.away * (np.arange(kernels) != problem.home[:, None])
    order = _TIE * np.arange(kernels)
    return np.column_stack(
        [problem.loss.T + costs.capacity * problem.work + away + order, problem.shed.reshape(slices)]
    )


def solve(problem: TableProgram, costs: Costs, kept: Flags | None = None) -> Floats:
    """The cheapest table, float64 [S, K + 1]; always feasible, because a row is served or shed.

    kept: bool [S], rows that stay as they are in ``last``. If that overfills a kernel or sheds anything,
    no row is kept.
    """
    if kept is not None and kept.any():
        table = _optimum(problem, costs, kept)
        if table is not None and not table[:, -1].any():
            return table
    table = _optimum(problem, costs, None)
    if table is None:
        raise RuntimeError("linear program: expected an optimum, got none; are inputs finite?")
    return table


def _optimum(problem: TableProgram, costs: Costs, kept: Flags | None) -> Floats | None:
    """The optimum with the rows ``kept`` as in ``last`` and no kernel beyond ``overload_ratio``, or None.
    Without kept rows, no slice with an open kernel is shed, however full that kernel is.

    Variables: the table [S * (K + 1)], what each cell gains [S * K], the fullest kernel's overload.
    """
    kernels, slices = problem.loss.shape
    demand = np.maximum(problem.offered_rps, _LEAST_RPS)
    total_rps = demand.sum()
    demand, headroom = demand / total_rps, problem.capacity_rps / total_rps
    found = linprog(
        _objective(problem, costs, demand, headroom),
        A_ub=_upper(demand, headroom),
        b_ub=np.concatenate([headroom * costs.fill_ratio, problem.last[:, :kernels].ravel()]),
        A_eq=_rows(slices, kernels),
        b_eq=np.ones(slices),
        bounds=_bounds(problem, costs, kept),
        method="highs",
    )
    if found.x is None:
        return None
    return _cleaned(found.x[: slices * (kernels + 1)].reshape(slices, kernels + 1))


def _objective(problem: TableProgram, costs: Costs, demand: Floats, headroom: Floats) -> Floats:
    """Cost of a unit of each variable."""
    shares = (demand[:, None] * price(problem, costs)).ravel()
    gains = np.repeat(demand * costs.move, problem.loss.shape[0])
    overload = costs.overload * headroom[problem.open_.any(axis=1)].sum()
    return np.concatenate([shares, gains, [overload]])


def _bounds(problem: TableProgram, costs: Costs, kept: Flags | None) -> Floats:
    """Lower and upper bound of each variable: closed cells stay empty, rows ``kept`` as in ``last``."""
    kernels, slices = problem.loss.shape
    served = (problem.open_ & (problem.capacity_rps > 0.0)[:, None]).any(axis=0) & (kept is None)
    closed = np.column_stack([~problem.open_.T, served])
    stays = np.zeros((slices, 1), dtype=np.bool_) if kept is None else kept[:, None]
    most = np.where(stays, problem.last, np.where(closed, 0.0, 1.0)).ravel()
    least = np.where(stays, problem.last, 0.0).ravel()
    spare = np.inf if kept is None else max(costs.overload_ratio - costs.fill_ratio, 0.0)
    rest = np.concatenate([np.ones(slices * kernels), [spare]])
    return np.column_stack([np.concatenate([least, np.zeros(rest.size)]), np.concatenate([most, rest])])


def _upper(demand: Floats, headroom: Floats) -> csr_array:
    """Rows of the capacities [K] and of the gains [S * K] over (shares, gains, overload)."""
    kernels, shares = headroom.size, demand.size * (headroom.size + 1)
    cell = np.arange(demand.size * kernels)
    of_slice, of_kernel = cell // kernels, cell % kernels
    share, last = of_slice * (kernels + 1) + of_kernel, shares + cell.size
    row = np.concatenate([of_kernel, np.arange(kernels), kernels + cell, kernels + cell])
    column = np.concatenate([share, np.full(kernels, last), share, shares + cell])
    value = np.concatenate([demand[of_slice], -headroom, np.ones(cell.size), -np.ones(cell.size)])
    return csr_array((value, (row, column)), shape=(kernels + cell.size, last + 1))


def _rows(slices: int, kernels: int) -> csr_array:
    """Sum of each slice's shares, over (shares, gains, overload)."""
    share = np.arange(slices * (kernels + 1))
    width = share.size + slices * kernels + 1
    return csr_array((np.ones(share.size), (share // (kernels + 1), share)), shape=(slices, width))


def _cleaned(table: Floats) -> Floats:
    """Without rounding errors, rows that sum to 1."""
    kept = np.where(table < _EPSILON, 0.0, table)
    return np.asarray(kept / kept.sum(axis=1, keepdims=True))
