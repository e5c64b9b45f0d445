"""Recovery counted from the first violation, from its visibility, and over its lower bound."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from contracts.scoring.episode import truncate
from contracts.scoring.incident_measures import measure_incident
from tests.support.fleets.episodes import broken_record, move_at, quiet_record, step_fault


def _blind(rows: int, start: int, end: int) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    blind = np.zeros((rows, 3), dtype=np.bool_)
    blind[start:end] = True
    return blind


def test_a_step_has_the_lower_bound_of_one_probe_and_one_tick() -> None:
    """A step at 50 s with a probe every 2 s cannot be answered before 3 s; a move at 57 s is 4 s over it."""
    found = measure_incident(replace(move_at(broken_record(), 57), evidence_interval_s=2.0))
    assert found is not None
    assert (found.visible_s, found.lower_bound_s, found.excess_s) == (0.0, 3.0, 4.0)
    assert (found.violation_lag_s, found.visible_lag_s) == (7.0, 7.0)


def test_a_ramp_counts_from_its_breach() -> None:
    """A fault at 50 s that breaks the contract at 150 s and is left at 160 s takes 10 s from its breach."""
    record = quiet_record(300, incident=step_fault(50.0, 300), evidence_interval_s=1.0)
    record.violating[150:, :2, :] = True
    found = measure_incident(move_at(record, 160))
    assert found is not None
    assert (found.mttr_s, found.violation_lag_s, found.lower_bound_s, found.excess_s) == (
        110.0,
        10.0,
        2.0,
        8.0,
    )


def test_each_slice_counts_from_its_own_breach() -> None:
    """One slice breaks at 100 s and is left at 120 s, the other at 150 s and 155 s: the slowest took 20 s."""
    record = quiet_record(300, incident=step_fault(50.0, 300), evidence_interval_s=1.0)
    record.violating[100:, :2, 0] = True
    record.violating[150:, :2, 1] = True
    for place, row in ((0, 120), (1, 155)):
        record.table[row:, place] = [0.0, 1.0, 0.0]
        record.answered_by[row:, :2, place] = 0
    found = measure_incident(record)
    assert found is not None
    assert (found.mttr_s, found.violation_lag_s, found.slice_lag_s, found.excess_s) == (
        105.0,
        55.0,
        20.0,
        18.0,
    )


def test_lost_telemetry_moves_the_lower_bound_not_the_breach() -> None:
    """While all broken replicas' telemetry is lost, the lower bound waits; one visible replica ends that."""
    record = replace(move_at(broken_record(), 100), evidence_interval_s=1.0, blind=_blind(200, 50, 90))
    found = measure_incident(record)
    assert found is not None
    assert (found.violation_lag_s, found.visible_s, found.visible_lag_s) == (50.0, 40.0, 10.0)
    assert (found.slice_lag_s, found.excess_s) == (10.0, 8.0)
    record.blind[60:, 1] = False
    found = measure_incident(record)
    assert found is not None
    assert found.visible_s == 10.0


def test_an_unknown_interval_of_evidence_gives_no_lower_bound() -> None:
    """A record without an interval of evidence has neither lower bound nor excess."""
    found = measure_incident(move_at(broken_record(), 57))
    assert found is not None
    assert math.isnan(found.lower_bound_s)
    assert math.isnan(found.excess_s)


@given(
    move=st.integers(51, 139),
    breach=st.integers(50, 130),
    blind=st.integers(0, 120),
    evidence_interval_s=st.floats(0.0, 30.0),
)
def test_lags_are_ordered(move: int, breach: int, blind: int, evidence_interval_s: float) -> None:
    """Always 0 <= excess <= slowest slice <= visible lag <= violation lag <= MTTR."""
    record = quiet_record(
        incident=step_fault(), evidence_interval_s=evidence_interval_s, blind=_blind(200, 50, 50 + blind)
    )
    record.violating[breach:, :2, :] = True
    found = measure_incident(move_at(record, move))
    assert found is not None
    lags = (0.0, found.excess_s, found.slice_lag_s, found.visible_lag_s, found.violation_lag_s, found.mttr_s)
    assert list(lags) == sorted(lags)


def test_a_truncated_record_keeps_its_shapes() -> None:
    """Cutting a record also cuts what could be seen."""
    cut = truncate(replace(broken_record(), blind=_blind(200, 0, 10)), 120.0)
    assert cut.blind.shape == (120, 3)
