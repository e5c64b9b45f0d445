"""What certified drift costs of the false-alarm budget, and how rarely its e-processes alarm."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from contracts.compiled.certified import certified_values
from controller.detect.certified_drift import FLAG_SHARE
from controller.detect.sequential.plan import SequentialSettings, sequential_plan
from controller.initial import initial_state
from policies.registry import make_configuration
from tests.support.fleets.builders import make_fleet
from tests.support.fleets.certified_fleets import LAYOUT, certified_fleet
from tests.support.fleets.sequential_detectors import MEAN, RATE, arrivals, sequential_detector, small_fleet


def test_e_processes_of_a_changed_unit_alarm_as_rarely_as_stated() -> None:
    """At a mean and a rate at their limits a changed unit's e-process ever alarms at most once in A."""
    chance, units = 10.0, 1000
    fleet = small_fleet(MEAN, replace(RATE, threshold=0.2))
    layout = fleet.layout
    known = certified_values(np.zeros(1, np.int64), np.zeros(1, np.int64), [np.ones((1, 1, 2))], 0.0)
    fleet = replace(fleet, certified=known)
    detector = sequential_detector(
        fleet, drift=True, prior=True, lowered_arl0=chance, budget_per_slice_month=1e-9
    )
    assert layout.shape == (1, 1, 1)
    rng = np.random.Generator(np.random.PCG64(11))
    state, was_raised = detector.initial(units, 1, fleet.contract), np.zeros((units, 2), dtype=np.bool_)
    for _ in range(150):
        seen = arrivals(rng.choice([0.05, 0.3], size=(units, 1), p=[0.8, 0.2]), fleet.contract)
        seen = replace(seen, drifted=np.ones((units, 1), dtype=np.bool_))
        verdicts, state = detector.update(state, None, np.zeros(units, dtype=np.bool_), fleet.contract, seen)
        was_raised |= verdicts.alarm[:, 0, 0]
    most = units / chance + 3.0 * math.sqrt(units / chance)
    assert was_raised.any(axis=0).sum() > 0
    assert (was_raised[:, 0].sum() <= most) or (was_raised[:, 1].sum() <= most)
    assert was_raised.any(axis=1).sum() <= 2.0 * most


@pytest.mark.parametrize("prior", [False, True])
def test_false_flags_that_lead_to_alarms_share_the_budget_with_them(prior: bool) -> None:
    """Flags of all slices use their share; only where they can move traffic is it taken from the alarms."""
    fleet = certified_fleet(0.02)
    plan = sequential_plan(fleet, SequentialSettings(drift=True, prior=prior))
    assert plan.drift is not None
    _, slices, replicas = LAYOUT.shape
    month_s = 30.0 * 86400.0
    per_stream = fleet.rates.probes_per_s * month_s / plan.drift.arl0
    flags = per_stream * replicas * slices * plan.drift.metrics.size
    assert flags == pytest.approx(FLAG_SHARE * fleet.contract.false_switch_budget_per_slice_month)
    allowed = fleet.contract.false_switch_budget_per_slice_month
    moving = plan.split.alarms_per_slice_month + (flags if prior else 0.0)
    assert moving == pytest.approx(allowed)
    assert plan.split.budget.per_slice_month == pytest.approx(allowed * (0.9 if prior else 1.0))


def test_without_certified_values_there_is_no_drift() -> None:
    """Without certified values nothing is compared or shown, and the whole budget is for routing."""
    fleet = make_fleet(LAYOUT)
    setup = make_configuration("sequential", fleet)
    assert setup.drift is None
    assert initial_state(setup, 1).drift == {}
    bare = sequential_plan(fleet)
    drifting = SequentialSettings(drift=True, prior=True)
    assert sequential_plan(fleet, drifting).split.budget == bare.split.budget
