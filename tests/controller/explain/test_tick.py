"""What the record of a tick contains."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from contracts.telemetry import FleetTelemetry, ProbeOutcome
from controller.explain.tick import explain, record_json
from controller.initial import initial_state
from controller.loop import tick
from controller.state import altered
from policies.registry import make_configuration
from tests.support.fleets.builders import Clause, make_contract, make_fleet, make_layout
from tests.support.fleets.worlds import drift, script

LAYOUT = make_layout(kernels=3, slices=2, per_kernel=2)
FLEET = make_fleet(LAYOUT)


def test_the_record_names_clause_weight_and_cause() -> None:
    """A shielded move is explained by the clause in alarm, its evidence and what forced it."""
    setup = make_configuration("shield-alone", FLEET)
    state, records = initial_state(setup, 1), []
    for seen in script(LAYOUT, 14, drift(LAYOUT, [0, 1], 0.0)):
        before = state
        state, decision = tick(before, seen, setup)
        records.append(explain(before, state, decision, setup))
    moved = next(record for record in records[1:] if record.moves and record.evidence)
    assert {move.slice for move in moved.moves} == {"s0", "s1"}
    away = next(move for move in moved.moves if move.target == "k0")
    assert away.after == 0.0
    assert away.proposed == pytest.approx(1.0 / 3.0)
    assert away.forced == pytest.approx(-1.0 / 3.0)
    assert away.because == ("N-hard on k0",)
    assert [(step.slice, "hard" in step.reasons) for step in moved.shield] == [("s0", True), ("s1", True)]
    evidence = moved.evidence[0]
    assert (evidence.kernel, evidence.clause_id, evidence.limit) == ("k0", "N-hard", 0.1)
    assert evidence.observations >= setup.contract.min_samples
    assert evidence.estimate == pytest.approx(0.5)
    assert json.loads(record_json(moved))["verdicts"][0]["level"] == "fallback"


def test_an_alarm_at_the_first_observation_shows_the_replicas_evidence() -> None:
    """A clause without tolerance condemns at the first wrong observation, and the record counts it."""

    def forged(seen: FleetTelemetry, now_s: float) -> FleetTelemetry:
        match = seen.fingerprint_match.copy()
        match[:, :2] = 0.0 if now_s >= 3.0 else 1.0
        return replace(seen, fingerprint_match=match)

    setup = make_configuration("threshold", FLEET)
    state = initial_state(setup, 1)
    for seen in script(LAYOUT, 3, forged):
        before = state
        state, decision = tick(before, seen, setup)
    record = explain(before, state, decision, setup)
    assert {move.target for move in record.moves} == {"k0", "k2"}
    assert {(e.kernel, e.clause_id, e.observations) for e in record.evidence} == {("k0", "O-print", 6.0)}
    assert record.evidence[0].estimate == pytest.approx(2.0 / 6.0)


def test_replicas_with_unreadable_probe_answers_are_named() -> None:
    """An unreadable answer is neither a value nor a failure: its replica is recorded and nothing moves."""

    def garbled(seen: FleetTelemetry, now_s: float) -> FleetTelemetry:
        struck = (seen.probes.replica == 1) & (now_s >= 3.0)
        seen.probes.outcome[struck], seen.probes.valid[struck] = int(ProbeOutcome.UNREADABLE), False
        seen.probes.values[struck] = np.nan
        return seen

    setup = make_configuration("sequential", FLEET)
    state, named = initial_state(setup, 1), []
    for seen in script(LAYOUT, 60, garbled):
        before = state
        state, decision = tick(before, seen, setup)
        record = explain(before, state, decision, setup)
        named.append(record.unreadable)
        assert not record.moves
        assert not record.quarantined
    assert named == [()] * 2 + [(LAYOUT.replicas[1],)] * 58


def test_the_lesser_evil_is_recorded_with_its_alternative() -> None:
    """The record names the soft cells, their weight, the loss per answer there, and the loss if shed.

    Here the compliant kernels carry half of the load.
    """
    soft = Clause(name="N-soft", hard=False, level=2, threshold=0.4)
    contract = make_contract(LAYOUT, (soft,), fallback_threshold=2.0)
    fleet = replace(FLEET, contract=contract, capacity_rps=np.full(3, 9.0))
    setup = make_configuration("threshold", fleet)
    state = initial_state(setup, 1)
    for seen in script(LAYOUT, 30, drift(LAYOUT, [0, 1, 2, 3], 0.0)):
        before = state
        state, decision = tick(before, replace(seen, offered=np.full_like(seen.offered, 20)), setup)
    record = explain(before, state, decision, setup)
    shown = {(one.slice, one.kernel) for one in record.lesser_evils}
    assert shown
    assert {kernel for _, kernel in shown} <= {"k0", "k1"}
    for one in record.lesser_evils:
        assert one.loss == pytest.approx(0.25 / 2.0)
        assert one.loss_if_shed == 1.0
        assert one.weight == state.table[0, int(one.slice[1]), int(one.kernel[1])]
    assert sum(move.after for move in record.moves if move.target == "shed") == 0.0


def test_assumed_loads_are_named() -> None:
    """Which kernel has more than its estimated capacity, and which one's queue is being worked off."""
    setup = make_configuration("threshold", FLEET)
    before = initial_state(setup, 1)
    state, decision = tick(before, next(iter(script(LAYOUT, 1, lambda seen, now_s: seen))), setup)
    ratio, queued = np.array([[1.32, 1.06, 1.4]]), np.array([[False, False, True]])
    load = {**state.load, "ratio": ratio, "proven_rps": 9.0 * state.replica_rps, "queued": queued}
    let = altered(state, load=load)
    said = explain(before, let, decision, setup).assumptions
    assert "k0: may carry 1.3 times its estimated capacity, it has no queue" in said
    assert "k2: its queue makes requests late, so less is admitted until it is worked off" in said
    assert not any(one.startswith("k1") for one in said)
