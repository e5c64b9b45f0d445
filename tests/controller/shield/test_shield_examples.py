"""What the shield does to single tables, stage by stage."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from controller.fleet import FleetSetup
from controller.options import ShieldLimits
from controller.shield.gate import ShieldView, may_move, shield
from controller.shield.records import ShieldReason
from tests.support.fleets.builders import make_contract, make_fleet
from tests.support.fleets.shield_cases import KERNELS, LAYOUT, SLICES


def _plain(**changes: Any) -> tuple[ShieldView, FleetSetup]:
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
    return replace(view, **changes), fleet


def test_a_move_of_the_policy_takes_four_ticks() -> None:
    """A whole row moves in steps of a quarter, and each step is marked as slew-limited."""
    view, fleet = _plain()
    proposed = np.roll(view.last, 1, axis=2)
    for left in (0.75, 0.5, 0.25, 0.0):
        out = shield(proposed, view, fleet, ShieldLimits())
        np.testing.assert_allclose(out.table[0, :, 0], left)
        assert out.voluntary.all()
        assert (out.reason == (ShieldReason.SLEW if left else 0)).all()
        view = replace(view, last=out.table)


def test_dwell_counts_from_the_start_of_a_move() -> None:
    """A move may run for four ticks; then the row rests until 30 s after its start."""
    began = np.array([[100.0]])
    moves = {
        after: bool(may_move(np.array([100.0 + after]), began, 1.0, ShieldLimits())) for after in range(40)
    }
    assert [after for after, may in moves.items() if may] == [0, 1, 2, 3, *range(30, 40)]


def test_short_capacity_sheds_the_lowest_priority_first() -> None:
    """With room for 15 of 30 rps the highest keeps all, the middle one half, the lowest a minimum share."""
    view, fleet = _plain(ready=np.array([[1, 0, 0, 0]]))
    small = replace(fleet, capacity_rps=np.full(KERNELS, 15.0 / ShieldLimits().max_load_ratio))
    out = shield(view.last, view, small, ShieldLimits())
    np.testing.assert_allclose(out.table[0, :, -1], [0.99, 0.5, 0.0], atol=1e-9)
    assert out.reason[0, 0] & ShieldReason.CAPACITY
    assert not out.fallback.any()


def test_a_row_shed_without_need_is_served_again() -> None:
    """A policy may shed half of a slice on purpose; the rest goes where the slice was last."""
    view, fleet = _plain()
    proposed = np.zeros_like(view.last)
    proposed[:, :, -1] = 1.0
    out = shield(proposed, view, fleet, ShieldLimits(max_move_ratio=1.0))
    np.testing.assert_allclose(out.table[0, :, [0, -1]], 0.5)
    assert (out.reason == ShieldReason.POOL).all()


def test_a_canary_gets_a_share_between_its_bounds() -> None:
    """Weight on a canary lies between the two bounds, regardless of slew and dwell; a shadow gets nothing."""
    view, fleet = _plain(may_move=np.zeros((1, SLICES), dtype=np.bool_))
    staged = replace(fleet, stage=np.array([2, 1, 0, 2]))
    out = shield(view.last, view, staged, ShieldLimits())
    np.testing.assert_allclose(out.table[0], np.tile([0.99, 0.01, 0.0, 0.0, 0.0], (SLICES, 1)))
    greedy = np.tile([0.2, 0.4, 0.4, 0.0, 0.0], (1, SLICES, 1))
    out = shield(greedy, replace(view, last=greedy), staged, ShieldLimits())
    np.testing.assert_allclose(out.table[0], np.tile([0.95, 0.05, 0.0, 0.0, 0.0], (SLICES, 1)))
    assert (out.reason == ShieldReason.HARD | ShieldReason.EXPLORATION).all()


def test_a_row_that_may_only_use_a_canary_leaves_other_rows_their_share() -> None:
    """The canary's bounds would shed its traffic, so they are lifted; other rows keep their canary share."""
    hard = np.zeros((1, KERNELS, SLICES), dtype=np.bool_)
    hard[0, [0, 2, 3], 0] = True
    last = np.tile([0.96, 0.04, 0.0, 0.0, 0.0], (1, SLICES, 1))
    last[0, 0] = [0.0, 1.0, 0.0, 0.0, 0.0]
    view, fleet = _plain(last=last, hard_violated=hard, offered_rps=np.array([[0.5, 10.0, 10.0]]))
    staged = replace(fleet, stage=np.array([2, 1, 2, 2]))
    out = shield(last, view, staged, ShieldLimits())
    np.testing.assert_array_equal(out.table, last)
    assert not out.reason.any()


def test_a_row_beyond_capacity_and_one_that_is_moving_settle_together() -> None:
    """Headroom left by the slow row is used before the table is in force, not at the next shielding."""
    eligible = np.array([[1, 0, 1], [1, 0, 1], [0, 0, 0], [1, 1, 1]], dtype=np.bool_)[None]
    last = np.array([[[0.01, 0.64, 0.35, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0, 0.0], [0.16, 0.0, 0.0, 0.84, 0.0]]])
    proposed = np.array(
        [[[0.27, 0.0, 0.73, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0, 0.0], [0.17, 0.0, 0.0, 0.83, 0.0]]]
    )
    contract = make_contract(LAYOUT, priority=np.array([2, 1, 3]))
    fleet = make_fleet(LAYOUT, contract=contract, capacity_rps=np.array([3.1, 18.3, 1.0, 14.9]))
    view = ShieldView(
        last=last,
        hard_violated=~eligible,
        certified=np.ones_like(eligible),
        ready=np.array([[1, 1, 0, 1]]),
        offered_rps=np.array([[34.3, 34.8, 10.8]]),
        may_move=np.array([[True, True, False]]),
    )
    once = shield(proposed, view, fleet, ShieldLimits()).table
    assert once[0, 1, :-1].sum() < 0.011
    np.testing.assert_array_equal(shield(once, view, fleet, ShieldLimits()).table, once)


def test_traffic_returns_from_the_shed_column_at_once() -> None:
    """Serving shed traffic again waits for no dwell."""
    view, fleet = _plain(may_move=np.zeros((1, SLICES), dtype=np.bool_))
    proposed = view.last
    shed = np.zeros_like(proposed)
    shed[:, :, -1] = 1.0
    out = shield(proposed, replace(view, last=shed), fleet, ShieldLimits())
    np.testing.assert_array_equal(out.table, proposed)
