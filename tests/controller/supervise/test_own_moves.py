"""The watch over own moves: a harmful move is taken back, no other is, and it settles."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binom

from contracts.rng import stream
from controller.supervise.own_moves_blocks import chance_of
from controller.supervise.own_moves_records import OwnMove
from tests.reference.plain_own_moves import PlainWatch, chance
from tests.support.fleets.moved_fleets import KERNELS, LAW, SLICES, MovedFleet, on

FINE = np.zeros((SLICES, KERNELS))


def late_on(kernel: int, share: float = 1.0) -> NDArray[np.float64]:
    """Late answers of one kernel alone."""
    late = FINE.copy()
    late[:, kernel] = share
    return late


def settled_fleet(batch: int = 1) -> MovedFleet:
    """A fleet that stood at home for two minutes, all healthy."""
    fleet = MovedFleet(batch=batch)
    for _ in range(130):
        fleet.step(on(0, 1), FINE)
    return fleet


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30), st.integers(0, 30))
def test_the_chance_is_fishers(n: int, x: int, m: int, y: int) -> None:
    """``chance_of`` is the upper tail of the hypergeometric law."""
    before, since = np.array([n, min(x, n)], dtype=float), np.array([m, min(y, m)], dtype=float)
    assert chance_of(before, since) == pytest.approx(chance(before, since), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("seed", range(12))
def test_the_compiled_watch_follows_its_definition(seed: int) -> None:
    """Tables, actions and counts equal those of the plain watch, tick by tick, for random events."""
    rng = stream(seed, "own_moves")
    fleet = MovedFleet(flush_s=int(rng.choice([1, 4, 10])))
    fleet.offered_rps[:] = rng.choice([0.2, 1.0, 20.0])
    plain = PlainWatch(law=LAW, home=on(0, 1)[0])
    proposed, late, actions = on(0, 1), FINE, set()
    for tick in range(500):
        if tick % 70 == 60:
            proposed = rng.dirichlet(np.full(KERNELS + 1, 0.3), size=(1, SLICES))
        if tick % 35 == 20:
            late = rng.random((SLICES, KERNELS)) * (rng.random((SLICES, KERNELS)) < 0.3)
            fleet.open_cells = rng.random((1, SLICES, KERNELS)) < 0.85
            fleet.replica_rps = np.where(rng.random((1, KERNELS)) < 0.2, 15.0, 1e3)
        fleet.now_s += 1.0
        counted, standing = fleet.counted(late, 0.0), fleet.standing()
        expected, doing = plain.step(counted, standing, proposed[0])
        fleet.now_s -= 1.0
        found = fleet.step(proposed, late)
        assert found.action[0].tolist() == doing, tick
        np.testing.assert_allclose(found.table[0], expected, atol=1e-12)
        np.testing.assert_array_equal(fleet.memory["explained_at_s"][0], plain.explained_at_s)
        actions |= set(doing)
    assert int(OwnMove.WATCHED) in actions


def test_a_move_that_makes_its_slice_late_is_taken_back_and_held() -> None:
    """Within 26 s the row is where it was; the policy's row waits two minutes, then four, then eight."""
    fleet, backs = settled_fleet(), []
    for _ in range(1200):
        found = fleet.step(on(2, 1), late_on(2))
        if found.action[0, 0] == OwnMove.TAKEN_BACK:
            backs.append(fleet.now_s)
            assert (found.table == on(0, 1)).all()
    assert backs[0] <= 130 + 26
    waits = np.diff(backs)
    assert len(backs) <= 5
    assert all(later > 1.5 * sooner for sooner, later in pairwise(waits))


@pytest.mark.parametrize(("flush_s", "rps"), [(10, 20.0), (10, 0.3), (1, 0.5)])
def test_a_bad_move_is_taken_back_at_any_rate_of_gateway_counts(flush_s: int, rps: float) -> None:
    """Statistics flushed every 10 s leave blocks of 5 s empty, and rare requests hardly fill one."""
    fleet = MovedFleet(flush_s=flush_s, offered_rps=np.full((1, SLICES), rps))
    for _ in range(1500):
        fleet.step(on(0, 1), FINE)
    moved_at_s, actions = fleet.now_s, []
    while int(OwnMove.TAKEN_BACK) not in actions and fleet.now_s < moved_at_s + 300.0:
        actions.append(int(fleet.step(on(2, 1), late_on(2)).action[0, 0]))
    assert actions[-1] == OwnMove.TAKEN_BACK


def test_a_move_that_makes_the_others_on_its_target_late_is_taken_back() -> None:
    """The slice itself is not late, but the slice that lives on the target is."""
    fleet, late = settled_fleet(), FINE.copy()
    late[1, 1] = 1.0
    actions = [int(fleet.step(on(1, 1), late).action[0, 0]) for _ in range(40)]
    assert OwnMove.TAKEN_BACK in actions


def test_failures_and_queues_count_like_late_answers() -> None:
    """A move after which requests fail is taken back too."""
    fleet = settled_fleet()
    actions = [int(fleet.step(on(2, 1), FINE, failed=0.5).action[0, 0]) for _ in range(40)]
    assert OwnMove.TAKEN_BACK in actions


def test_a_good_move_stays_and_is_forgotten() -> None:
    """A move after which all is healthy stays as the policy proposed it, at every tick."""
    fleet = settled_fleet()
    for _ in range(100):
        assert (fleet.step(on(2, 1), FINE).table == on(2, 1)).all()
    assert not fleet.memory["watched"].any()
    assert (fleet.memory["settled"] == on(2, 1)).all()


