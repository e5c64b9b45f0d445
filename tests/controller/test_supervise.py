"""Laws of the meta-contract while a policy drives: demotion, the baseline behind it, return by rule."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from contracts.compiled_meta import METRICS, CompiledMeta
from contracts.telemetry import FleetTelemetry
from controller.loop import Controller, tick
from controller.ports import Observation, PolicyState, Proposal
from controller.setup import ControllerSetup, ShieldLimits
from controller.state import initial_state, state_from_json, state_to_json
from controller.supervise_meta import (
    DECISIONS,
    OPERATOR,
    capped_ejections,
    demote_by_operator,
    note_decision,
    reset_by_operator,
)
from policies.baselines import make_arm
from policies.supervised import shipped_meta, stricter, under
from tests.builders import make_contract, make_fleet, make_layout
from tests.fakes import ManualClock, RecordingActuator, ScriptedTelemetry
from tests.worlds import Run, drift, run, script, silence

LAYOUT = make_layout(kernels=3, slices=2, per_kernel=4)
FLEET = make_fleet(LAYOUT)
META = replace(shipped_meta(), baseline="threshold")
OSCILLATION = METRICS.index("oscillation_sign_changes_per_hour")
HOME, OTHER = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Swinging:
    """Everything at home, or on the next kernel, by turns of ``period_s``, until ``until_s``."""

    period_s: float = 60.0
    until_s: float = np.inf
    shed: float = 0.0
    eject: bool = False
    policy_id: str = "swinging"

    def initial(self, batch: int) -> PolicyState:
        """Counts its own calls, so that restored memory can be told from lost memory."""
        return {"calls": np.zeros(batch, dtype=np.int64)}

    def propose(self, seen: Observation, state: PolicyState) -> tuple[Proposal, PolicyState]:
        """All weight on one kernel; ``shed`` of it shed."""
        away = (seen.now_s // self.period_s).astype(np.int64) % 2 == 1
        away &= seen.now_s < self.until_s
        table = np.zeros(seen.table.shape)
        table[:, :, HOME] = np.where(away, 0.0, 1.0 - self.shed)[:, None]
        table[:, :, OTHER] = np.where(away, 1.0 - self.shed, 0.0)[:, None]
        table[:, :, -1] = self.shed
        ejected = np.full(seen.in_rotation.shape, self.eject)
        return Proposal(table=table, ejected=ejected), {"calls": state["calls"] + 1}


def watched(policy: Swinging | None = None, meta: CompiledMeta = META, **changes: object) -> ControllerSetup:
    """The arm ``threshold``, or ``policy`` in its place, under the shipped meta-contract."""
    arm = make_arm("threshold", FLEET)
    arm = arm if policy is None else replace(arm, policy=policy)
    return replace(under(meta, arm), **changes)  # type: ignore[arg-type]


def demoted(found: Run) -> NDArray[np.bool_]:
    """bool [T] of fleet 0."""
    return np.array([decision.demoted[0] for decision in found.decisions])


def turns_taken(found: Run) -> list[int]:
    """Ticks at which the executed weight at home crosses one half."""
    at_home = found.tables()[:, 0, HOME] > 0.5
    return [int(t) + 1 for t in np.flatnonzero(at_home[1:] != at_home[:-1])]


@pytest.mark.parametrize("period_s", [40.0, 61.0, 200.0])
def test_a_flapping_policy_is_demoted_when_its_fifth_turn_has_been_seen(period_s: float) -> None:
    """Four sign changes an hour are allowed: six changes of place are five turns, and the baseline drives
    at the latest ten ticks behind them (the shield may take some to let a move through).
    """
    found = run(watched(Swinging(period_s=period_s)), script(LAYOUT, int(7.5 * period_s)))
    first = int(demoted(found).argmax())
    assert demoted(found)[first:].all()
    assert not demoted(found)[: int(6 * period_s)].any()
    assert first <= 6 * period_s + 10
    assert found.decisions[first].demotion_reason[0] == OSCILLATION


@pytest.mark.parametrize("baseline", ["threshold", "hysteresis"])
def test_behind_a_demotion_the_fleet_does_what_the_baseline_does(baseline: str) -> None:
    """A minute behind it tables and quarantine are the baseline arm's, byte for byte."""
    edits = (drift(LAYOUT, [0, 1, 2, 3], 520.0, 560.0), drift(LAYOUT, [4], 600.0))
    meta = replace(META, baseline=baseline)
    found = run(watched(Swinging(period_s=60.0), meta), script(LAYOUT, 700, *edits))
    alone = run(make_arm(baseline, FLEET), script(LAYOUT, 700, *edits))
    since = int(demoted(found).argmax()) + 60
    assert 0 < since < 500
    assert (alone.tables()[520:] != alone.tables()[0]).any()
    assert found.tables()[since:].tobytes() == alone.tables()[since:].tobytes()
    assert found.quarantined()[since:].tobytes() == alone.quarantined()[since:].tobytes()


