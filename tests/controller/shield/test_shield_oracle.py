"""Water-filling and the exact solver against reference solvers, SLSQP and HiGHS, on small random fleets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize

from controller.shield.capacity import fill, rerouting_helps
from controller.shield.exact import served, solve_exactly
from tests.support.fleets.shield_records import blank_outcome, blank_work, make_facts

KERNELS, SLICES = 4, 3
CLOSE = 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """A fleet to be filled."""

    target: np.ndarray  #: [S, K + 1]
    allowed: np.ndarray  #: bool [S, K]
    offered_rps: np.ndarray  #: [S]
    limit_rps: np.ndarray  #: [K]
    order: np.ndarray  #: [S], highest priority first

    def filled(self) -> tuple[np.ndarray, np.ndarray, bool]:
        """Table of water-filling, what it shed, and whether rerouting could still help."""
        facts = make_facts(
            allowed=self.allowed,
            offered_rps=self.offered_rps,
            limit_rps=self.limit_rps,
            order=self.order,
            most_canary=1.0,
        )
        outcome, work = blank_outcome(facts), blank_work(facts)
        outcome.target[:] = self.target
        work.headroom_rps[:] = self.limit_rps
        fill(facts, outcome, work)
        helps = [
            bool(rerouting_helps(facts, outcome, work, at))
            for at in range(len(self.order))
            if work.overflow[self.order[at]] > 1e-9
        ]
        return outcome.table, work.overflow, any(helps)


@st.composite
def fleets(draw: st.DrawFn, *, slices: int = SLICES, ample: bool = False, open_: bool = False) -> Fleet:
    """Random targets on allowed cells; ``ample``: everything fits, if not where it was proposed."""
    rng = np.random.Generator(np.random.PCG64(draw(st.integers(0, 2**32))))
    ok = np.ones((slices, KERNELS), dtype=np.bool_) if open_ else rng.random((slices, KERNELS)) < 0.6
    ok[np.arange(slices), rng.integers(0, KERNELS, slices)] = True
    target = rng.dirichlet(np.full(KERNELS, 0.7), slices) * ok
    target[target.sum(axis=1) <= 0.0] = ok[target.sum(axis=1) <= 0.0]
    target /= target.sum(axis=1, keepdims=True)
    rate = rng.uniform(1.0, 10.0, slices)
    share = rng.dirichlet(np.ones(KERNELS))
    factor = 1.2 if ample else draw(st.sampled_from([0.4, 0.8, 1.2, 3.0]))
    return Fleet(
        target=np.concatenate([target, np.zeros((slices, 1))], axis=1),
        allowed=ok,
        offered_rps=rate,
        limit_rps=share * rate.sum() * factor + 0.05,
        order=rng.permutation(slices),
    )


@given(fleets())
def test_filling_serves_the_lexicographic_optimum(fleet: Fleet) -> None:
    """Where no rerouting is left, every row is served as much as linear programming can."""
    table, _, helps = fleet.filled()
    assume(not helps)
    best = served(fleet.target, fleet.allowed, fleet.offered_rps, fleet.limit_rps, fleet.order)
    np.testing.assert_allclose(table[:, :-1].sum(axis=1), best, atol=CLOSE)


@given(fleets())
def test_the_exact_solver_serves_the_lexicographic_optimum(fleet: Fleet) -> None:
    """No kernel exceeds its limit, and every row sums to 1."""
    table = solve_exactly(fleet.target, fleet.allowed, fleet.offered_rps, fleet.limit_rps, fleet.order)
    best = served(fleet.target, fleet.allowed, fleet.offered_rps, fleet.limit_rps, fleet.order)
    np.testing.assert_allclose(table[:, :-1].sum(axis=1), best, atol=CLOSE)
    assert (fleet.offered_rps @ table[:, :-1] <= fleet.limit_rps * (1.0 + 1e-9)).all()
    assert (table[:, :-1][~fleet.allowed] == 0.0).all()
    np.testing.assert_allclose(table.sum(axis=1), 1.0, atol=1e-12)


@given(fleets(slices=1))
def test_a_single_row_is_the_nearest_in_the_stated_norm(fleet: Fleet) -> None:
    """Of all rows that fit and serve as much, SLSQP finds none nearer in sum (w - t)**2 / t.

    The norm is over the proposed kernels, where those can carry the row.
    """
    table, overflow, _ = fleet.filled()
    target, headroom_rps = fleet.target[0, :-1], np.minimum(fleet.limit_rps / fleet.offered_rps[0], 1.0)
    used = target > 1e-6
    assume(overflow[0] <= 1e-9 and headroom_rps[used].sum() >= 1.0)
    aim, bound = target[used], headroom_rps[used]
    start = bound / bound.sum()
    found = minimize(
        lambda w: ((w - aim) ** 2 / aim).sum(),
        start,
        jac=lambda w: 2.0 * (w - aim) / aim,
        method="SLSQP",
        bounds=[(0.0, limit) for limit in bound],
        options={"maxiter": 500, "ftol": 1e-14},
        constraints={"type": "eq", "fun": lambda w: w.sum() - target[used].sum(), "jac": np.ones_like},
    )
    np.testing.assert_allclose(table[0, :-1][used], found.x, atol=1e-4)


@given(fleets(ample=True, open_=True))
def test_no_table_that_fits_moves_fewer_requests(fleet: Fleet) -> None:
    """Where every kernel is open and all fits, linear programming finds no table that moves fewer."""
    table, overflow, _ = fleet.filled()
    np.testing.assert_allclose(overflow, 0.0, atol=1e-9)
    moved = (np.abs(table - fleet.target)[:, :-1].sum(axis=1) * fleet.offered_rps).sum() / 2.0
    np.testing.assert_allclose(moved, _fewest_moved(fleet), atol=CLOSE)


def _fewest_moved(fleet: Fleet) -> float:
    """Requests per second that must move, by a linear program over weights and gains."""
    slices, kernels = fleet.allowed.shape
    cells = slices * kernels
    target = fleet.target[:, :-1].ravel()
    by_row = np.kron(np.eye(slices), np.ones(kernels))
    none = np.zeros((kernels, cells))
    found = linprog(
        np.concatenate([np.zeros(cells), np.repeat(fleet.offered_rps, kernels)]),
        A_ub=np.block([[np.kron(fleet.offered_rps, np.eye(kernels)), none], [np.eye(cells), -np.eye(cells)]]),
        b_ub=np.concatenate([fleet.limit_rps, target]),
        A_eq=np.hstack([by_row, np.zeros((slices, cells))]),
        b_eq=np.ones(slices),
        bounds=[(0.0, 1.0)] * (2 * cells),
        method="highs",
    )
    return float(found.fun)


@settings(max_examples=25)
@given(fleets())
def test_the_exact_solver_finds_the_nearest_table(fleet: Fleet) -> None:
    """Of all tables that fit and serve as much, SLSQP finds none nearer in the Euclidean norm."""
    table = solve_exactly(fleet.target, fleet.allowed, fleet.offered_rps, fleet.limit_rps, fleet.order)[
        :, :-1
    ]
    best, target = table.sum(axis=1), fleet.target[:, :-1]
    shape = fleet.allowed.shape
    found = minimize(
        lambda w: 0.5 * ((w.reshape(shape) - target) ** 2).sum(),
        table.ravel(),
        method="SLSQP",
        jac=lambda w: (w.reshape(shape) - target).ravel(),
        options={"maxiter": 300, "ftol": 1e-12},
        bounds=[(0.0, 1.0 if allowed else 0.0) for allowed in fleet.allowed.ravel()],
        constraints=[
            {"type": "eq", "fun": lambda w: w.reshape(shape).sum(axis=1) - best},
            {"type": "ineq", "fun": lambda w: fleet.limit_rps - fleet.offered_rps @ w.reshape(shape)},
        ],
    )
    np.testing.assert_allclose(table, found.x.reshape(shape), atol=2e-4)


@settings(max_examples=25)
@given(fleets(), st.permutations(range(KERNELS)))
def test_the_exact_solver_does_not_depend_on_the_order_of_kernels(fleet: Fleet, order: list[int]) -> None:
    """Permuting kernels permutes its table: the nearest one is unique."""
    plain = solve_exactly(fleet.target, fleet.allowed, fleet.offered_rps, fleet.limit_rps, fleet.order)
    columns = [*order, KERNELS]
    got = solve_exactly(
        fleet.target[:, columns],
        fleet.allowed[:, order],
        fleet.offered_rps,
        fleet.limit_rps[order],
        fleet.order,
    )
    np.testing.assert_allclose(got, plain[:, columns], atol=1e-5)
