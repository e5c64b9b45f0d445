"""Detection lag and time to recovery, recomputed by hand on small records."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from contracts.scoring.incident_measures import breaking_ratio, has_incident, measure_incident, outside_slo
from tests.support.fleets.episodes import broken_record, move_at, quiet_record, step_fault


def test_lag_and_recovery_of_a_step_answered_by_a_move() -> None:
    """A fault at 50 s answered by a full move at 57 s has lag 7 s and, once traffic is clean, MTTR 7 s."""
    found = measure_incident(move_at(broken_record(), 57))
    assert found is not None
    assert (found.detected, found.detection_lag_s) == (True, 7.0)
    assert (found.recovered, found.mttr_s) == (True, 7.0)
    assert not found.mitigated


def test_a_late_answer_of_the_broken_kernel_delays_recovery_not_detection() -> None:
    """An answer by a violating replica five rows after the move delays recovery to the row after it."""
    record = move_at(broken_record(), 57)
    record.answered_by[62, 0, 0] = 1
    found = measure_incident(record)
    assert found is not None
    assert found.detection_lag_s == 7.0
    assert found.mttr_s == 63 - 50


def test_recovery_needs_sixty_clean_seconds_before_the_horizon() -> None:
    """Of a 200 s episode a move at 141 s leaves only 59 s and is censored; at 140 s it counts."""
    late, just = (
        measure_incident(move_at(broken_record(), 141)),
        measure_incident(move_at(broken_record(), 140)),
    )
    assert late is not None
    assert just is not None
    assert (late.recovered, late.mttr_s) == (False, 150.0)
    assert (just.recovered, just.mttr_s) == (True, 90.0)


def test_an_intermittent_fault_needs_two_clean_periods() -> None:
    """With a period of 40 s, a quiet stretch of 60 s is no recovery but one of 80 s is."""
    record = broken_record(300)
    record = replace(record, incident=step_fault(50.0, 300, period_s=40.0))
    record.violating[50:] = False
    for row in (50, 111, 192):
        record.violating[row : row + 1, :2, :] = True
    found = measure_incident(record)
    assert found is not None
    assert (found.recovered, found.mttr_s) == (True, 112 - 50)
    record.violating[191, :2, :] = True
    found = measure_incident(record)
    assert found is not None
    assert found.mttr_s == 193 - 50


def test_a_fault_that_breaks_nothing_is_no_incident() -> None:
    """Without a violation after the onset, or with one that was there before, there is no incident."""
    record = quiet_record(incident=step_fault())
    assert not has_incident(record)
    assert measure_incident(record) is None
    record.violating[:, 2, 0] = True
    assert measure_incident(record) is None


def test_traffic_that_never_met_the_fault_is_mitigated() -> None:
    """If only an unused kernel breaks the contract, the incident is already mitigated and over at once."""
    record = quiet_record(incident=step_fault())
    record.violating[50:, 2, :] = True
    found = measure_incident(record)
    assert found is not None
    assert found.mitigated
    assert (found.detected, found.recovered, found.mttr_s) == (False, True, 0.0)


def test_quarantine_is_an_action_and_a_move_before_the_breach_is_not() -> None:
    """Taking a broken replica out of rotation counts; leaving a kernel before it breaks does not."""
    record = broken_record()
    record.violating[:, 1, :] = False
    record.in_rotation[60:, 0] = False
    record.answered_by[60:, 0, :] = 0
    found = measure_incident(record)
    assert found is not None
    assert found.detection_lag_s == 10.0
    ramp = move_at(quiet_record(incident=step_fault()), 70)
    ramp.violating[80:, :2, :] = True
    found = measure_incident(ramp)
    assert found is not None
    assert (found.breach_s, found.mitigated, found.detected) == (30.0, True, False)


def test_a_ramp_is_not_recovered_before_it_breaks_anything() -> None:
    """The clean minute between onset and breach is no recovery; the one after the move is."""
    record = quiet_record(300, incident=step_fault(50.0, 300))
    record.violating[150:, :2, :] = True
    found = measure_incident(move_at(record, 160))
    assert found is not None
    assert (found.breach_s, found.mttr_s) == (100.0, 110.0)


def test_slo_limits_are_one_percent_failed_and_five_percent_late() -> None:
    """Of 300 requests in 30 rows, 3 failed are inside and 4 outside; 15 late are inside and 16 outside."""
    record = quiet_record(60)
    record.failed[40, 0], record.answered[40, 0] = 3, 7
    assert not outside_slo(record).any()
    record.shed[41, 0], record.answered[41, 0] = 1, 9
    assert outside_slo(record)[:, 0].tolist() == [41 <= row <= 69 for row in range(60)]
    late = quiet_record(60)
    late.slo_missed[30:32, 1] = (10, 5)
    assert not outside_slo(late).any()
    late.slo_missed[32, 1] = 1
    assert outside_slo(late)[:, 1].any()


def test_failures_after_a_move_keep_the_incident_open() -> None:
    """Traffic on compliant kernels that still fail 10 % of a slice has not recovered."""
    record = move_at(broken_record(), 55)
    record.failed[60:100, 1], record.answered[60:100, 1] = 1, 9
    found = measure_incident(record)
    assert found is not None
    assert found.mttr_s > 100 - 50


@given(onset=st.integers(0, 199), pairs=st.lists(st.booleans(), min_size=6, max_size=6))
def test_a_policy_that_never_acts_has_its_lag_censored(onset: int, pairs: list[bool]) -> None:
    """Without any change of table or rotation nothing is detected, and all times are within the horizon."""
    record = quiet_record(incident=step_fault(float(onset)))
    record.violating[onset:] = np.array(pairs).reshape(3, 2)
    found = measure_incident(record)
    if found is None:
        assert onset == 0 or not any(pairs)
        return
    assert not found.detected
    assert found.detection_lag_s == 200 - onset
    assert 0.0 <= found.mttr_s <= 200 - onset


@given(st.integers(51, 199), st.permutations(range(2)))
def test_relabelling_kernels_changes_nothing(row: int, order: list[int]) -> None:
    """The names and order of kernels do not enter the measures."""
    record = move_at(broken_record(), row)
    position = np.argsort(order)
    relabelled = replace(
        record,
        kernels=tuple(record.kernels[i] for i in order),
        table=record.table[:, :, [*order, 2]],
        replica_kernel=position[record.replica_kernel],
        known_good=int(position[record.known_good]),
    )
    assert measure_incident(record) == measure_incident(relabelled)


def test_replicas_out_of_rotation_do_not_count() -> None:
    """Of two replicas in rotation one is bad: a half; a kernel without replicas in rotation has 0."""
    bad = np.array([[[True], [False], [True], [True]]])
    in_rotation = np.array([[True, True, False, False]])
    found = breaking_ratio(bad, in_rotation, np.array([0, 0, 0, 1]), 2)
    assert found.tolist() == [[[0.5], [0.0]]]