def test_a_policy_that_keeps_the_clauses_is_never_demoted_and_never_disturbed() -> None:
    """Hysteresis that leaves and returns decides under the meta-contract as without it, byte for byte."""
    edits = (drift(LAYOUT, [0, 1, 2, 3], 100.0, 160.0), silence(700.0, 725.0))
    arm = make_arm("hysteresis:dwell_s=60", FLEET)
    found = run(under(META, arm), script(LAYOUT, 1000, *edits))
    alone = run(arm, script(LAYOUT, 1000, *edits))
    assert len(turns_taken(found)) >= 2
    assert not demoted(found).any()
    assert found.tables().tobytes() == alone.tables().tobytes()


def test_a_demoted_policy_returns_by_the_rule_alone() -> None:
    """It drives again when it has been clean for the stated time, so often and no oftener."""
    meta = replace(META, repromote_after_s=300.0, most_repromotions=1)
    calm = run(watched(Swinging(until_s=420.0), meta), script(LAYOUT, 1000))
    states = demoted(calm)
    first = int(states.argmax())
    back = first + int((~states[first:]).argmax())
    assert states[first:back].all()
    assert not states[back:].any()
    shadow_turns = calm.state.supervisor["unclean_s"][0]
    assert back + 1 == pytest.approx(max(first + 1, shadow_turns) + 300.0, abs=1.0)
    restless = demoted(run(watched(Swinging(period_s=45.0), meta), script(LAYOUT, 1500)))
    assert restless[int(restless.argmax()) :].all()


def test_returns_are_counted() -> None:
    """A policy that flaps, calms down and flaps again comes back once and then stays where it is."""
    meta = replace(META, repromote_after_s=200.0, most_repromotions=1)

    class Relapsing(Swinging):
        def propose(self, seen: Observation, state: PolicyState) -> tuple[Proposal, PolicyState]:
            calm = (seen.now_s % 1000.0) > 500.0
            proposal, state = Swinging.propose(self, seen, state)
            table = proposal.table.copy()
            table[calm, :, HOME], table[calm, :, OTHER] = 1.0, 0.0
            return replace(proposal, table=table), state

    states = demoted(run(watched(Relapsing(period_s=50.0), meta), script(LAYOUT, 3000)))
    changes = np.flatnonzero(states[1:] != states[:-1])
    assert len(changes) == 3
    assert states[-1]


def test_an_operator_demotes_and_resets() -> None:
    """A policy that the operator stopped never returns by itself; reset, it drives at once."""
    setup = watched(Swinging(period_s=1e9))
    found = run(setup, script(LAYOUT, 30))
    everybody = np.ones(1, dtype=np.bool_)
    stopped = demote_by_operator(found.state.supervisor, everybody, found.state.now_s)
    later = run(setup, later_script(30, 30), replace(found.state, supervisor=stopped))
    assert all(d.demoted[0] and d.demotion_reason[0] == OPERATOR for d in later.decisions)
    back = replace(later.state, supervisor=reset_by_operator(later.state.supervisor, everybody))
    assert not demoted(run(setup, later_script(60, 10), back)).any()


