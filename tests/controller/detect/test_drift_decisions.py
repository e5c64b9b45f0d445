"""Certified drift in the controller: shown, cleared by evidence, and never a switch by itself."""

from __future__ import annotations

import numpy as np
import pytest

from controller.explain.tick import explain
from controller.initial import initial_state
from controller.loop import tick
from controller.state_json import state_from_json, state_to_json
from policies.registry import make_configuration
from tests.support.fleets.certified_fleets import LAYOUT, certified_fleet, drifted, scaled, telemetry_of
from tests.support.fleets.worlds import run


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_a_drift_flag_is_cleared_when_probes_match_again(noise: float) -> None:
    """The flag stands while values are off and is cleared within two minutes after they match."""
    fleet = certified_fleet(noise)
    ticks = run(
        make_configuration("sequential", fleet), telemetry_of(fleet, 260, scaled([1], 1.6, 20.0, 120.0))
    )
    flags = drifted(ticks)
    assert flags[24:120, 1].all()
    assert not flags[240:, 1].any()
    assert not np.delete(flags, 1, axis=1).any()


def test_a_change_that_keeps_every_clause_is_information_and_no_switch() -> None:
    """A changed build within its clauses moves no traffic and quarantines no replica; every flag is shown."""
    fleet = certified_fleet()
    setup = make_configuration("sequential", fleet)
    ticks = run(setup, telemetry_of(fleet, 300, scaled([0, 1, 2, 3, 4], 1.3, 20.0)))
    assert drifted(ticks)[30:, :5].all()
    assert (ticks.tables()[:, :, 0] == 1.0).all()
    assert not ticks.quarantined().any()
    last = ticks.decisions[-1]
    assert last.observation.drifted is last.drifted
    record = explain(ticks.state, ticks.state, last, setup)
    assert record.drifted == LAYOUT.replicas[:5]


def test_the_change_point_prior_makes_alarms_sooner() -> None:
    """One replica breaks its clause: it is quarantined, and sooner with the prior than without."""
    fleet, left = certified_fleet(), []
    for configuration in ("sequential:prior=1", "sequential"):
        ticks = run(
            make_configuration(configuration, fleet), telemetry_of(fleet, 200, scaled([1], 20.0, 50.0))
        )
        assert np.flatnonzero(ticks.quarantined()[-1]).tolist() == [1]
        left.append(int(ticks.quarantined()[:, 1].argmax()))
    assert 50 <= left[0] < left[1]


@pytest.mark.parametrize("factor", [12.0, 20.0, 60.0])
def test_a_changed_build_is_left_and_no_replica_departs(factor: float) -> None:
    """All replicas of a kernel change and break the clause: the slices leave it, none is quarantined."""
    fleet = certified_fleet()
    ticks = run(
        make_configuration("sequential:prior=1", fleet),
        telemetry_of(fleet, 120, scaled([0, 1, 2, 3], factor, 50.0)),
    )
    assert (ticks.tables()[-1, :, 0] == 0.0).all()
    assert not ticks.quarantined().any()


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_without_the_prior_comparing_changes_no_verdict(noise: float) -> None:
    """Until the first match every tick has the alarms, evidence, tables and quarantines of drift=0."""
    fleet, flags, alarms = certified_fleet(noise), 0, 0
    setups = [
        make_configuration(configuration, fleet) for configuration in ("sequential", "sequential:drift=0")
    ]
    states = [initial_state(setup, 1) for setup in setups]
    for seen in telemetry_of(fleet, 240, scaled([0, 1, 2, 3, 5], 14.0, 40.0)):
        (mine, one), (theirs, other) = (
            tick(state, seen, setup) for state, setup in zip(states, setups, strict=True)
        )
        states = [mine, theirs]
        assert one.drifted is not None
        assert other.drifted is None
        flags += int(one.drifted.sum())
        alarms += int(np.asarray(mine.kernel_detector["alarm"]).sum())
        assert np.array_equal(one.table, other.table)
        assert np.array_equal(one.quarantined, other.quarantined)
        for unit in ("replica_detector", "kernel_detector"):
            own, bare = getattr(mine, unit), getattr(theirs, unit)
            assert all(np.array_equal(own[name], bare[name]) for name in bare)
            assert own["prior_evidence"].size == own["prior_evidence_over_slices"].size == 0
    assert flags > 0
    assert alarms > 0


@pytest.mark.parametrize("restored_s", [60, 105, 150])
def test_a_restored_controller_decides_the_same(restored_s: int) -> None:
    """Written to JSON and read back before, during and after a change: the same later decisions."""
    fleet = certified_fleet(0.05)
    setup = make_configuration("sequential:prior=1", fleet)
    state = other = initial_state(setup, 1)
    for index, seen in enumerate(telemetry_of(fleet, 200, scaled([1, 2], 9.0, 100.0, 110.0))):
        if index == restored_s:
            other = state_from_json(state_to_json(state, setup), setup)
        state, decision = tick(state, seen, setup)
        if index >= restored_s:
            other, again = tick(other, seen, setup)
            assert np.array_equal(decision.table, again.table)
            assert np.array_equal(decision.quarantined, again.quarantined)
            assert decision.drifted is not None
            assert again.drifted is not None
            assert np.array_equal(decision.drifted, again.drifted)
    assert state_to_json(state, setup) == state_to_json(other, setup)
