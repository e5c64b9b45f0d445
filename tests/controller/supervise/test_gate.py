"""The meta-contract while a policy drives: demotion, the baseline after it, return by rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from contracts.compiled.meta import POLICY_METRICS
from contracts.telemetry import FleetTelemetry
from controller.initial import initial_state
from controller.loop import tick
from controller.ports import Observation, PolicyState, Proposal
from controller.state_json import state_from_json, state_to_json
from controller.supervise.meta import OPERATOR
from policies.registry import make_configuration
from policies.supervised import supervised_setup
from tests.support.fleets.operator import demote_by_operator, reset_by_operator
from tests.support.fleets.swinging import (
    FLEET,
    HOME,
    LAYOUT,
    META,
    OTHER,
    Swinging,
    demoted,
    later_script,
    turns_taken,
    watched,
)
from tests.support.fleets.worlds import drift, run, script, silence

OSCILLATION = POLICY_METRICS.index("oscillation_sign_changes_per_hour")


@pytest.mark.parametrize("period_s", [40.0, 61.0, 200.0])
def test_a_flapping_policy_is_demoted_at_its_fifth_turn(period_s: float) -> None:
    """Four sign changes an hour are allowed: six changes of place are five turns, and demote.

    The baseline drives at most ten ticks later (the shield may delay a move).
    """
    found = run(watched(Swinging(period_s=period_s)), script(LAYOUT, int(7.5 * period_s)))
    first = int(demoted(found).argmax())
    assert demoted(found)[first:].all()
    assert not demoted(found)[: int(6 * period_s)].any()
    assert first <= 6 * period_s + 10
    assert found.decisions[first].demotion_reason[0] == OSCILLATION


@pytest.mark.parametrize("baseline", ["threshold", "hysteresis"])
def test_after_a_demotion_the_fleet_does_what_the_baseline_does(baseline: str) -> None:
    """A minute later tables and quarantine are the baseline configuration's, byte for byte."""
    edits = (drift(LAYOUT, [0, 1, 2, 3], 520.0, 560.0), drift(LAYOUT, [4], 600.0))
    meta = replace(META, baseline=baseline)
    found = run(watched(Swinging(period_s=60.0), meta), script(LAYOUT, 700, *edits))
    alone = run(make_configuration(baseline, FLEET), script(LAYOUT, 700, *edits))
    since = int(demoted(found).argmax()) + 60
    assert 0 < since < 500
    assert (alone.tables()[520:] != alone.tables()[0]).any()
    assert found.tables()[since:].tobytes() == alone.tables()[since:].tobytes()
    assert found.quarantined()[since:].tobytes() == alone.quarantined()[since:].tobytes()


def test_a_policy_that_keeps_the_clauses_is_neither_demoted_nor_disturbed() -> None:
    """Hysteresis that leaves and returns decides under the meta-contract as without it, byte for byte."""
    edits = (drift(LAYOUT, [0, 1, 2, 3], 100.0, 160.0), silence(700.0, 725.0))
    configuration = make_configuration("hysteresis:dwell_s=60", FLEET)
    found = run(supervised_setup(META, configuration), script(LAYOUT, 1000, *edits))
    alone = run(configuration, script(LAYOUT, 1000, *edits))
    assert len(turns_taken(found)) >= 2
    assert not demoted(found).any()
    assert found.tables().tobytes() == alone.tables().tobytes()


def test_a_demoted_policy_returns_only_by_the_rule() -> None:
    """It drives again once it was clean for the stated time, up to the stated number of times."""
    meta = replace(META, repromote_after_s=300.0, most_repromotions=1)
    calm = run(watched(Swinging(until_at_s=420.0), meta), script(LAYOUT, 1000))
    states = demoted(calm)
    first = int(states.argmax())
    back = first + int((~states[first:]).argmax())
    assert states[first:back].all()
    assert not states[back:].any()
    shadow_turns = calm.state.supervisor["violated_at_s"][0]
    assert back + 1 == pytest.approx(max(first + 1, shadow_turns) + 300.0, abs=1.0)
    restless = demoted(run(watched(Swinging(period_s=45.0), meta), script(LAYOUT, 1500)))
    assert restless[int(restless.argmax()) :].all()


def test_returns_are_counted() -> None:
    """A policy that flaps, calms down and flaps again returns once and then stays demoted."""
    meta = replace(META, repromote_after_s=200.0, most_repromotions=1)

    class Relapsing(Swinging):
        def propose(self, observation: Observation, state: PolicyState) -> tuple[Proposal, PolicyState]:
            calm = (observation.now_s % 1000.0) > 500.0
            proposal, state = Swinging.propose(self, observation, state)
            table = proposal.table.copy()
            table[calm, :, HOME], table[calm, :, OTHER] = 1.0, 0.0
            return replace(proposal, table=table), state

    states = demoted(run(watched(Relapsing(period_s=50.0), meta), script(LAYOUT, 3000)))
    changes = np.flatnonzero(states[1:] != states[:-1])
    assert len(changes) == 3
    assert states[-1]