def later_script(after: int, ticks: int) -> Iterator[FleetTelemetry]:
    """The world of ``script`` from tick ``after`` on."""
    for index, seen in enumerate(script(LAYOUT, after + ticks)):
        if index >= after:
            yield seen


def test_decisions_do_not_depend_on_the_batch() -> None:
    """Two fleets in lock-step, one of which is blind for a while, decide as each of them alone."""
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

    probes = replace(
        first.probes,
        **{n: join(getattr(first.probes, n), getattr(second.probes, n)) for n in first.probes.__slots__},
    )
    arrays = {
        n: join(getattr(first, n), getattr(second, n)) for n in first.__slots__ if n != "probes"
    }  # fmt: skip
    return replace(first, probes=probes, **arrays)


def test_restored_in_the_middle_it_goes_on_as_it_would_have() -> None:
    """State written as JSON at any tick and read again takes the same later decisions."""
    setup = watched(Swinging(period_s=45.0), replace(META, repromote_after_s=100.0))
    whole = run(setup, script(LAYOUT, 500))
    for cut in (120, 290):
        begun = run(setup, script(LAYOUT, cut)).state
        restored = state_from_json(state_to_json(begun, setup), setup)
        rest = run(setup, later_script(cut, 500 - cut), restored)
        assert rest.tables().tobytes() == whole.tables()[cut:].tobytes()
        assert state_to_json(rest.state, setup) == state_to_json(whole.state, setup)


def test_watching_alone_counts_and_demotes_nobody() -> None:
    """For a certificate the policy drives on; that it would have been demoted is counted."""
    watching = watched(Swinging(period_s=45.0), watch_only=True)
    found = run(watching, script(LAYOUT, 400))
    assert not demoted(found).any()
    assert found.state.supervisor["demotions"][0] == 1
    bare = run(replace(watching, meta=None, baseline=None), script(LAYOUT, 400))
    assert found.tables().tobytes() == bare.tables().tobytes()


def test_shedding_beyond_the_limit_demotes_after_its_share_of_ten_minutes() -> None:
    """A tenth shed all the time passes 2 % of the trailing ten minutes at -600 ln(0.8) s = 134 s."""
    states = demoted(run(watched(Swinging(period_s=1e9, shed=0.1)), script(LAYOUT, 160)))
    assert int(states.argmax()) == pytest.approx(134, abs=2)


def test_shed_for_want_of_capacity_is_exempt() -> None:
    """Where every kernel together carries 90 % of what is offered, a tenth shed demotes nobody."""
    short = replace(FLEET, capacity_rps=np.full(3, 20.0 * 0.9 / 12))
    arm = replace(make_arm("threshold", short), policy=Swinging(period_s=1e9, shed=0.1))
    assert not demoted(run(under(META, arm), script(LAYOUT, 200))).any()


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
    """Every look at it takes ``step_ms``."""

    step_ms = 1.0

    def now_ms(self) -> float:
        """Moves on."""
        self.advance(self.step_ms)
        return super().now_ms()


@pytest.mark.parametrize(("step_ms", "expected"), [(4.0, False), (6.0, True)])
def test_the_edge_tells_the_supervisor_how_long_a_decision_took(step_ms: float, expected: bool) -> None:
    """With a clock at its edge the controller notes each turn; slow ones demote once a hundred are known."""
    clock = Ticking()
    clock.step_ms = step_ms
    controller = Controller(watched(Swinging(period_s=1e9)), clock=clock)
    source, actuator = ScriptedTelemetry(script(LAYOUT, 103)), RecordingActuator()
    demotions = [bool(controller.turn(source, actuator)[0].demoted[0]) for _ in range(103)]
    assert not any(demotions[:100])
    assert demotions[101] == expected


