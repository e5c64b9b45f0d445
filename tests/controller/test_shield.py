"""Laws of the shield, over every table and every state of knowledge."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.setup import ShieldLimits, Stage
from controller.shield import Reason, ShieldView, may_move, normalise, shield
from tests.builders import make_contract, make_fleet
from tests.shield_cases import (
    CLOSE,
    KERNELS,
    KNOWN_GOOD,
    LAYOUT,
    SLICES,
    Case,
    cases,
    random_table,
    with_hard,
)


@given(cases())
def test_rows_sum_to_one(case: Case) -> None:
    """Whatever is changed, every row is a distribution over kernels and shed."""
    safe = case.shielded().table
    assert (safe >= -1e-15).all()
    np.testing.assert_allclose(safe.sum(axis=2), 1.0, atol=1e-9)


@given(cases())
def test_forbidden_cells_are_zero(case: Case) -> None:
    """No weight where a hard clause is violated, certification or replicas are missing, or in shadow; but
    where no certified kernel lives the contract may serve from the known-good one, if that is up.
    """
    safe = case.shielded().table[..., :-1]
    wrong = (safe > 0.0) & ~case.sound
    by_contract = case.dark & ~np.array(case.fleet.contract.shed_when_uncertified)
    known_good_up = case.view.ready[:, None, KNOWN_GOOD] > 0
    assert not wrong[..., :KNOWN_GOOD].any()
    assert not (wrong[..., KNOWN_GOOD] & ~(by_contract & known_good_up)).any()


@given(cases())
def test_never_an_empty_pool_while_a_certified_kernel_lives(case: Case) -> None:
    """A row with a certified kernel is never shed whole, however short capacity is."""
    served = case.shielded().table[..., :-1].sum(axis=2)
    assert (served[~case.dark] >= 0.01 - 1e-9).all()


@given(cases())
def test_where_no_certified_kernel_lives_the_contract_chooses(case: Case) -> None:
    """Such a row is shed, or served by the known-good kernel as far as that carries it."""
    safe = case.shielded().table
    rows = safe[case.dark]
    if case.fleet.contract.shed_when_uncertified:
        assert (rows[:, -1] == 1.0).all()
    np.testing.assert_allclose(rows[:, KNOWN_GOOD] + rows[:, -1], 1.0, atol=1e-9)
    roomy = replace(case, view=replace(case.view, offered_rps=np.zeros_like(case.view.offered_rps)))
    up = case.dark & (case.view.ready[:, None, KNOWN_GOOD] > 0)
    if not case.fleet.contract.shed_when_uncertified:
        assert (roomy.shielded().table[up][:, KNOWN_GOOD] == 1.0).all()


@given(cases())
def test_no_kernel_carries_more_than_its_limit(case: Case) -> None:
    """Load over the limit is at most what keeps pools from being empty."""
    safe = case.shielded().table
    over = case.loads(safe) - case.limit_rps
    assert (over <= case.trickle_rps()[:, None] + CLOSE).all()


@settings(max_examples=300)
@given(cases())
def test_shielding_twice_is_shielding_once(case: Case) -> None:
    """The result is allowed, so it comes back bit for bit, and nothing is said to have been done."""
    once = case.shielded()
    again = case.shielded(once.table)
    np.testing.assert_array_equal(again.table, once.table)
    assert not again.reason.any()
    assert not again.size.any()


def allowed(case: Case, table: np.ndarray) -> np.ndarray:
    """bool [B]: the rules that need no solver, written down independently; fewer tables than are allowed."""
    kernels = table[..., :-1]
    clean = ~((kernels > 0.0) & ~case.sound).any(axis=(1, 2)) & ~case.dark.any(axis=1)
    served = (table[..., -1] <= case.limits.max_shed_ratio).all(axis=1)
    fits = (case.loads(table) <= case.limit_rps).all(axis=1)
    canary = case.sound & (case.stage == int(Stage.CANARY))
    low, high = case.limits.canary_least_ratio, case.limits.canary_most_ratio
    bounded = (~canary | ((kernels >= low) & (kernels <= high))).all(axis=(1, 2))
    leaving = np.maximum(case.view.last - table, 0.0)
    leaving[..., :-1] *= case.sound
    leaving[..., -1] = 0.0
    moved = leaving.sum(axis=2)
    slow = np.where(case.view.may_move, moved <= case.limits.max_move_ratio, moved <= 0.0).all(axis=1)
    return np.asarray(clean & served & fits & bounded & slow)


@given(cases())
def test_an_allowed_table_is_untouched(case: Case) -> None:
    """A table that keeps every rule, as written down here once more, comes back bit for bit."""
    for table in (case.table, case.view.last, case.shielded().table):
        fine = allowed(case, table)
        np.testing.assert_array_equal(case.shielded(table).table[fine], table[fine])


@given(cases())
def test_a_result_without_excuse_keeps_every_rule(case: Case) -> None:
    """Where nobody is in the dark, no canary is there and capacity is ample, the result keeps all rules."""
    plain = replace(
        case,
        fleet=replace(case.fleet, stage=np.full(KERNELS, int(Stage.ACTIVE))),
        view=replace(case.view, offered_rps=np.zeros_like(case.view.offered_rps)),
    )
    safe = plain.shielded().table
    rounded = replace(
        plain, limits=replace(plain.limits, max_move_ratio=0.25 + 1e-9, max_shed_ratio=0.5 + 1e-9)
    )
    moved = np.maximum(plain.view.last - safe, 0.0)[..., :-1] * plain.sound
    still = replace(rounded.view, may_move=plain.view.may_move | (moved.sum(axis=2) < 1e-9))
    rows_dark = plain.dark.any(axis=1)
    assert allowed(replace(rounded, view=still), safe)[~rows_dark].all()


@given(cases(canaries=False, slow=False), st.integers(0, 2**32))
def test_more_violations_never_allow_what_fewer_forbade(case: Case, seed: int) -> None:
    """A table that the smaller set of hard violations forbids is forbidden by the larger one as well."""
    rng = np.random.Generator(np.random.PCG64(seed))
    more = with_hard(case, case.view.hard_violated | (rng.random(case.view.hard_violated.shape) < 0.3))
    lit = ~(case.dark | more.dark)[:, :, None]
    for table in (case.table, more.shielded().table, random_table(rng)):
        forbidden = ((table[..., :-1] > 0.0) & case.view.hard_violated.transpose(0, 2, 1) & lit).any(
            axis=(1, 2)
        )
        returned = (more.shielded(table).table == table).all(axis=(1, 2))
        assert not (forbidden & returned).any()


@given(cases(), st.permutations(range(KERNELS)))
def test_permuting_kernels_permutes_the_table(case: Case, order: list[int]) -> None:
    """The shield knows kernels by what is known of them, not by their numbers."""
    columns = [*order, KERNELS]
    view, fleet = case.view, case.fleet
    permuted = ShieldView(
        last=view.last[:, :, columns], hard_violated=view.hard_violated[:, order],
        certified=view.certified[:, order], ready=view.ready[:, order], offered_rps=view.offered_rps,
        may_move=view.may_move,
    )  # fmt: skip
    layout = replace(fleet.layout, known_good=order.index(KNOWN_GOOD))
    other = replace(fleet, layout=layout, stage=case.stage[order], capacity_rps=fleet.capacity_rps[order])
    got = shield(case.table[:, :, columns], permuted, other, case.limits).table
    np.testing.assert_allclose(got, case.shielded().table[:, :, columns], atol=CLOSE)


@given(cases())
def test_a_fleet_is_shielded_alone_as_in_a_batch(case: Case) -> None:
    """Results do not depend on the batch."""
    whole, one = case.shielded(), slice(1, 2)
    view = ShieldView(**{name: getattr(case.view, name)[one] for name in ShieldView.__slots__})
    alone = shield(case.table[one], view, case.fleet, case.limits)
    for name in ("table", "reason", "size", "fallback", "voluntary"):
        np.testing.assert_array_equal(getattr(alone, name), getattr(whole, name)[one])


@given(cases(slow=False, canaries=False))
def test_a_hard_move_is_done_at_once(case: Case) -> None:
    """Forbidden weight leaves in the same tick whether or not the row may move."""
    held = replace(case, view=replace(case.view, may_move=np.zeros_like(case.view.may_move)))
    gone = ~case.sound & ~case.dark[:, :, None]
    assert (held.shielded().table[..., :-1][gone] == 0.0).all()


def _plain(**changes: object) -> tuple[ShieldView, object]:
    fleet = make_fleet(LAYOUT, contract=make_contract(LAYOUT, priority=np.array([1, 2, 3])))
    last = np.zeros((1, SLICES, KERNELS + 1))
    last[:, :, 0] = 1.0
    view = ShieldView(
        last=last,
        hard_violated=np.zeros((1, KERNELS, SLICES), dtype=np.bool_),
        certified=np.ones((1, KERNELS, SLICES), dtype=np.bool_),
        ready=np.ones((1, KERNELS), dtype=np.int64),
        offered_rps=np.full((1, SLICES), 10.0),
        may_move=np.ones((1, SLICES), dtype=np.bool_),
    )
    return replace(view, **changes), fleet  # type: ignore[arg-type]


def test_what_the_policy_moves_takes_four_ticks() -> None:
    """A whole row moves in steps of a quarter, and each step says so."""
    view, fleet = _plain()
    wish = np.roll(view.last, 1, axis=2)
    for left in (0.75, 0.5, 0.25, 0.0):
        out = shield(wish, view, fleet, ShieldLimits())  # type: ignore[arg-type]
        np.testing.assert_allclose(out.table[0, :, 0], left)
        assert out.voluntary.all()
        assert (out.reason == (Reason.SLEW if left else 0)).all()
        view = replace(view, last=out.table)


def test_dwell_counts_from_the_begin_of_a_move() -> None:
    """A move may run for four ticks; then the row rests until 30 s after its begin."""
    began = np.array([[100.0]])
    moves = {
        after: bool(may_move(np.array([100.0 + after]), began, 1.0, ShieldLimits())) for after in range(40)
    }
    assert [after for after, may in moves.items() if may] == [0, 1, 2, 3, *range(30, 40)]


def test_short_capacity_sheds_the_lowest_priority_first() -> None:
    """With room for 15 of 30 requests/s, the highest keeps all, the middle half, the lowest a trickle."""
    view, fleet = _plain(ready=np.array([[1, 0, 0, 0]]))
    small = replace(fleet, capacity_rps=np.full(KERNELS, 12.0))  # type: ignore[type-var]
    out = shield(view.last, view, small, ShieldLimits())  # type: ignore[arg-type]
    np.testing.assert_allclose(out.table[0, :, -1], [0.99, 0.5, 0.0], atol=1e-9)
    assert out.reason[0, 0] & Reason.CAPACITY
    assert not out.fallback.any()


def test_a_row_shed_without_need_is_served_again() -> None:
    """A policy may shed half of a slice on purpose; the rest goes to where the slice was last."""
    view, fleet = _plain()
    wish = np.zeros_like(view.last)
    wish[:, :, -1] = 1.0
    out = shield(wish, view, fleet, ShieldLimits(max_move_ratio=1.0))  # type: ignore[arg-type]
    np.testing.assert_allclose(out.table[0, :, [0, -1]], 0.5)
    assert (out.reason == Reason.POOL).all()


def test_a_canary_gets_its_least_and_no_more_than_its_most() -> None:
    """Weight on a canary lies between the two bounds, past slew and dwell; a shadow gets nothing."""
    view, fleet = _plain(may_move=np.zeros((1, SLICES), dtype=np.bool_))
    staged = replace(fleet, stage=np.array([2, 1, 0, 2]))  # type: ignore[type-var]
    out = shield(view.last, view, staged, ShieldLimits())  # type: ignore[arg-type]
    np.testing.assert_allclose(out.table[0], np.tile([0.99, 0.01, 0.0, 0.0, 0.0], (SLICES, 1)))
    greedy = np.tile([0.2, 0.4, 0.4, 0.0, 0.0], (1, SLICES, 1))
    out = shield(greedy, replace(view, last=greedy), staged, ShieldLimits())  # type: ignore[arg-type]
    np.testing.assert_allclose(out.table[0], np.tile([0.95, 0.05, 0.0, 0.0, 0.0], (SLICES, 1)))
    assert (out.reason == Reason.HARD | Reason.EXPLORATION).all()


def test_a_row_that_may_only_use_a_canary_takes_nobody_elses_share_of_it() -> None:
    """Bounds of canaries cost it traffic, so they go; other rows keep the canary's share that they have."""
    hard = np.zeros((1, KERNELS, SLICES), dtype=np.bool_)
    hard[0, [0, 2, 3], 0] = True
    last = np.tile([0.96, 0.04, 0.0, 0.0, 0.0], (1, SLICES, 1))
    last[0, 0] = [0.0, 1.0, 0.0, 0.0, 0.0]
    view, fleet = _plain(last=last, hard_violated=hard, offered_rps=np.array([[0.5, 10.0, 10.0]]))
    staged = replace(fleet, stage=np.array([2, 1, 2, 2]))  # type: ignore[type-var]
    out = shield(last, view, staged, ShieldLimits())  # type: ignore[arg-type]
    np.testing.assert_array_equal(out.table, last)
    assert not out.reason.any()


