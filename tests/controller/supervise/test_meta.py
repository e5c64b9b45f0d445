"""What the supervisor reads of a policy, and the limits that it enforces."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from contracts.compiled.meta import POLICY_METRICS
from controller.loop import Controller
from controller.options import ShieldLimits
from controller.ports import Proposal
from controller.supervise.meta import DECISIONS, capped_ejections, note_decision, readings
from policies.registry import make_configuration
from policies.supervised import stricter_limits, supervised_setup
from tests.support.fleets.builders import make_contract, make_fleet
from tests.support.fleets.fakes import ManualClock, RecordingActuator, ScriptedTelemetry
from tests.support.fleets.swinging import FLEET, LAYOUT, META, Swinging, demoted, later_script, watched
from tests.support.fleets.worlds import drift, run, script


def test_shedding_beyond_the_limit_demotes_after_its_share_of_ten_minutes() -> None:
    """A tenth shed all the time passes 2 % of the trailing ten minutes at -600 ln(0.8) s = 134 s."""
    states = demoted(run(watched(Swinging(period_s=1e9, shed=0.1)), script(LAYOUT, 160)))
    assert int(states.argmax()) == pytest.approx(134, abs=2)


def test_shed_for_want_of_capacity_is_exempt() -> None:
    """Where all kernels together carry 90 % of what is offered, a tenth shed demotes no policy."""
    short = replace(FLEET, capacity_rps=np.full(3, 20.0 * 0.9 / 12))
    configuration = replace(make_configuration("threshold", short), policy=Swinging(period_s=1e9, shed=0.1))
    assert not demoted(run(supervised_setup(META, configuration), script(LAYOUT, 200))).any()


def test_slow_decisions_demote() -> None:
    """More than one decision in a hundred over the limit demotes, and one in three hundred does not."""
    setup = watched(Swinging(period_s=1e9))
    for slow_every, expected in ((50, True), (301, False)):
        state = run(setup, script(LAYOUT, 2)).state
        memory = state.supervisor
        for index in range(DECISIONS):
            memory = note_decision(memory, 50.0 if index % slow_every == 7 else 1.0)
        found = run(setup, later_script(2, 1), replace(state, supervisor=memory))
        assert demoted(found)[0] == expected


class Ticking(ManualClock):
    """A clock that advances by ``step_ms`` at every reading."""

    step_ms = 1.0

    def now_ms(self) -> float:
        """Advance, then read."""
        self.advance(self.step_ms)
        return super().now_ms()


@pytest.mark.parametrize(("step_ms", "expected"), [(4.0, False), (6.0, True)])
def test_the_controller_notes_how_long_a_decision_took(step_ms: float, expected: bool) -> None:
    """With a clock the controller notes each turn; slow ones demote once a hundred are known."""
    clock = Ticking()
    clock.step_ms = step_ms
    controller = Controller(watched(Swinging(period_s=1e9)), clock=clock)
    source, actuator = ScriptedTelemetry(script(LAYOUT, 103)), RecordingActuator()
    demotions = [bool(controller.turn(source, actuator)[0].demoted[0]) for _ in range(103)]
    assert not any(demotions[:100])
    assert demotions[101] == expected


def test_ejections_are_capped_and_a_third_of_the_fleet_trips_the_breaker() -> None:
    """At most half of a kernel's replicas leave; that is half of the fleet, so the baseline takes over."""
    found = run(watched(Swinging(period_s=1e9, eject=True)), script(LAYOUT, 4))
    in_rotation = found.decisions[0].plan.in_rotation[0].reshape(3, 4)
    assert (in_rotation.sum(axis=1) == 2).all()
    assert found.decisions[1].demoted[0]
    assert found.decisions[2].plan.in_rotation.all()


@pytest.mark.parametrize(("out", "expected"), [(0, 0.0), (1, 0.0), (2, 2 / 12), (4, 4 / 12)])
def test_one_replica_out_does_not_trip_the_breaker(out: int, expected: float) -> None:
    """In a small fleet one replica is a third; the breaker counts from two on."""
    setup = watched(Swinging())
    memory = run(setup, script(LAYOUT, 2)).state.supervisor
    ejected = np.arange(12)[None, :] < out
    read = readings(memory, ejected, np.zeros(1), np.full(1, 2.0), setup)
    assert read[0, POLICY_METRICS.index("fleet_ejected_ratio")] == expected


def test_the_cap_keeps_replicas_that_are_out_already() -> None:
    """Ejected replicas stay ejected before new ones are, and quarantine uses the cap first."""
    setup = watched(Swinging())
    wanted = np.ones((1, 12), dtype=np.bool_)
    before, quarantined = np.zeros_like(wanted), np.zeros_like(wanted)
    before[0, 3], quarantined[0, 4] = True, True
    proposal = Proposal(table=np.zeros((1, 2, 4)), ejected=wanted)
    allowed = capped_ejections(proposal, before, quarantined, setup)[0].reshape(3, 4)
    assert allowed[0].tolist() == [True, False, False, True]
    assert allowed[1].tolist() == [False, True, False, False]


def test_a_meta_contract_needs_a_baseline() -> None:
    """A set-up that can demote but has no baseline to hand over to is refused."""
    with pytest.raises(ValueError, match="hands over"):
        replace(make_configuration("threshold", FLEET), meta=META)


def test_of_two_limits_the_stricter_holds() -> None:
    """The shield's slew, dwell and canary share follow the stricter of both documents."""
    loose = ShieldLimits(max_move_ratio=0.5, min_dwell_s=10.0, canary_most_ratio=0.2)
    tight = ShieldLimits(max_move_ratio=0.1, min_dwell_s=90.0, canary_most_ratio=0.005)
    assert stricter_limits(loose, META) == replace(
        loose, max_move_ratio=0.25, min_dwell_s=30.0, canary_most_ratio=0.05
    )
    assert stricter_limits(tight, META) == replace(tight, canary_least_ratio=0.005)
    configuration = make_configuration("threshold", FLEET)
    configuration = replace(configuration, options=replace(configuration.options, limits=loose))
    assert supervised_setup(META, configuration).options.limits.max_move_ratio == 0.25


def test_shedding_chosen_by_the_contract_is_exempt() -> None:
    """Where no certified kernel lives and the contract sheds, the policy is not blamed."""
    contract = make_contract(LAYOUT, shed_when_uncertified=True)
    fleet = make_fleet(LAYOUT, contract=contract)
    everywhere = drift(LAYOUT, list(range(12)), 5.0)
    found = run(
        supervised_setup(META, make_configuration("hysteresis", fleet)), script(LAYOUT, 120, everywhere)
    )
    assert found.tables()[-1][:, -1].tolist() == [1.0, 1.0]
    assert found.state.supervisor["shed_requests"][0] == 0.0
    assert not demoted(found).any()