def test_blindness_holds_then_hands_over_and_costs_no_return() -> None:
    """Older than 15 s the table is held; after five minutes the known-good kernel serves and the baseline
    drives; with sight and an hour without violation the policy is back, its returns unspent.
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


def test_the_meta_contract_is_stricter_where_it_is_shorter() -> None:
    """A meta-contract that holds after 5 s and degrades after 20 s does so under a laxer contract."""
    limit = META.limit.copy()
    limit[METRICS.index("telemetry_age_s")] = 5.0
    limit[METRICS.index("telemetry_age_before_fallback_s")] = 20.0
    meta = replace(META, limit=limit)
    found = run(watched(Swinging(period_s=1e9), meta), script(LAYOUT, 40, silence(10.0)))
    assert found.decisions[15].held[0]
    assert found.decisions[31].degraded[0]


def test_ejections_are_capped_and_a_third_of_the_fleet_trips_the_breaker() -> None:
    """At most half of a kernel's replicas leave; that is half of the fleet, so the baseline takes over."""
    found = run(watched(Swinging(period_s=1e9, eject=True)), script(LAYOUT, 4))
    in_rotation = found.decisions[0].plan.in_rotation[0].reshape(3, 4)
    assert (in_rotation.sum(axis=1) == 2).all()
    assert found.decisions[1].demoted[0]
    assert found.decisions[2].plan.in_rotation.all()


def test_the_cap_keeps_those_who_are_out_already() -> None:
    """Who was ejected stays ejected before anybody new, and quarantine takes its places first."""
    setup = watched(Swinging())
    wanted = np.ones((1, 12), dtype=np.bool_)
    before, quarantined = np.zeros_like(wanted), np.zeros_like(wanted)
    before[0, 3], quarantined[0, 4] = True, True
    proposal = Proposal(table=np.zeros((1, 2, 4)), ejected=wanted)
    allowed = capped_ejections(proposal, before, quarantined, setup)[0].reshape(3, 4)
    assert allowed[0].tolist() == [True, False, False, True]
    assert allowed[1].tolist() == [False, True, False, False]


def test_a_meta_contract_needs_a_baseline() -> None:
    """A set-up that could demote but has nobody to hand over to is refused."""
    with pytest.raises(ValueError, match="hands over"):
        replace(make_arm("threshold", FLEET), meta=META)


def test_of_two_limits_the_stricter_holds() -> None:
    """The shield moves as slowly, rests as long and lets a canary have as little as either document says."""
    loose = ShieldLimits(max_move_ratio=0.5, min_dwell_s=10.0, canary_most_ratio=0.2)
    tight = ShieldLimits(max_move_ratio=0.1, min_dwell_s=90.0, canary_most_ratio=0.005)
    assert stricter(loose, META) == replace(
        loose, max_move_ratio=0.25, min_dwell_s=30.0, canary_most_ratio=0.05
    )
    assert stricter(tight, META) == replace(tight, canary_least_ratio=0.005)
    arm = make_arm("threshold", FLEET)
    arm = replace(arm, options=replace(arm.options, limits=loose))
    assert under(META, arm).options.limits.max_move_ratio == 0.25


def test_shed_by_the_contracts_own_choice_is_exempt() -> None:
    """Where no certified kernel lives and the contract sheds, the policy is not to blame."""
    contract = make_contract(LAYOUT, shed_when_uncertified=True)
    fleet = make_fleet(LAYOUT, contract=contract)
    everywhere = drift(LAYOUT, list(range(12)), 5.0)
    found = run(under(META, make_arm("hysteresis", fleet)), script(LAYOUT, 120, everywhere))
    assert found.tables()[-1][:, -1].tolist() == [1.0, 1.0]
    assert found.state.supervisor["shed_requests"][0] == 0.0
    assert not demoted(found).any()
