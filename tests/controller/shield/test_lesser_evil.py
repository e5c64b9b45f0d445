"""The lesser evil: load beyond compliant capacity is served where soft clauses are only slightly broken."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from controller.fleet import Stage
from controller.shield.capacity import fill, rerouting_helps
from controller.shield.exact import place_exactly, served
from controller.shield.gate import Shielded
from controller.shield.lesser_evil import LEAST_GAIN, has_soft_cells, relent
from controller.shield.records import Facts, ShieldReason
from tests.support.fleets.shield_cases import CLOSE, KERNELS, SLICES, Case, cases
from tests.support.fleets.shield_records import blank_outcome, blank_work, make_facts


def with_losses(case: Case, seed: int, certified: float = 0.6) -> Case:
    """``case`` with random losses and few certified kernels; half of the losses are too large to serve."""
    rng = np.random.Generator(np.random.PCG64(seed))
    shape = case.view.certified.shape
    loss = np.where(
        rng.random(shape) < 0.5, rng.choice([0.0, 0.25, 0.75], shape), rng.uniform(0.1, 2.0, shape)
    )
    view = replace(case.view, loss=loss, certified=rng.random(shape) < certified)
    return replace(case, view=view)


def without_losses(case: Case) -> Shielded:
    """What the shield does where losses are unknown."""
    return replace(case, view=replace(case.view, loss=None)).shielded()


def soft(case: Case) -> np.ndarray:
    """bool [B, S, K]: alive, no hard violation, not certified, and an answer loses less than it is worth."""
    assert case.view.loss is not None
    broken = (~case.view.certified & ~case.view.hard_violated & (case.view.loss < 1.0)).transpose(0, 2, 1)
    return np.asarray(case.alive & broken & (case.stage == int(Stage.ACTIVE)))


lossy = st.builds(with_losses, cases(canaries=False, slow=False), st.integers(0, 2**32))


@given(st.builds(with_losses, cases(), st.integers(0, 2**32)))
def test_nothing_is_served_where_an_answer_is_worth_nothing(case: Case) -> None:
    """Weight lies on eligible and on soft cells, and where the contract chose the known-good kernel."""
    safe = case.shielded().table[..., :-1]
    wrong = (safe > 0.0) & ~case.eligible & ~soft(case)
    wrong[..., KERNELS - 1] &= ~case.no_target
    assert not wrong.any()


@given(lossy)
def test_where_nothing_is_shed_for_capacity_nothing_is_tolerated(case: Case) -> None:
    """Where no row is short of capacity the result is as if no loss were known, bit for bit."""
    without, found = without_losses(case), case.shielded()
    enough = ~((without.reason & ShieldReason.CAPACITY) > 0).any(axis=1)
    np.testing.assert_array_equal(found.table[enough], without.table[enough])
    assert not ((found.reason & ShieldReason.SOFT) > 0)[enough].any()


@given(lossy)
def test_the_first_row_that_changes_is_served_more(case: Case) -> None:
    """In priority order, the first row that the lesser evil changes is served more than without it."""
    order = np.argsort(-case.fleet.contract.priority, kind="stable")
    less = (case.shielded().table[..., -1] - without_losses(case).table[..., -1])[:, order]
    less = np.where((case.view.offered_rps[:, order] > 1e-3) & (np.abs(less) > 1e-5), less, 0.0)
    for row in less:
        changed = np.flatnonzero(row)
        assert changed.size == 0 or row[changed[0]] < 0.0


def passed_over(case: Case, most_rps: np.ndarray) -> bool:
    """Whether a row has weight on a soft cell while a compliant kernel has room below ``most_rps`` [B, K]."""
    safe = case.shielded().table
    room_rps = most_rps - case.loads(safe)
    rate = case.view.offered_rps[:, :, None]
    tolerated = ((safe[..., :-1] * rate > 1e-4) & soft(case) & ~case.eligible).any(axis=2)
    tolerated &= ~case.no_target
    return bool((tolerated[:, :, None] & case.eligible & (room_rps[:, None, :] > 1e-4)).any())


@given(lossy)
def test_a_compliant_kernel_with_headroom_below_comfort_comes_first(case: Case) -> None:
    """A row with weight on a soft cell has no headroom left below the comfort of any compliant kernel."""
    assert not passed_over(case, np.minimum(case.comfort_rps, case.limit_rps))


@settings(max_examples=1000)
@given(lossy)
def test_a_compliant_kernel_with_headroom_comes_first(case: Case) -> None:
    """A row with weight on a soft cell has no headroom left on any compliant kernel."""
    assert not passed_over(case, case.limit_rps)


@settings(max_examples=300)
@given(lossy)
def test_nothing_is_shed_that_a_cell_has_room_for(case: Case) -> None:
    """A row that sheds more than proposed has no headroom left on compliant kernels and on soft cells."""
    result = case.shielded()
    room_rps = case.limit_rps - case.loads(result.table)
    more = result.table[..., -1] - case.table[..., -1]
    shed = (more * case.view.offered_rps > 1e-4) & ~case.no_target
    assert not (shed[:, :, None] & (case.eligible | soft(case)) & (room_rps[:, None, :] > 1e-4)).any()


@given(lossy)
def test_no_kernel_carries_more_than_its_limit(case: Case) -> None:
    """Soft cells have the same limits as all others."""
    over = case.loads(case.shielded().table) - case.limit_rps
    assert (over <= case.minimum_share_rps()[:, None] + CLOSE).all()


@settings(max_examples=300)
@given(lossy)
def test_shielding_twice_is_shielding_once(case: Case) -> None:
    """A tolerated table is tolerated again, bit for bit."""
    once = case.shielded()
    np.testing.assert_array_equal(case.shielded(once.table).table, once.table)


def lost(case: Case, table: np.ndarray) -> np.ndarray:
    """float [B]: answers per second that ``table`` loses on soft cells."""
    assert case.view.loss is not None
    loss = np.where(soft(case) & ~case.eligible, case.view.loss.transpose(0, 2, 1), 0.0)
    return np.asarray((loss * table[..., :-1] * case.view.offered_rps[:, :, None]).sum(axis=(1, 2)))


@given(lossy, st.integers(0, 2**32))
def test_a_tolerated_table_gives_way_only_to_one_that_loses_less(case: Case, seed: int) -> None:
    """Under other losses of its soft cells it stands, or losses fall by a hundredth of the load."""
    once = case.shielded().table
    assert case.view.loss is not None
    rng = np.random.Generator(np.random.PCG64(seed))
    others = np.where(case.view.loss < 1.0, rng.random(case.view.loss.shape), case.view.loss)
    changed = replace(case, view=replace(case.view, loss=others))
    again = changed.shielded(once).table
    moved = (again != once).any(axis=(1, 2))
    gain_rps = lost(changed, once) - lost(changed, again)
    assert (gain_rps >= LEAST_GAIN * case.view.offered_rps.sum(axis=1) - CLOSE)[moved].all()


def facts_of(seed: int, slices: int = SLICES) -> tuple[Facts, np.ndarray]:
    """Random facts of a fleet short of capacity, and a target on its allowed cells."""
    rng = np.random.Generator(np.random.PCG64(seed))
    ok = rng.random((slices, KERNELS)) < 0.5
    ok[np.arange(slices), rng.integers(0, KERNELS, slices)] = True
    target = rng.dirichlet(np.full(KERNELS, 0.7), slices) * ok
    target[target.sum(axis=1) <= 0.0] = ok[target.sum(axis=1) <= 0.0]
    target = np.concatenate([target / target.sum(axis=1, keepdims=True), np.zeros((slices, 1))], axis=1)
    rate = rng.uniform(1.0, 10.0, slices)
    facts = make_facts(
        allowed=ok,
        offered_rps=rate,
        limit_rps=rng.dirichlet(np.ones(KERNELS)) * rate.sum() * 0.8 + 0.05,
        order=rng.permutation(slices),
        most_canary=1.0,
        loss=np.where(ok, 1.0, rng.uniform(0.1, 1.6, ok.shape)),
    )
    return facts, target


def relented(facts: Facts, target: np.ndarray) -> tuple[np.ndarray, bool]:
    """The table after filling and relenting, and whether a longer chain of moves could still serve more."""
    outcome, work = blank_outcome(facts), blank_work(facts)
    outcome.target[:], work.headroom_rps[:] = target, facts.limit_rps
    fill(facts, outcome, work)
    wide = relent(facts, outcome, work) if has_soft_cells(facts) else facts
    short = [at for at in range(len(facts.order)) if work.overflow[facts.order[at]] > 1e-9]
    return outcome.table, any(rerouting_helps(wide, outcome, work, at) for at in short)


@given(st.integers(0, 2**32))
def test_the_served_load_is_the_lexicographic_optimum_over_soft_cells_too(seed: int) -> None:
    """Linear programs over eligible and soft cells serve no row more, in the order of priority."""
    facts, target = facts_of(seed)
    table, helps = relented(facts, target)
    assume(not helps)
    wide = facts.allowed | (facts.loss < 1.0)
    best = served(target, wide, facts.offered_rps, facts.limit_rps, facts.order)
    np.testing.assert_allclose(table[:, :-1].sum(axis=1), best, atol=1e-5)
    assert (table[:, :-1][~wide] == 0.0).all()


@given(st.integers(0, 2**32))
def test_a_single_row_loses_the_least(seed: int) -> None:
    """A linear program that prices soft answers by their loss and shed ones at 1 finds nothing cheaper."""
    facts, target = facts_of(seed, slices=1)
    table, _ = relented(facts, target)
    price = np.concatenate([np.where(facts.allowed[0], 0.0, facts.loss[0]), [1.0]])
    most = np.minimum(facts.limit_rps / facts.offered_rps[0], 1.0)
    found = linprog(
        price,
        A_eq=np.ones((1, KERNELS + 1)),
        b_eq=[1.0],
        bounds=[*zip(0.0 * most, most, strict=True), (0.0, 1.0)],
    )
    assert price @ table[0] <= found.fun + 1e-6


@settings(max_examples=50)
@given(st.integers(0, 2**32))
def test_the_exact_solver_serves_as_much_and_prefers_compliance(seed: int) -> None:
    """It serves the optimum over compliant cells if that sheds nothing, else over soft cells too.

    It leaves no soft weight that a compliant kernel has headroom for.
    """
    facts, target = facts_of(seed)
    table = place_exactly(facts, target)
    narrow = served(target, facts.allowed, facts.offered_rps, facts.limit_rps, facts.order)
    wide = facts.allowed | (facts.loss < 1.0)
    best = served(target, wide, facts.offered_rps, facts.limit_rps, facts.order)
    enough = bool((narrow >= 1.0 - 1e-7).all())
    np.testing.assert_allclose(table[:, :-1].sum(axis=1), narrow if enough else best, atol=1e-5)
    room_rps = facts.limit_rps - facts.offered_rps @ table[:, :-1]
    tolerated = np.asarray(((table[:, :-1] > 1e-5) & ~facts.allowed).any(axis=1))
    assert not (tolerated[:, None] & facts.allowed & (room_rps > 1e-3)).any()
