"""Water-filling and the exact solver against kept solvers: SLSQP and HiGHS, on small random fleets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize

from controller.shield_capacity import fill, rerouting_helps
from controller.shield_exact import served, solve_exactly

KERNELS, SLICES = 4, 3
CLOSE = 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """goal: [S, K + 1]; ok: bool [S, K]; rate: [S]; capacity: [K]; order: [S]."""

    goal: np.ndarray
    ok: np.ndarray
    rate: np.ndarray
    capacity: np.ndarray
    order: np.ndarray

    def filled(self) -> tuple[np.ndarray, np.ndarray, bool]:
        """Table of water-filling, what it shed, and whether rerouting could still help."""
        table, spill, room = np.zeros_like(self.goal), np.zeros(len(self.rate)), self.capacity.copy()
        kernels = len(room)
        nobody = np.zeros(kernels, dtype=np.bool_)
        fill(table, self.goal, self.ok, nobody, self.rate, room, self.order, 1.0, spill)
        helps = [
            bool(
                rerouting_helps(
                    table,
                    self.ok,
                    self.rate,
                    room,
                    self.order,
                    at,
                    nobody.copy(),
                    np.zeros(kernels, np.int64),
                )
            )
            for at in range(len(self.order))
            if spill[self.order[at]] > 1e-9
        ]
        return table, spill, any(helps)


@st.composite
def fleets(draw: st.DrawFn, *, slices: int = SLICES, ample: bool = False, open_: bool = False) -> Fleet:
    """Random goals on allowed cells; ``ample``: all of it fits somewhere, if not where it was asked."""
    rng = np.random.Generator(np.random.PCG64(draw(st.integers(0, 2**32))))
    ok = np.ones((slices, KERNELS), dtype=np.bool_) if open_ else rng.random((slices, KERNELS)) < 0.6
    ok[np.arange(slices), rng.integers(0, KERNELS, slices)] = True
    goal = rng.dirichlet(np.full(KERNELS, 0.7), slices) * ok
    goal[goal.sum(axis=1) <= 0.0] = ok[goal.sum(axis=1) <= 0.0]
    goal /= goal.sum(axis=1, keepdims=True)
    rate = rng.uniform(1.0, 10.0, slices)
    share = rng.dirichlet(np.ones(KERNELS))
    factor = 1.2 if ample else draw(st.sampled_from([0.4, 0.8, 1.2, 3.0]))
    return Fleet(
        goal=np.concatenate([goal, np.zeros((slices, 1))], axis=1),
        ok=ok,
        rate=rate,
        capacity=share * rate.sum() * factor + 0.05,
        order=rng.permutation(slices),
    )


@given(fleets())
def test_filling_serves_the_lexicographic_optimum(fleet: Fleet) -> None:
    """Where no rerouting is left undone, every row is served as much as linear programming says can be."""
    table, _, helps = fleet.filled()
    assume(not helps)
    best = served(fleet.goal, fleet.ok, fleet.rate, fleet.capacity, fleet.order)
    np.testing.assert_allclose(table[:, :-1].sum(axis=1), best, atol=CLOSE)


@given(fleets())
def test_the_exact_solver_serves_the_lexicographic_optimum(fleet: Fleet) -> None:
    """And no kernel carries more than it can, no row sums to anything but 1."""
    table = solve_exactly(fleet.goal, fleet.ok, fleet.rate, fleet.capacity, fleet.order)
    best = served(fleet.goal, fleet.ok, fleet.rate, fleet.capacity, fleet.order)
    np.testing.assert_allclose(table[:, :-1].sum(axis=1), best, atol=CLOSE)
    assert (fleet.rate @ table[:, :-1] <= fleet.capacity * (1.0 + 1e-9)).all()
    assert (table[:, :-1][~fleet.ok] == 0.0).all()
    np.testing.assert_allclose(table.sum(axis=1), 1.0, atol=1e-12)


@given(fleets(slices=1))
def test_a_row_alone_is_the_nearest_in_the_stated_norm(fleet: Fleet) -> None:
    """Of all rows that fit and serve as much, SLSQP finds none nearer in sum (w - t)**2 / t; that is over
    the kernels that the row asks for, where those can carry it.
    """
    table, spill, _ = fleet.filled()
    goal, room = fleet.goal[0, :-1], np.minimum(fleet.capacity / fleet.rate[0], 1.0)
    used = goal > 1e-6
    assume(spill[0] <= 1e-9 and room[used].sum() >= 1.0)
    aim, bound = goal[used], room[used]
    start = bound / bound.sum()
    found = minimize(
        lambda w: ((w - aim) ** 2 / aim).sum(), start, jac=lambda w: 2.0 * (w - aim) / aim, method="SLSQP",
        bounds=[(0.0, limit) for limit in bound], options={"maxiter": 500, "ftol": 1e-14},
        constraints={"type": "eq", "fun": lambda w: w.sum() - goal[used].sum(), "jac": np.ones_like},
    )  # fmt: skip
    np.testing.assert_allclose(table[0, :-1][used], found.x, atol=1e-4)


@given(fleets(ample=True, open_=True))
def test_no_table_that_fits_moves_fewer_requests(fleet: Fleet) -> None:
    """Where every kernel is open and all fits, linear programming finds no table that moves fewer."""
    table, spill, _ = fleet.filled()
    np.testing.assert_allclose(spill, 0.0, atol=1e-9)
    moved = (np.abs(table - fleet.goal)[:, :-1].sum(axis=1) * fleet.rate).sum() / 2.0
    np.testing.assert_allclose(moved, _fewest_moved(fleet), atol=CLOSE)


def _fewest_moved(fleet: Fleet) -> float:
    """Requests per second that must move, by a linear program over weights and gains."""
    slices, kernels = fleet.ok.shape
    cells = slices * kernels
    goal = fleet.goal[:, :-1].ravel()
    by_row = np.kron(np.eye(slices), np.ones(kernels))
    none = np.zeros((kernels, cells))
    found = linprog(
        np.concatenate([np.zeros(cells), np.repeat(fleet.rate, kernels)]),
        A_ub=np.block([[np.kron(fleet.rate, np.eye(kernels)), none], [np.eye(cells), -np.eye(cells)]]),
        b_ub=np.concatenate([fleet.capacity, goal]),
        A_eq=np.hstack([by_row, np.zeros((slices, cells))]), b_eq=np.ones(slices),
        bounds=[(0.0, 1.0)] * (2 * cells), method="highs",
    )  # fmt: skip
    return float(found.fun)


@settings(max_examples=25)
@given(fleets())
def test_the_exact_solver_finds_the_nearest_table(fleet: Fleet) -> None:
    """Of all tables that fit and serve as much, SLSQP finds none nearer in the Euclidean norm."""
    table = solve_exactly(fleet.goal, fleet.ok, fleet.rate, fleet.capacity, fleet.order)[:, :-1]
    best, goal = table.sum(axis=1), fleet.goal[:, :-1]
    shape = fleet.ok.shape
    found = minimize(
        lambda w: 0.5 * ((w.reshape(shape) - goal) ** 2).sum(), table.ravel(), method="SLSQP",
        jac=lambda w: (w.reshape(shape) - goal).ravel(), options={"maxiter": 300, "ftol": 1e-12},
        bounds=[(0.0, 1.0 if allowed else 0.0) for allowed in fleet.ok.ravel()],
        constraints=[
            {"type": "eq", "fun": lambda w: w.reshape(shape).sum(axis=1) - best},
            {"type": "ineq", "fun": lambda w: fleet.capacity - fleet.rate @ w.reshape(shape)},
        ],
    )  # fmt: skip
    np.testing.assert_allclose(table, found.x.reshape(shape), atol=2e-4)


@settings(max_examples=25)
@given(fleets(), st.permutations(range(KERNELS)))
def test_the_exact_solver_knows_no_numbers_of_kernels(fleet: Fleet, order: list[int]) -> None:
    """Permuting kernels permutes its table: the nearest one is unique."""
    plain = solve_exactly(fleet.goal, fleet.ok, fleet.rate, fleet.capacity, fleet.order)
    columns = [*order, KERNELS]
    got = solve_exactly(
        fleet.goal[:, columns], fleet.ok[:, order], fleet.rate, fleet.capacity[order], fleet.order
    )
    np.testing.assert_allclose(got, plain[:, columns], atol=1e-5)
