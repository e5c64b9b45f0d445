"""Moves that respect capacity."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from contracts.compiled.contract import Level
from controller.ports import Observation, PolicyState, Proposal
from policies.rules.capacity import Headroom, capacity_memory, fit_capacity
from tests.support.fleets.builders import make_fleet, make_layout
from tests.support.fleets.seen import calm, unhealthy

LAYOUT = make_layout(kernels=3, slices=3, per_kernel=1)
FLEET = make_fleet(LAYOUT, capacity_rps=np.array([100.0, 50.0, 20.0]))
PRIORITY = np.array([1, 3, 2])


def fit(
    observation: Observation, wanted: np.ndarray, memory: PolicyState | None = None
) -> tuple[Proposal, PolicyState]:
    """``fit_capacity`` with kernel 2 before 1 before 0."""
    rank = np.tile(np.array([3.0, 2.0, 1.0]), (len(observation.now_s), 3, 1))
    return fit_capacity(wanted, rank, observation, memory or capacity_memory(1, 3, 3), PRIORITY, Headroom())


def all_on(kernel: int) -> np.ndarray:
    """Every slice on ``kernel``."""
    wanted = np.zeros((1, 3, 4))
    wanted[:, :, kernel] = 1.0
    return wanted


@given(st.integers(0, 2**32 - 1))
def test_rows_stay_distributions_and_headroom_is_used(seed: int) -> None:
    """Rows sum to 1, shed is untouched, and no kernel is overfilled while another has headroom."""
    rng = np.random.Generator(np.random.PCG64(seed))
    wanted = rng.dirichlet(np.ones(4), (1, 3))
    seen = calm(FLEET, offered_rps=rng.uniform(0.0, 80.0, (1, 3)))
    table = fit(seen, wanted)[0].table
    np.testing.assert_allclose(table.sum(axis=2), 1.0, atol=1e-9)
    assert (table >= 0.0).all()
    np.testing.assert_array_equal(table[..., 3], wanted[..., 3])
    load = (table[0, :, :3] * seen.offered_rps[0, :, None]).sum(axis=0)
    headroom_rps = 0.9 * seen.capacity_rps[0]
    if (load > headroom_rps + 1e-6).any():
        assert (load >= headroom_rps - 1e-6).all()


def test_the_first_plan_of_a_table_in_force_is_for_capacity() -> None:
    """Overflow from the table in force is a move for capacity, also in the first plan."""
    rates = np.full((1, 3), 60.0)
    at_home = replace(calm(FLEET, offered_rps=rates), table=all_on(0))
    for wanted, expected in ((all_on(0), True), (all_on(1), False)):
        proposal, _ = fit(at_home, wanted)
        assert proposal.capacity_only is not None
        assert proposal.capacity_only.tolist() == [expected]


def test_a_move_is_planned_against_the_lower_limit_of_capacity() -> None:
    """Overflow is computed against the lower limit, whatever the best estimate of a capacity is."""
    seen = calm(FLEET, offered_rps=np.full((1, 3), 10.0), sure_rps=np.array([[100.0, 20.0, 20.0]]))
    table = fit(seen, all_on(1))[0].table
    assert (table[0, :, 1] * 10.0).sum() <= 0.9 * 20.0 + 1e-9
    assert fit(replace(seen, sure_rps=seen.capacity_rps), all_on(1))[0].table.tolist() == all_on(1).tolist()


def test_a_table_within_capacity_is_unchanged() -> None:
    """A wanted table within capacity is proposed bit for bit."""
    wanted = all_on(0)
    np.testing.assert_array_equal(fit(calm(FLEET), wanted)[0].table, wanted)


def test_overflow_goes_to_the_next_best_and_the_important_slice_stays() -> None:
    """With 60 rps for a kernel of 45 the slice of highest priority stays whole; the lowest overflows."""
    seen = calm(FLEET, offered_rps=np.full((1, 3), 20.0))
    table = fit(seen, all_on(1))[0].table[0]
    np.testing.assert_allclose(table[1], [0.0, 1.0, 0.0, 0.0])
    np.testing.assert_allclose(table[2], [0.0, 1.0, 0.0, 0.0])
    np.testing.assert_allclose(table[0], [0.0, 0.25, 0.75, 0.0])


def test_a_settled_plan_does_not_follow_the_load() -> None:
    """Load changes within capacity move nothing; overload does after a while, and is marked as such."""
    first, memory = fit(calm(FLEET, offered_rps=np.full((1, 3), 10.0)), all_on(1))
    wobble, memory = fit(calm(FLEET, 100.0, offered_rps=np.full((1, 3), 16.0)), all_on(1), memory)
    np.testing.assert_array_equal(wobble.table, first.table)
    over, memory = fit(calm(FLEET, 101.0, offered_rps=np.full((1, 3), 20.0)), all_on(1), memory)
    assert (over.table != first.table).any()
    assert over.capacity_only is not None
    assert over.capacity_only[0]
    held, memory = fit(calm(FLEET, 110.0, offered_rps=np.full((1, 3), 5.0)), all_on(1), memory)
    np.testing.assert_array_equal(held.table, over.table)
    back, _ = fit(calm(FLEET, 140.0, offered_rps=np.full((1, 3), 5.0)), all_on(1), memory)
    np.testing.assert_array_equal(back.table, all_on(1))


def test_a_move_for_health_is_not_a_capacity_move() -> None:
    """When the wanted table changes, the proposal is not marked."""
    _, memory = fit(calm(FLEET), all_on(1))
    moved, _ = fit(unhealthy(calm(FLEET, 1.0), 1, 0, Level.FALLBACK), all_on(2), memory)
    assert moved.capacity_only is not None
    assert not moved.capacity_only[0]


def test_nothing_overflows_to_a_kernel_that_does_not_comply() -> None:
    """Infinite rank means never: the overload stays where it was wanted."""
    seen = calm(FLEET, offered_rps=np.full((1, 3), 60.0))
    rank = np.tile(np.array([np.inf, 1.0, np.inf]), (1, 3, 1))
    memory = capacity_memory(1, 3, 3)
    table = fit_capacity(all_on(1), rank, seen, memory, PRIORITY, replace(Headroom(), replan_s=1.0))[0].table
    np.testing.assert_allclose(table, all_on(1))


def random_ask(seed: int, kernels: int = 5, slices: int = 4) -> tuple[Observation, np.ndarray, np.ndarray]:
    """A fleet with some dead kernels, a wanted table with empty cells, and distinct ranks, some infinite."""
    rng = np.random.Generator(np.random.PCG64(seed))
    capacity = rng.uniform(1.0, 100.0, kernels) * (rng.random(kernels) > 0.2)
    fleet = make_fleet(make_layout(kernels=kernels, slices=slices, per_kernel=1))
    offered = rng.uniform(0.0, 60.0, (1, slices)) * (rng.random((1, slices)) > 0.1)
    seen = calm(fleet, offered_rps=offered, capacity_rps=capacity[None])
    rank = rng.permuted(np.tile(np.arange(kernels, dtype=np.float64), (slices, 1)), axis=1)
    wanted = rng.dirichlet(np.full(kernels + 1, 0.3), slices)
    wanted = np.where((wanted < 0.02) & (wanted < wanted.max(axis=1, keepdims=True)), 0.0, wanted)
    wanted /= wanted.sum(axis=1, keepdims=True)
    return seen, wanted[None], np.where(rng.random(rank.shape) < 0.3, np.inf, rank)[None]


def plan(
    observation: Observation, wanted: np.ndarray, rank: np.ndarray, fill_ratio: float = 0.9
) -> np.ndarray:
    """The first plan, float64 [S, K + 1]; slices of lower number first."""
    _, slices, width = wanted.shape
    memory, priority = capacity_memory(1, slices, width - 1), -np.arange(slices)
    headroom_rps = Headroom(fill_ratio=fill_ratio)
    return np.asarray(fit_capacity(wanted, rank, observation, memory, priority, headroom_rps)[0].table[0])


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.9]))
def test_load_that_fits_nowhere_is_not_lost(seed: int, fill_ratio: float) -> None:
    """However little fits, rows sum to 1, shedding is as wanted, and only kernels with a rank gain."""
    seen, wanted, rank = random_ask(seed)
    table = plan(seen, wanted, rank, fill_ratio)
    np.testing.assert_allclose(table.sum(axis=1), 1.0, atol=1e-8)
    assert (table >= 0.0).all()
    np.testing.assert_array_equal(table[:, -1], wanted[0, :, -1])
    assert not table[:, :-1][np.isinf(rank[0]) & (wanted[0, :, :-1] == 0.0)].any()


@given(st.integers(0, 2**32 - 1))
def test_a_dead_kernel_gets_nothing_where_another_lives(seed: int) -> None:
    """Offered traffic goes to no kernel without capacity, unless the slice may use no other."""
    seen, wanted, rank = random_ask(seed)
    table = plan(seen, wanted, rank)
    alive = seen.capacity_rps[0] > 0.0
    may_use = np.isfinite(rank[0]) | (wanted[0, :, :-1] > 0.0)
    for s in np.flatnonzero((seen.offered_rps[0] > 0.0) & (may_use & alive).any(axis=1)):
        assert not table[s, :-1][~alive].any()


@given(st.integers(0, 2**32 - 1))
def test_load_that_fits_nowhere_is_levelled(seed: int) -> None:
    """No slice overfills a kernel while another that it may use has a lower load over capacity."""
    seen, wanted, rank = random_ask(seed)
    table = plan(seen, wanted, rank, fill_ratio=0.0)  # so that nothing fits anywhere
    load, capacity = seen.offered_rps[0] @ table[:, :-1], seen.capacity_rps[0]
    ratio = np.where(capacity > 0.0, load / np.maximum(capacity, 1e-9), np.inf)
    may_use = (np.isfinite(rank[0]) | (wanted[0, :, :-1] > 0.0)) & (capacity > 0.0)
    for s in np.flatnonzero((seen.offered_rps[0] > 0.0) & may_use.any(axis=1)):
        used = table[s, :-1] * seen.offered_rps[0, s] > 1e-4
        assert ratio[used].max(initial=0.0) <= ratio[may_use[s]].min() + 1e-4


@given(st.integers(0, 2**32 - 1))
def test_overload_is_shared_by_all_that_may_carry_it(seed: int) -> None:
    """Where every slice may use every kernel, either none is overfull or all are, and equally."""
    seen, wanted, _ = random_ask(seed)
    rank = np.tile(np.arange(5.0), (1, 4, 1))
    load = seen.offered_rps[0] @ plan(seen, wanted, rank)[:, :-1]
    alive = seen.capacity_rps[0] > 0.0
    if alive.any():
        ratio = load[alive] / seen.capacity_rps[0][alive]
        assert ratio.max() <= 0.9 + 1e-6 or np.ptp(ratio) < 1e-6


@given(st.integers(0, 2**32 - 1), st.permutations(range(5)))
def test_the_order_of_kernels_does_not_matter(seed: int, order: list[int]) -> None:
    """With distinct ranks, permuted kernels give the permuted table."""
    seen, wanted, rank = random_ask(seed)
    turned = replace(
        seen,
        capacity_rps=seen.capacity_rps[:, order],
        sure_rps=seen.sure_rps[:, order],
        level=seen.level[:, order],
        certified=seen.certified[:, order],
    )
    table = plan(turned, wanted[:, :, [*order, 5]], rank[:, :, order])
    np.testing.assert_allclose(table, plan(seen, wanted, rank)[:, [*order, 5]], atol=1e-5)


def after_plan(planned: np.ndarray, wanted: np.ndarray) -> PolicyState:
    """Memory of a plan that was made for ``wanted`` at 0 s."""
    memory = capacity_memory(1, wanted.shape[1], wanted.shape[2] - 1)
    return {**memory, "wanted": wanted, "planned": planned, "planned_at_s": np.zeros(1)}


@given(st.integers(0, 2**32 - 1), st.integers(0, 4))
def test_a_plan_is_not_kept_for_a_replica_that_left(seed: int, kernel: int) -> None:
    """A replica that left is planned for at once, as the wait would end; a lower estimate waits, and so does
    what comes after the new plan.
    """
    seen, wanted, rank = random_ask(seed)
    both = replace(seen, ready=np.full_like(seen.ready, 2))
    memory = {**after_plan(plan(both, wanted, rank)[None], wanted), "served_by": both.ready}
    one = np.where(np.arange(5) == kernel, 1, 2)[None]
    half = both.capacity_rps * one / 2.0
    lower = replace(both, now_s=np.ones(1), capacity_rps=half, sure_rps=half)
    fewer = replace(lower, ready=one)

    def asked(now: Observation, state: PolicyState) -> tuple[Proposal, PolicyState]:
        return fit_capacity(wanted, rank, now, state, -np.arange(4), Headroom())

    np.testing.assert_array_equal(asked(lower, memory)[0].table, memory["planned"])
    waited, _ = asked(replace(lower, now_s=np.full(1, 30.0)), memory)
    proposal, after = asked(fewer, memory)
    np.testing.assert_array_equal(proposal.table, waited.table)
    if not np.array_equal(proposal.table, memory["planned"]):
        more = replace(fewer, now_s=np.full(1, 2.0), offered_rps=2.0 * fewer.offered_rps)
        np.testing.assert_array_equal(asked(more, after)[0].table, proposal.table)


@given(st.integers(0, 2**32 - 1), st.lists(st.booleans(), min_size=4, max_size=4))
def test_kept_rows_that_can_be_carried_are_kept(seed: int, kept: list[bool]) -> None:
    """While other rows change, kept rows stay as planned, unless their own load overfills a kernel."""
    seen, wanted, rank = random_ask(seed)
    planned = plan(seen, wanted, rank)
    memory = {**after_plan(planned[None], wanted), "served_by": seen.ready}
    other, rows = random_ask(seed + 1)[1], np.array(kept)
    changed = np.where(rows[:, None], wanted[0], other[0])[None]
    proposal, after = fit_capacity(changed, rank, seen, memory, -np.arange(4), Headroom(), rows[None])
    held = (seen.offered_rps[0] * rows) @ planned[:, :-1]
    if (held <= seen.capacity_rps[0]).all() and not rows.all():
        np.testing.assert_array_equal(proposal.table[0, rows], planned[rows])
    np.testing.assert_array_equal(after["wanted"], changed)
    np.testing.assert_allclose(proposal.table.sum(axis=2), 1.0, atol=1e-8)


def test_a_plan_without_room_stays_unless_another_is_clearly_better() -> None:
    """A fleet that is too small keeps its overfull table while load wobbles, and leaves it for a better."""
    first = calm(FLEET, offered_rps=np.full((1, 3), 80.0))
    proposal, memory = fit(first, all_on(0))
    for step, factor in enumerate((1.03, 0.97, 1.02)):
        wobble = replace(first, now_s=first.now_s + 40.0 * (step + 1), offered_rps=first.offered_rps * factor)
        again, memory = fit(replace(wobble, table=proposal.table), all_on(0), memory)
        np.testing.assert_array_equal(again.table, proposal.table)
    other = np.array([[150.0, 50.0, 2.0]])
    now_s = first.now_s + 400.0
    changed = replace(first, now_s=now_s, table=proposal.table, capacity_rps=other, sure_rps=other)
    assert not np.array_equal(fit(changed, all_on(0), memory)[0].table, proposal.table)