def test_a_row_served_beyond_capacity_and_one_on_its_way_settle_together() -> None:
    """Room that the slow row leaves is given away before the table is in force, not at the next shielding."""
    sound = np.array([[1, 0, 1], [1, 0, 1], [0, 0, 0], [1, 1, 1]], dtype=np.bool_)[None]
    last = np.array([[[0.01, 0.64, 0.35, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0, 0.0], [0.16, 0.0, 0.0, 0.84, 0.0]]])
    wish = np.array([[[0.27, 0.0, 0.73, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0, 0.0], [0.17, 0.0, 0.0, 0.83, 0.0]]])
    contract = make_contract(LAYOUT, priority=np.array([2, 1, 3]))
    fleet = make_fleet(LAYOUT, contract=contract, capacity_rps=np.array([3.1, 18.3, 1.0, 14.9]))
    view = ShieldView(
        last=last, hard_violated=~sound, certified=np.ones_like(sound), ready=np.array([[1, 1, 0, 1]]),
        offered_rps=np.array([[34.3, 34.8, 10.8]]), may_move=np.array([[True, True, False]]),
    )  # fmt: skip
    once = shield(wish, view, fleet, ShieldLimits()).table
    assert once[0, 1, :-1].sum() < 0.011
    np.testing.assert_array_equal(shield(once, view, fleet, ShieldLimits()).table, once)


def test_traffic_comes_back_from_the_shed_column_at_once() -> None:
    """Serving what was shed waits for no dwell."""
    view, fleet = _plain(may_move=np.zeros((1, SLICES), dtype=np.bool_))
    wish = view.last
    shed = np.zeros_like(wish)
    shed[:, :, -1] = 1.0
    out = shield(wish, replace(view, last=shed), fleet, ShieldLimits())  # type: ignore[arg-type]
    np.testing.assert_array_equal(out.table, wish)


def test_unusable_rows_give_way_to_the_last_table() -> None:
    """NaN, negative or missing weight is no proposal; a wrong sum is scaled."""
    last = np.tile([1.0, 0.0, 0.0], (1, 4, 1))
    table = np.array([[[np.nan, 1.0, 0.0], [-1.0, 2.0, 0.0], [0.0, 0.0, 0.0], [1.0, 1.0, 2.0]]])
    np.testing.assert_array_equal(
        normalise(table, last), [[[1, 0, 0], [1, 0, 0], [1, 0, 0], [0.25, 0.25, 0.5]]]
    )