def test_a_move_with_lateness_everywhere_is_not_taken_back() -> None:
    """A surge that makes the old kernel just as late is no evidence against a move."""
    fleet = settled_fleet()
    half = 0.5 * (on(0, 1) + on(2, 1))
    actions = {int(fleet.step(half, np.ones((SLICES, KERNELS))).action[0, 0]) for _ in range(60)}
    assert OwnMove.STOPPED in actions
    assert OwnMove.TAKEN_BACK not in actions
    assert (fleet.table == half).all()


def test_nothing_returns_to_a_kernel_that_cannot_carry_it() -> None:
    """Where the old kernel would be overloaded, the row moves neither further nor back."""
    fleet = settled_fleet()
    fleet.replica_rps = np.array([[15.0, 1e3, 1e3]])
    third = on(0, 1) * 0.7 + on(2, 1) * 0.3
    for _ in range(40):
        fleet.step(third, late_on(2))
    assert (fleet.table == third).all()
    for _ in range(10):
        assert (fleet.step(on(2, 1), late_on(2)).table == third).all()


def test_a_share_shed_for_capacity_is_not_held() -> None:
    """A row that stops while part of it is shed is held, but the shield decides how much is shed.

    Where the policy sheds nothing, nothing is shed.
    """
    fleet, actions = settled_fleet(), []
    fleet.replica_rps = np.array([[5.0, 1e3, 1e3]])
    short = on(0, 1)
    short[0, 0] = [0.2, 0.0, 0.4, 0.4]
    while int(OwnMove.STOPPED) not in actions:  # the shield found no place for 0.4
        actions.append(int(fleet.step(short, late_on(2)).action[0, 0]))
    found = fleet.step(on(2, 1), late_on(2))
    assert found.action[0, 0] == OwnMove.HELD
    np.testing.assert_allclose(found.table[0, 0], [1.0 / 3.0, 0.0, 2.0 / 3.0, 0.0])
    short[0, 0] = [0.0, 0.0, 0.7, 0.3]  # shed on purpose
    np.testing.assert_allclose(fleet.step(short, late_on(2)).table[0, 0], [0.7 / 3.0, 0.0, 1.4 / 3.0, 0.3])


@given(st.integers(0, 2**16))
def test_nothing_is_put_on_a_closed_cell(seed: int) -> None:
    """However rows are taken back or held, none gains weight on a cell in alarm."""
    rng = stream(seed, "closed")
    fleet, proposed = MovedFleet(), on(0, 1)
    for tick in range(160):
        if tick % 40 == 30:
            proposed = rng.dirichlet(np.full(KERNELS + 1, 0.3), size=(1, SLICES))
        if tick % 20 == 10:
            fleet.open_cells = rng.random((1, SLICES, KERNELS)) < 0.6
        found = fleet.step(proposed, (rng.random((SLICES, KERNELS)) < 0.4).astype(float))
        closed = ~fleet.open_cells
        assert (found.table[:, :, :-1] <= np.maximum(proposed[:, :, :-1], 0.01) + 1e-12)[closed].all()
        np.testing.assert_allclose(found.table.sum(axis=2), 1.0)


def test_a_row_that_leaves_a_closed_kernel_is_not_slowed() -> None:
    """An evacuation from a cell in alarm goes as proposed, however late its target answers."""
    fleet = settled_fleet()
    fleet.open_cells[0, 0, 0] = False
    for _ in range(120):
        found = fleet.step(on(2, 1), late_on(2))
        assert (found.table == on(2, 1)).all()
        assert found.action[0, 0] in (OwnMove.NONE, OwnMove.WATCHED, OwnMove.KEPT)


def test_a_hold_ends_where_its_cell_closes() -> None:
    """A held row is free at the tick at which an alarm closes the cell that it is held on."""
    fleet = settled_fleet()
    while fleet.memory["held_until_at_s"][0, 0] < 0.0:
        fleet.step(on(2, 1), late_on(2))
    assert (fleet.step(on(2, 1), FINE).table == on(0, 1)).all()
    fleet.open_cells[0, 0, 0] = False
    assert (fleet.step(on(2, 1), FINE).table == on(2, 1)).all()


def test_a_gain_of_load_excuses_late_answers_unless_the_kernel_is_slow() -> None:
    """Kernels that gain load are excused from then on; one at half its certified speed is not."""
    for slow, expected in ((False, True), (True, False)):
        fleet = settled_fleet()
        fleet.replica_rps = np.array([[1e3, 1e3, 500.0 if slow else 1e3]])
        for _ in range(2):
            fleet.step(on(2, 1), FINE)
        assert bool(fleet.memory["explained_at_s"][0, 2] > 0.0) == expected
        assert np.isinf(fleet.memory["explained_at_s"][0, :2]).all()


def test_the_error_rate_is_as_declared() -> None:
    """Of 2,000 moves that change nothing, with randomly bad blocks, at most one in 100 is taken back."""
    batch, rng = 2000, stream(3, "error")
    fleet = MovedFleet(batch=batch)
    backs = np.zeros(batch, dtype=np.bool_)
    for tick in range(210):
        proposed = on(0, 1) if tick < 130 else on(2, 1)
        if tick % 5 == 0:
            draw = (rng.random((batch, 1, 1)) < 0.15).astype(float)
        found = fleet.step(proposed, np.broadcast_to(draw, (batch, SLICES, KERNELS)))
        backs |= (found.action[:, 0] == OwnMove.TAKEN_BACK) | (found.action[:, 0] == OwnMove.STOPPED)
    assert backs.sum() <= binom(batch, LAW.error).ppf(0.999)


def test_fleets_of_a_batch_are_independent() -> None:
    """Three equal fleets decide as one does."""
    one, three = settled_fleet(), settled_fleet(batch=3)
    for _ in range(60):
        alone, together = one.step(on(2, 1), late_on(2)), three.step(on(2, 1), late_on(2))
        assert (together.table == alone.table).all()
        assert (together.action == alone.action).all()
