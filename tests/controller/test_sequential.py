"""Laws of the sequential detector: the theory's own numbers, recovery, levers, budget."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from contracts.compiled import CompiledContract, Source
from contracts.detect.budget import Budget
from contracts.detect.fold_compiled import UNITS, statistic
from contracts.detect.protocol import update
from contracts.detect.recovery import MeanRecovery, healthy_threshold
from contracts.telemetry import FleetTelemetry, ProbeSamples
from controller.detectors import Arrivals, DetectorState, Verdicts, WindowDetector
from controller.sequential import SequentialDetector
from controller.sequential_plan import sequential_plan
from controller.setup import FleetSetup
from policies.baselines import make_arm
from tests.builders import Clause, make_contract, make_fleet, make_layout
from tests.worlds import Edit, drift, run, script, silence

MEAN = Clause(threshold=0.1, clip=1.0)
RATE = Clause(name="N-rate", threshold=0.5, rate_limit=0.2, hard=False, level=2)
#: Budget at which one pooled stream of one clause, one unit a second, has an ARL0 of 200 units.
BUDGET_OF_200 = 30.0 * 86400.0 / 200.0 / Budget().kernel_share
ONE = make_layout(kernels=1, slices=1, per_kernel=1)


def fleet_of(*clauses: Clause, **changes: object) -> FleetSetup:
    """One replica, one slice."""
    return make_fleet(ONE, contract=make_contract(ONE, clauses, **changes), home=np.zeros(1, dtype=np.int64))


def sequential_detector(
    fleet: FleetSetup, *, paired: bool = False, prior: bool = False, spread: bool = True, **settings: float
) -> SequentialDetector:
    """The detector of ``fleet``."""
    plan = sequential_plan(fleet, paired=paired, prior=prior, spread=spread, traffic=None, **settings)
    return SequentialDetector(plan=plan)


def logged(state: DetectorState, name: str = "cells") -> np.ndarray:
    """Log-evidence of the detector's streams, by slice or (``anywhere``) over all."""
    return statistic(np.asarray(state[name], dtype=np.float64))


def arrivals(values: np.ndarray, contract: CompiledContract, *, doubted: bool = False) -> Arrivals:
    """One tick of B fleets with the probes ``values`` [B, P] of one replica and slice, pooled by kernel."""
    batch, slots = values.shape
    zeros = np.zeros((batch, slots), dtype=np.int64)
    probes = ProbeSamples(
        replica=zeros, slice=zeros, prompt=zeros, sampled_at_ms=np.zeros((batch, slots)),
        values=np.repeat(values[:, :, None], 2, axis=2), valid=np.ones((batch, slots), dtype=np.bool_),
    )  # fmt: skip
    shape = (batch, 1, 1, len(contract.clause_ids))
    sums = np.zeros((*shape, 4))
    sums[..., 0] = slots
    sums[..., 1] = np.minimum(values, 1.0).sum(axis=1)[:, None, None, None]
    return Arrivals(
        pooled=True, probes=probes, heard=probes.valid, unit_of=np.zeros(1, dtype=np.int64), sums=sums,
        doubted=np.full(shape, doubted), since_s=np.ones(batch),
    )  # fmt: skip


def feed(
    detector: SequentialDetector, ticks: list[np.ndarray], contract: CompiledContract,
    state: DetectorState | None = None, *, doubted: bool = False,
) -> tuple[list[Verdicts], DetectorState]:  # fmt: skip
    """Verdicts after each tick of probe values [B, P]."""
    state = state or detector.initial(len(ticks[0]), 1, contract)
    verdicts, closed = [], np.zeros(len(ticks[0]), dtype=np.bool_)
    for values in ticks:
        seen = arrivals(values, contract, doubted=doubted)
        verdict, state = detector.update(state, seen.sums, closed, contract, seen)
        verdicts.append(verdict)
    return verdicts, state


