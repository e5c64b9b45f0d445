"""Switch episodes, counted by hand on small records."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.scoring.switches import SwitchVerdict, measure_switches, quarantine_episodes, row_episodes
from tests.support.fleets.episodes import broken_record, move_at, quiet_record


def test_a_move_off_a_violating_kernel_is_true_on_every_slice() -> None:
    """A full move of both rows away from a broken kernel makes two true episodes and moves weight 2."""
    found = measure_switches(move_at(broken_record(), 57))
    assert (found.true_switches, found.false_switches) == (2, 0)
    assert found.weight_moved == pytest.approx(2.0)
    assert found.slice_months == pytest.approx(2 * 200 / 2_592_000)


def test_a_violation_within_the_last_minute_justifies_a_move() -> None:
    """A kernel healed 60 s before the move is left truly, one healed 61 s before is left falsely."""
    record = move_at(quiet_record(300), 160)
    record.violating[90:101, 0, :] = True
    assert {e.verdict for e in row_episodes(record)} == {SwitchVerdict.TRUE}
    record.violating[:] = False
    record.violating[90:100, 0, :] = True
    assert {e.verdict for e in row_episodes(record)} == {SwitchVerdict.FALSE}


def test_flapping_within_a_minute_is_one_episode_and_after_it_two() -> None:
    """Away and back 59 s later is one episode per row; 60 s later it is two."""
    short = move_at(move_at(quiet_record(300), 50), 109, kernel=0)
    assert len(row_episodes(short)) == 2
    long = move_at(move_at(quiet_record(300), 50), 110, kernel=0)
    assert [(e.opened_row, e.closed_row) for e in row_episodes(long)[:2]] == [(50, 110), (110, 170)]


def test_small_steps_open_an_episode_once_they_add_up() -> None:
    """Moves of 0.02 open none until they are more than 0.05 from the last settled value."""
    record = quiet_record()
    for step in range(4):
        record.table[100 + step :, 0, 0] -= np.float32(0.02)
        record.table[100 + step :, 0, 1] += np.float32(0.02)
    assert [e.opened_row for e in row_episodes(record)] == [102]


def test_initial_placement_is_no_switch() -> None:
    """A policy that leaves home with its first decision and stays has not switched."""
    assert row_episodes(move_at(quiet_record(), 1)) == []


def test_capacity_moves_onto_compliant_kernels_are_counted_separately() -> None:
    """A marked move is counted separately if its target complies, and is false if its target violates."""
    record = move_at(quiet_record(), 80)
    record.capacity_rows[80] = True
    assert measure_switches(record).capacity_moves == 2
    record.violating[:, 2, :] = True
    found = measure_switches(record)
    assert (found.capacity_moves, found.false_switches) == (0, 2)


def test_readmitting_shed_traffic_leaves_no_kernel() -> None:
    """Readmitting shed traffic is no switch away from a kernel; shedding from a good kernel is false."""
    record = quiet_record(400)
    record.table[100:200, 0] = (0.5, 0.0, 0.5)
    assert [e.verdict for e in row_episodes(record)] == [SwitchVerdict.FALSE, SwitchVerdict.CAPACITY]


def test_quarantine_is_judged_by_its_replica() -> None:
    """Quarantining the broken replica is true, its healthy peer false; flapping in a minute is one."""
    record = broken_record()
    record.violating[:, 1, :] = False
    record.quarantined[60:, 0] = True
    record.quarantined[70:80, 1] = True
    record.quarantined[90:95, 1] = True
    assert [(e.index, e.verdict) for e in quarantine_episodes(record)] == [
        (0, SwitchVerdict.TRUE),
        (1, SwitchVerdict.FALSE),
    ]
    assert measure_switches(record).false_quarantines == 1


@given(st.lists(st.tuples(st.integers(1, 199), st.floats(0.0, 1.0)), max_size=8))
def test_episodes_of_a_slice_do_not_overlap_and_a_still_table_has_none(
    moves: list[tuple[int, float]],
) -> None:
    """Episodes of one row are disjoint and in order, at most one per change; no change, no episode."""
    record = quiet_record()
    for row, weight in sorted(moves):
        record.table[row:, 0] = (weight, 1.0 - weight, 0.0)
    found = [e for e in row_episodes(record) if e.index == 0]
    assert len(found) <= len(moves)
    for before, after in pairwise(found):
        assert before.closed_row <= after.opened_row
        assert before.closed_row - before.opened_row >= 60


@given(st.integers(1, 199), st.permutations(range(3)))
def test_relabelling_replicas_changes_no_count(row: int, order: list[int]) -> None:
    """The order of replicas does not enter the counts."""
    record = move_at(broken_record(), row)
    record.quarantined[row:, 0] = True
    shuffled = replace(
        record,
        replicas=tuple(record.replicas[i] for i in order),
        replica_kernel=record.replica_kernel[order],
        in_rotation=record.in_rotation[:, order],
        quarantined=record.quarantined[:, order],
        violating=record.violating[:, order],
        runtime_violating=record.runtime_violating[:, order],
        answered_by=record.answered_by[:, order],
    )
    assert measure_switches(shuffled) == measure_switches(record)


def test_a_slice_that_moves_for_capacity_does_not_excuse_another() -> None:
    """Each slice's move has its own verdict, whatever another slice moved for."""
    record = move_at(quiet_record(), 80)
    record.capacity_rows[80, 0] = True
    found = measure_switches(record)
    assert (found.capacity_moves, found.false_switches) == (1, 1)


def test_in_rotation_a_kernel_is_judged_by_its_replicas_in_rotation() -> None:
    """With its bad replica out for a minute, going to a kernel is no false switch, and leaving it is one.

    That is the count in rotation; by the rule itself it is the other way round.
    """
    record = move_at(quiet_record(400), 300)
    record.capacity_rows[300] = True
    record.violating[50:, 2, :] = True
    record.in_rotation[60:, 2] = False
    found = measure_switches(record)
    assert (found.false_switches, found.false_switches_in_rotation) == (2, 0)
    record.violating[50:, 2, :] = False
    record.violating[50:, 0, :] = True
    record.in_rotation[60:, 0] = False
    record.capacity_rows[300] = False
    found = measure_switches(record)
    assert (found.false_switches, found.false_switches_in_rotation) == (0, 2)


@given(st.integers(1, 199))
def test_both_counts_of_false_switches_agree_where_all_are_in_rotation(row: int) -> None:
    """With every replica in rotation the two rules are the same."""
    found = measure_switches(move_at(broken_record(), row))
    assert found.false_switches_in_rotation == found.false_switches
