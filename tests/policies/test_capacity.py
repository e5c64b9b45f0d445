"""Laws of moves that respect capacity."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from contracts.compiled import Level
from controller.ports import Observation, PolicyState, Proposal
from policies.capacity import Headroom, capacity_memory, fit_capacity
from tests.builders import make_fleet, make_layout
from tests.policies.seen import calm, ill

LAYOUT = make_layout(kernels=3, slices=3, per_kernel=1)
FLEET = make_fleet(LAYOUT, capacity_rps=np.array([100.0, 50.0, 20.0]))
PRIORITY = np.array([1, 3, 2])


def fit(
    seen: Observation, wanted: np.ndarray, memory: PolicyState | None = None
) -> tuple[Proposal, PolicyState]:
    """``fit_capacity`` with kernel 2 before 1 before 0."""
    rank = np.tile(np.array([3.0, 2.0, 1.0]), (len(seen.now_s), 3, 1))
    return fit_capacity(wanted, rank, seen, memory or capacity_memory(1, 3, 3), PRIORITY, Headroom())


def all_on(kernel: int) -> np.ndarray:
    """Every slice on ``kernel``."""
    wanted = np.zeros((1, 3, 4))
    wanted[:, :, kernel] = 1.0
    return wanted


@given(st.integers(0, 2**32 - 1))
def test_rows_stay_distributions_and_room_is_used(seed: int) -> None:
    """Rows sum to 1, shed is untouched, and no kernel is overfilled while another has room."""
    rng = np.random.Generator(np.random.PCG64(seed))
    wanted = rng.dirichlet(np.ones(4), (1, 3))
    seen = calm(FLEET, offered_rps=rng.uniform(0.0, 80.0, (1, 3)))
    table = fit(seen, wanted)[0].table
    np.testing.assert_allclose(table.sum(axis=2), 1.0, atol=1e-9)
    assert (table >= 0.0).all()
    np.testing.assert_array_equal(table[..., 3], wanted[..., 3])
    load = (table[0, :, :3] * seen.offered_rps[0, :, None]).sum(axis=0)
    room = 0.9 * seen.capacity_rps[0]
    if (load > room + 1e-6).any():
        assert (load >= room - 1e-6).all()


def test_the_first_plan_of_a_table_in_force_is_for_capacity() -> None:
    """Spilling from what is in force already is a move for capacity, also when it is the first plan."""
    rates = np.full((1, 3), 60.0)
    at_home = replace(calm(FLEET, offered_rps=rates), table=all_on(0))
    for wanted, expected in ((all_on(0), True), (all_on(1), False)):
        proposal, _ = fit(at_home, wanted)
        assert proposal.capacity_only is not None
        assert proposal.capacity_only.tolist() == [expected]


def test_what_fits_is_not_touched() -> None:
    """A wanted table within capacity is proposed bit for bit."""
    wanted = all_on(0)
    np.testing.assert_array_equal(fit(calm(FLEET), wanted)[0].table, wanted)


def test_spill_goes_to_the_next_best_and_the_important_slice_stays() -> None:
    """With 60 rps for a kernel of 45, the slice of highest priority stays whole and the last one spills."""
    seen = calm(FLEET, offered_rps=np.full((1, 3), 20.0))
    table = fit(seen, all_on(1))[0].table[0]
    np.testing.assert_allclose(table[1], [0.0, 1.0, 0.0, 0.0])
    np.testing.assert_allclose(table[2], [0.0, 1.0, 0.0, 0.0])
    np.testing.assert_allclose(table[0], [0.0, 0.25, 0.75, 0.0])


def test_a_settled_plan_does_not_follow_the_load() -> None:
    """Load that wobbles within capacity moves nothing; overload does, after a while, flagged as such."""
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
    """When what is wanted changes, the proposal is not flagged."""
    _, memory = fit(calm(FLEET), all_on(1))
    moved, _ = fit(ill(calm(FLEET, 1.0), 1, 0, Level.FALLBACK), all_on(2), memory)
    assert moved.capacity_only is not None
    assert not moved.capacity_only[0]


def test_nothing_spills_to_a_kernel_that_does_not_comply() -> None:
    """Rank infinity means never: the overload stays where it was wanted."""
    seen = calm(FLEET, offered_rps=np.full((1, 3), 60.0))
    rank = np.tile(np.array([np.inf, 1.0, np.inf]), (1, 3, 1))
    memory = capacity_memory(1, 3, 3)
    table = fit_capacity(all_on(1), rank, seen, memory, PRIORITY, replace(Headroom(), replan_s=1.0))[0].table
    np.testing.assert_allclose(table, all_on(1))