def test_probes_of_a_tick_count_one_by_one() -> None:
    """Three probes in one tick leave the same evidence as the stream's own detector fed three times."""
    fleet = fleet_of(MEAN, replace(RATE, threshold=0.2))
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
    fleet = fleet_of(MEAN, RATE)
    detector = sequential_detector(fleet, budget_per_slice_month=2.0 * BUDGET_OF_200)
    rng = np.random.Generator(np.random.PCG64(2))
    law = [rng.choice([0.05, 0.3], size=(400, 1), p=[0.8, 0.2]) for _ in range(600)]
    contract = replace(fleet.contract, threshold=np.array([0.1, 0.2]))
    fold = detector.plan.fold._replace(threshold=contract.threshold)
    detector = replace(detector, plan=replace(detector.plan, contract=contract, fold=fold))
    state, alarms = detector.initial(400, 1, contract), np.zeros(2, dtype=np.int64)
    for values in law:
        _, state = feed(detector, [values], contract, state)
        alarms += (state["cells"][:, 0, 0, :, UNITS] == 0.0).sum(axis=0)  # an alarm starts the evidence anew
    for clause, count in enumerate(alarms.tolist()):
        arl0 = math.exp(detector.plan.thresholds.kernel[0, 0, clause])
        assert arl0 == pytest.approx(200.0)
        assert 400 * 600 / stats.gamma.ppf(0.99, count + 1) >= arl0
        assert count > 0


def test_traffic_streams_have_a_higher_threshold_than_the_guarantee_asks_for() -> None:
    """Scrapes are not independent, so the ARL0 behind their threshold is the stated multiple."""
    clause = Clause(source=Source.FAILED, threshold=0.02, hard=False)
    plain, raised = (
        sequential_detector(fleet_of(clause), traffic_factor=factor).plan.thresholds.replica.item()
        for factor in (1.0, 14.0)
    )
    assert raised - plain == pytest.approx(math.log(14.0))


def test_limit_zero_alarms_at_the_first_unit() -> None:
    """One unit over a limit of 0 is an alarm, and no budget delays it."""
    fleet = fleet_of(Clause(threshold=0.5, rate_limit=0.0), false_switch_budget_per_slice_month=1e-6)
    verdicts, _ = feed(sequential_detector(fleet), [np.array([[0.4]]), np.array([[0.6]])], fleet.contract)
    assert [v.alarm.item() for v in verdicts] == [False, True]


def test_recovery_is_the_stated_test() -> None:
    """An alarm ends at the unit at which the e-process of "still broken" reaches the stated confidence."""
    fleet = fleet_of(MEAN)
    detector = sequential_detector(fleet, confidence=0.9)
    ill, well = np.full((1, 1), 0.9), np.full((1, 1), 0.01)
    verdicts, state = feed(detector, [ill] * 30, fleet.contract)
    last = max(i for i in range(30) if verdicts[i].alarm.item())
    assert last == 29
    state["health"][:] = 1.0
    verdicts, _ = feed(detector, [well] * 80, fleet.contract, state)
    test = MeanRecovery(null_mean=0.1, upper=1.0)
    memory, units = test.initial(1), 0
    while memory.statistic.item() < healthy_threshold(0.9):
        memory, _ = update(test, memory, np.array([0.01]), np.array([True]))
        units += 1
    assert [v.alarm.item() for v in verdicts].index(False) + 1 == units
    assert verdicts[units - 1].inside.item()


def test_a_broken_stream_is_rarely_called_healthy() -> None:
    """At the limit, attempts that end in "healthy" are at most 1 - confidence of all (3 standard errors)."""
    fleet = fleet_of(MEAN)
    detector = sequential_detector(fleet, confidence=0.8)
    rng, streams = np.random.Generator(np.random.PCG64(5)), 1500
    law = [np.where(rng.random((streams, 1)) < 0.1, 1.0, 0.0) for _ in range(250)]
    verdicts, _ = feed(detector, law, fleet.contract, doubted=True)
    healed = np.stack([v.inside[:, 0, 0, 0] for v in verdicts]).any(axis=0).mean()
    assert 0.02 < healed <= 0.2 + 3.0 * math.sqrt(0.2 * 0.8 / streams)


