"""The sequential detector: agreement with the theory's numbers, its thresholds and its budget."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from contracts.telemetry import Source
from controller.detect.sequential.evidence import SINCE_COUNT
from controller.detect.streams.protocol import update
from controller.detect.window import WindowDetector
from tests.support.fleets.builders import Clause, make_contract, make_fleet, make_layout
from tests.support.fleets.sequential_detectors import (
    BUDGET_OF_200,
    MEAN,
    RATE,
    arrivals,
    feed,
    logged,
    sequential_detector,
    slice_probe,
    small_fleet,
)


def test_probes_of_a_tick_count_one_by_one() -> None:
    """Three probes in one tick leave the same evidence as the stream's own detector updated three times."""
    fleet = small_fleet(MEAN, replace(RATE, threshold=0.2))
    detector = sequential_detector(fleet)
    values = np.random.Generator(np.random.PCG64(1)).uniform(0.0, 0.24, (6, 4, 3))
    _, state = feed(detector, list(values), fleet.contract)
    for clause, unit in ((0, lambda x: x), (1, lambda x: (x > 0.2).astype(float))):
        alone = detector.plan.clauses.detector(clause)
        memory = alone.initial(4)
        for value in values.transpose(0, 2, 1).reshape(18, 4):
            memory, statistic = update(alone, memory, unit(value), np.ones(4, dtype=np.bool_))
        assert logged(state)[:, 0, 0, clause].tolist() == pytest.approx(statistic.tolist())


def test_false_alarms_stay_within_the_declared_budget() -> None:
    """At a mean and a rate equal to the limits, runs to a false alarm are as long as declared (99 %)."""
    fleet = small_fleet(MEAN, RATE)
    detector = sequential_detector(fleet, budget_per_slice_month=2.0 * BUDGET_OF_200)
    rng = np.random.Generator(np.random.PCG64(2))
    law = [rng.choice([0.05, 0.3], size=(400, 1), p=[0.8, 0.2]) for _ in range(600)]
    contract = replace(fleet.contract, threshold=np.array([0.1, 0.2]))
    clauses = detector.plan.evidence_plan.clauses.copy()
    clauses["threshold"] = contract.threshold
    evidence_plan = detector.plan.evidence_plan._replace(clauses=clauses)
    detector = replace(detector, plan=replace(detector.plan, contract=contract, evidence_plan=evidence_plan))
    state, alarms = detector.initial(400, 1, contract), np.zeros(2, dtype=np.int64)
    for values in law:
        _, state = feed(detector, [values], contract, state)
        begun = state["cells"][:, 0, 0, :, SINCE_COUNT] == 0.0  # an alarm starts the evidence anew
        alarms += begun.sum(axis=0)
    for clause, count in enumerate(alarms.tolist()):
        arl0 = math.exp(detector.plan.thresholds.kernel[0, 0, clause])
        assert arl0 == pytest.approx(200.0)
        assert 400 * 600 / stats.gamma.ppf(0.99, count + 1) >= arl0
        assert count > 0


def test_traffic_streams_have_a_higher_threshold_than_the_guarantee_asks_for() -> None:
    """Scrapes are not independent, so the ARL0 behind their threshold is the stated multiple."""
    clause = Clause(source=Source.FAILED, threshold=0.02, hard=False)
    plain, higher = (
        sequential_detector(small_fleet(clause), traffic_factor=factor).plan.thresholds.replica.item()
        for factor in (1.0, 14.0)
    )
    assert higher - plain == pytest.approx(math.log(14.0))


def test_limit_zero_alarms_at_the_first_unit() -> None:
    """One unit over a limit of 0 is an alarm, and no budget delays it."""
    fleet = small_fleet(Clause(threshold=0.5, rate_limit=0.0), false_switch_budget_per_slice_month=1e-6)
    verdicts, _ = feed(sequential_detector(fleet), [np.array([[0.4]]), np.array([[0.6]])], fleet.contract)
    assert [v.alarm.item() for v in verdicts] == [False, True]


@pytest.mark.parametrize("name", ["window", "sequential"])
def test_forgetting_is_a_fresh_start(name: str) -> None:
    """Where a detector forgets, its state is the initial one; elsewhere nothing changes."""
    fleet = small_fleet(MEAN, RATE)
    detector = sequential_detector(fleet) if name == "sequential" else WindowDetector()
    fresh = detector.initial(2, 1, fleet.contract)
    seen, state = arrivals(np.full((2, 30), 0.9), fleet.contract), fresh
    for _ in range(3):
        _, state = detector.update(state, seen.sums, np.array([True, True]), fleet.contract, seen)
    mask = np.zeros((2, 1, 1, 2), dtype=np.bool_)
    mask[1] = True
    after = detector.forget(state, mask)
    for key in state:
        np.testing.assert_array_equal(after[key][1], fresh[key][1], err_msg=key)
        np.testing.assert_array_equal(after[key][0], state[key][0], err_msg=key)


def test_a_replica_is_watched_over_all_its_slices() -> None:
    """Where no slice alone reaches its threshold, the replica's evidence over all slices raises the alarm."""
    layout = make_layout(kernels=1, slices=4, per_kernel=1)
    fleet = make_fleet(layout, contract=make_contract(layout, (MEAN,)), home=np.zeros(4, dtype=np.int64))
    detector, levels = sequential_detector(fleet), sequential_detector(fleet).plan.thresholds
    state, closed = detector.initial(1, 1, fleet.contract), np.array([False])
    for tick in range(1, 100):
        seen = slice_probe(fleet, tick % 4, 0.6)
        verdict, state = detector.update(state, seen.sums, closed, fleet.contract, seen)
        if verdict.alarm.any():
            break
        assert logged(state).max() < levels.replica.min()
        assert logged(state, "over_slices").max() < levels.over_slices.min()
    alone = detector.plan.clauses.detector(0)
    memory, statistic, units = alone.initial(1), np.zeros(1), 0
    while statistic.item() < levels.over_slices.item():
        memory, statistic = update(alone, memory, np.array([0.6]), np.array([True]))
        units += 1
    assert tick == units
    assert verdict.alarm.sum() == 1
    assert verdict.excess.max() == pytest.approx(5.0)


def test_a_kernel_in_alarm_on_one_slice_is_suspect_on_the_others() -> None:
    """The second slice's threshold falls to the lowered one as soon as the first slice is in alarm."""
    layout = make_layout(kernels=1, slices=2, per_kernel=1)
    fleet = make_fleet(layout, contract=make_contract(layout, (MEAN,)), home=np.zeros(2, dtype=np.int64))
    detector = sequential_detector(fleet)
    levels, closed = detector.plan.thresholds, np.array([False])
    state, first = detector.initial(1, 1, fleet.contract), -1
    for tick in range(100):
        seen = replace(slice_probe(fleet, tick % 2, 0.9 if tick % 2 else 0.3), pooled=True)
        before = logged(state)[0, 0, 0, 0]
        verdict, state = detector.update(state, seen.sums, closed, fleet.contract, seen)
        raised = verdict.alarm[0, 0, :, 0].tolist()
        first = tick if first < 0 and raised[1] else first
        assert not raised[0] or raised[1]
        if raised[0]:
            break
    assert first >= 0
    assert before < levels.kernel[0, 0, 0]
    assert levels.lowered[0, 0] == pytest.approx(math.log(1000.0))