def test_an_operator_demotes_and_resets() -> None:
    """A policy stopped by the operator never returns by itself; after a reset it drives at once."""
    setup = watched(Swinging(period_s=1e9))
    found = run(setup, script(LAYOUT, 30))
    every_fleet = np.ones(1, dtype=np.bool_)
    stopped = demote_by_operator(found.state.supervisor, every_fleet, found.state.now_s)
    later = run(setup, later_script(30, 30), replace(found.state, supervisor=stopped))
    assert all(d.demoted[0] and d.demotion_reason[0] == OPERATOR for d in later.decisions)
    back = replace(later.state, supervisor=reset_by_operator(later.state.supervisor, every_fleet))
    assert not demoted(run(setup, later_script(60, 10), back)).any()


def test_decisions_do_not_depend_on_the_batch() -> None:
    """Two fleets in lock-step, one of them blind for a while, decide as each of them alone."""
    setup = watched(Swinging(period_s=45.0))
    blind = silence(50.0, 380.0)
    alone = [run(setup, script(LAYOUT, 450)), run(setup, script(LAYOUT, 450, blind))]
    together = initial_state(setup, 2)
    for index, (seen, unseen) in enumerate(
        zip(script(LAYOUT, 450, batch=2), script(LAYOUT, 450, blind, batch=2), strict=True)
    ):
        together, decision = tick(together, mixed(seen, unseen), setup)
        for fleet in (0, 1):
            one = alone[fleet].decisions[index]
            np.testing.assert_array_equal(decision.table[fleet], one.table[0])
            assert decision.demoted[fleet] == one.demoted[0]
    for fleet in (0, 1):
        for name, values in alone[fleet].state.supervisor.items():
            np.testing.assert_array_equal(together.supervisor[name][fleet], values[0], err_msg=name)
    assert demoted(alone[0])[-1]


def mixed(first: FleetTelemetry, second: FleetTelemetry) -> FleetTelemetry:
    """Fleet 0 of ``first`` and fleet 1 of ``second``."""

    def join(left: Any, right: Any) -> Any:
        return np.concatenate([np.asarray(left)[:1], np.asarray(right)[1:]])

    def joined(left: Any, right: Any) -> Any:
        return {n: join(getattr(left, n), getattr(right, n)) for n in left.__slots__ if n not in records}

    records = ("probes", "engine", "gateway")
    arrays = joined(first, second)
    probes = replace(first.probes, **joined(first.probes, second.probes))
    engine = replace(first.engine, **joined(first.engine, second.engine))
    gateway = replace(first.gateway, **joined(first.gateway, second.gateway))
    return replace(first, probes=probes, engine=engine, gateway=gateway, **arrays)


def test_a_restored_state_continues_as_it_would_have() -> None:
    """State written as JSON at any tick and read again takes the same later decisions."""
    setup = watched(Swinging(period_s=45.0), replace(META, repromote_after_s=100.0))
    whole = run(setup, script(LAYOUT, 500))
    for cut in (120, 290):
        begun = run(setup, script(LAYOUT, cut)).state
        restored = state_from_json(state_to_json(begun, setup), setup)
        rest = run(setup, later_script(cut, 500 - cut), restored)
        assert rest.tables().tobytes() == whole.tables()[cut:].tobytes()
        assert state_to_json(rest.state, setup) == state_to_json(whole.state, setup)


def test_watching_alone_counts_and_demotes_no_policy() -> None:
    """For a certificate the policy keeps driving; its would-be demotion is counted."""
    watching = watched(Swinging(period_s=45.0), watch_only=True)
    found = run(watching, script(LAYOUT, 400))
    assert not demoted(found).any()
    assert found.state.supervisor["demotions"][0] == 1
    bare = run(replace(watching, meta=None, baseline=None), script(LAYOUT, 400))
    assert found.tables().tobytes() == bare.tables().tobytes()


def test_blindness_holds_then_hands_over_and_costs_no_return() -> None:
    """After 15 s of blindness the table is held; after five minutes the baseline drives on known-good.

    With sight and the stated time without violation the policy is back, its returns unspent.
    """
    meta = replace(META, repromote_after_s=60.0)
    found = run(watched(Swinging(period_s=1e9), meta), script(LAYOUT, 500, silence(10.0, 350.0)))
    held = np.array([decision.held[0] for decision in found.decisions])
    degraded = np.array([decision.degraded[0] for decision in found.decisions])
    assert held[30:300].all()
    assert degraded[315:348].all()
    assert demoted(found)[311:380].all()
    assert not demoted(found)[-60:].any()
    assert found.state.supervisor["repromotions"][0] == 0


def test_the_shorter_of_both_limits_applies() -> None:
    """A meta-contract that holds after 5 s and degrades after 20 s does so under a laxer contract."""
    limit = META.limit.copy()
    limit[POLICY_METRICS.index("telemetry_age_s")] = 5.0
    limit[POLICY_METRICS.index("telemetry_age_before_fallback_s")] = 20.0
    meta = replace(META, limit=limit)
    found = run(watched(Swinging(period_s=1e9), meta), script(LAYOUT, 40, silence(10.0)))
    assert found.decisions[15].held[0]
    assert found.decisions[31].degraded[0]