def test_a_further_alarm_begins_the_recovery_anew() -> None:
    """Evidence of health from before a further alarm counts for nothing."""
    fleet = fleet_of(MEAN)
    detector = sequential_detector(fleet, confidence=0.9999)
    ill, well = np.full((1, 1), 0.9), np.full((1, 1), 0.0)
    _, state = feed(detector, [ill] * 20 + [well] * 60, fleet.contract)
    assert state["health"].mean() > 1.0
    _, state = feed(detector, [ill] * 20, fleet.contract, state)
    assert max(state["health"].ravel().tolist()) <= 1.0
    assert state["alarm"].item()


def test_alarms_on_traffic_end_in_silence() -> None:
    """Only traffic can tell that a failing replica is well again, so five silent windows end its alarm."""
    clause = Clause(source=Source.FAILED, threshold=0.1, hard=False)
    fleet = fleet_of(clause)
    detector = sequential_detector(fleet)
    nothing = np.zeros((1, 0))
    failing = replace(
        arrivals(nothing, fleet.contract), sums=np.array([5.0, 5.0, 5.0, 5.0]).reshape(1, 1, 1, 1, 4)
    )
    state, closed, quiet = (
        detector.initial(1, 1, fleet.contract),
        np.array([False]),
        arrivals(nothing, fleet.contract),
    )
    for _ in range(30):
        verdict, state = detector.update(state, failing.sums, closed, fleet.contract, failing)
    assert verdict.alarm.item()
    lasted = 0
    while verdict.alarm.item():
        verdict, state = detector.update(state, quiet.sums, closed, fleet.contract, quiet)
        lasted += 1
    assert lasted == 5.0 * fleet.contract.window_s
    assert verdict.inside.item()
    assert verdict.fresh.item()


@pytest.mark.parametrize("name", ["window", "sequential"])
def test_forgetting_is_a_fresh_start(name: str) -> None:
    """Where a detector forgets it is as before its first tick, elsewhere nothing changes."""
    fleet = fleet_of(MEAN, RATE)
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


LAYOUT = make_layout(kernels=3, slices=2, per_kernel=4)
FLEET = make_fleet(LAYOUT)


def test_one_drifting_replica_is_quarantined_and_its_kernel_stays() -> None:
    """Evidence that a departed replica took part in does not condemn the kernel."""
    ticks = run(make_arm("sequential", FLEET), script(LAYOUT, 90, drift(LAYOUT, [1], 30.0)))
    assert ticks.quarantined()[-1].tolist() == [r == 1 for r in range(12)]
    assert (ticks.tables()[:, :, 0] == 1.0).all()


def test_a_drifting_build_is_left_within_seconds() -> None:
    """All replicas drift: the slices leave sooner than a window could close, and nobody is quarantined."""
    ticks = run(make_arm("sequential", FLEET), script(LAYOUT, 60, drift(LAYOUT, [0, 1, 2, 3], 30.0)))
    left = int((ticks.tables()[:, :, 0] == 0.0).all(axis=1).argmax()) + 1
    assert 30 < left <= 34
    assert not ticks.quarantined().any()


def test_a_healed_replica_returns_by_evidence() -> None:
    """A quarantined replica comes back once probes have spoken for it, not while it drifts."""
    edits = drift(LAYOUT, [1], 30.0, 200.0)
    away = run(make_arm("sequential", FLEET), script(LAYOUT, 560, edits)).quarantined()[:, 1]
    assert away[60:200].all()
    assert not away[-1]


def test_silence_is_no_evidence() -> None:
    """Without telemetry nothing is alarmed and nothing recovers."""
    setup = make_arm("sequential", FLEET)
    quiet = run(setup, script(LAYOUT, 60, silence(20.0)))
    assert (quiet.tables()[:, :, 0] == 1.0).all()
    ill = run(setup, script(LAYOUT, 120, drift(LAYOUT, [0, 1, 2, 3], 10.0, 30.0), silence(30.0)))
    assert ill.decisions[-1].judgement.alarm[0, 0].any()


def test_windows_can_be_tuned_by_name() -> None:
    """An arm's window_s and min_samples replace the contract's, and nothing else does."""
    tuned = make_arm("hysteresis:window_s=20,min_samples=7", FLEET).contract
    assert (tuned.window_s, tuned.min_samples) == (20.0, 7)
    assert make_arm("hysteresis", FLEET).fleet is FLEET


def test_a_replica_is_watched_over_all_its_slices() -> None:
    """Where each slice alone has too little to show, the replica's evidence over all of them is an alarm."""
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
        assert logged(state, "anywhere").max() < levels.anywhere.min()
    alone = detector.plan.clauses.detector(0)
    memory, statistic, units = alone.initial(1), np.zeros(1), 0
    while statistic.item() < levels.anywhere.item():
        memory, statistic = update(alone, memory, np.array([0.6]), np.array([True]))
        units += 1
    assert tick == units
    assert verdict.alarm.sum() == 1
    assert verdict.excess.max() == pytest.approx(5.0)


def slice_probe(fleet: FleetSetup, slice_: int, value: float) -> Arrivals:
    """One probe of the only replica on one slice."""
    seen = arrivals(np.array([[value]]), fleet.contract)
    shape = (1, 1, len(fleet.layout.slices), len(fleet.contract.clause_ids))
    sums = np.zeros((*shape, 4))
    sums[:, :, slice_, :, :2] = 1.0, value
    return replace(
        seen, pooled=False, sums=sums, doubted=np.zeros(shape, dtype=np.bool_),
        probes=replace(seen.probes, slice=np.array([[slice_]])),
    )  # fmt: skip


def test_a_kernel_in_alarm_on_one_slice_is_suspect_on_the_others() -> None:
    """The second slice's threshold falls to the suspects' as soon as the first slice is in alarm."""
    layout = make_layout(kernels=1, slices=2, per_kernel=1)
    fleet = make_fleet(layout, contract=make_contract(layout, (MEAN,)), home=np.zeros(2, dtype=np.int64))
    detector = sequential_detector(fleet)
    levels, closed = detector.plan.thresholds, np.array([False])
    state, first = detector.initial(1, 1, fleet.contract), -1
    for tick in range(100):
        seen = replace(slice_probe(fleet, tick % 2, 0.9 if tick % 2 else 0.3), pooled=True)
        before = logged(state)[0, 0, 0, 0]
        verdict, state = detector.update(state, seen.sums, closed, fleet.contract, seen)
        rung = verdict.alarm[0, 0, :, 0].tolist()
        first = tick if first < 0 and rung[1] else first
        assert not rung[0] or rung[1]
        if rung[0]:
            break
    assert first >= 0
    assert before < levels.kernel[0, 0, 0]
    assert levels.suspect[0, 0] == pytest.approx(math.log(1000.0))


def test_what_a_kernel_is_condemned_for_quarantines_no_replica() -> None:
    """A build drifts, on one replica earlier than on the others: the kernel is left, the others stay in."""
    early = drift(LAYOUT, [2], 28.0)
    ticks = run(make_arm("sequential", FLEET), script(LAYOUT, 90, early, drift(LAYOUT, [0, 1, 2, 3], 30.0)))
    assert (ticks.tables()[-1, :, 0] == 0.0).all()
    assert not ticks.quarantined()[-1, [0, 1, 3]].any()


def late(from_s: float, offered: int) -> Edit:
    """From ``from_s`` on all answers are late; all the while ``offered`` requests a second per slice."""

    def edit(seen: FleetTelemetry, now_s: float) -> FleetTelemetry:
        latency_le = seen.latency_le.copy()
        if now_s > from_s:
            latency_le[..., :-1] = 0
        return replace(seen, latency_le=latency_le, offered=np.full_like(seen.offered, offered))

    return edit


@pytest.mark.parametrize("arm", ["sequential", "hysteresis"])
@pytest.mark.parametrize(("offered", "alarm"), [(10, True), (190, True), (210, False)])
def test_late_answers_of_an_overloaded_kernel_say_nothing_of_it(offered: int, alarm: bool, arm: str) -> None:
    """The same late answers condemn a kernel within its capacity (400 a second) and not one beyond it."""
    layout = make_layout(kernels=1, slices=2, per_kernel=4)
    edits = late(60.0, offered)
    ticks = run(make_arm(arm, make_fleet(layout)), script(layout, 190, edits))
    assert any(decision.judgement.alarm[0, 0].any() for decision in ticks.decisions) == alarm
