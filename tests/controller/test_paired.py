"""The paired form in the controller: a change is seen, shown, forgotten by evidence, and never a switch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from contracts.certified import CertifiedValues, certified_values
from contracts.detect.paired import paired_detector, paired_score
from contracts.detect.protocol import update
from contracts.streams import stream
from contracts.telemetry import FleetTelemetry, ProbeSamples
from controller.explain import explain
from controller.loop import tick
from controller.paired import FLAG_SHARE, PairedPlan, initial_paired, paired_plan, paired_tick
from controller.sequential_plan import sequential_plan
from controller.setup import FleetSetup
from controller.state import initial_state, state_from_json, state_to_json
from policies.baselines import make_arm
from tests.builders import make_fleet, make_layout, quiet_telemetry
from tests.worlds import Run, run

LAYOUT = make_layout(kernels=2, slices=2, per_kernel=4)
PROMPTS = 40


def certified(noise: float = 0.0) -> CertifiedValues:
    """Healthy values of forty prompts on two kernels, twice measured, well inside the test contract."""
    rng = stream(3, "certified")
    values = [np.repeat(rng.uniform(0.005, 0.02, (PROMPTS, 1, 2)), 2, axis=1) for _ in range(2)]
    ids = np.arange(PROMPTS, dtype=np.int64) * 7 + 5
    return certified_values(ids[::-1], ids[::-1] % 2, [block[::-1] for block in values], noise)


def fleet_of(noise: float = 0.0) -> FleetSetup:
    """A fleet whose kernels were certified."""
    return replace(make_fleet(LAYOUT), certified=certified(noise))


def plan_of(fleet: FleetSetup, **settings: Any) -> PairedPlan:
    """The paired form of ``fleet``."""
    plan = paired_plan(fleet, **settings)
    assert plan is not None
    return plan


Change = Callable[[NDArray[np.float64], NDArray[np.int64], float], NDArray[np.float64]]


def same(values: NDArray[np.float64], replica: NDArray[np.int64], now_s: float) -> NDArray[np.float64]:
    """Nothing changes."""
    return values


def scaled(replicas: list[int], factor: float, from_s: float, until_s: float = np.inf) -> Change:
    """The first metric of these replicas is ``factor`` times what it was, for a time."""

    def change(values: NDArray[np.float64], replica: NDArray[np.int64], now_s: float) -> NDArray[np.float64]:
        hit = np.isin(replica, replicas) & (from_s < now_s <= until_s)
        return np.where(hit[:, None] * np.array([1.0, 0.0]) > 0.0, values * factor, values)

    return change


def probes_at(
    fleet: FleetSetup, now_s: float, rng: np.random.Generator, change: Change = same
) -> ProbeSamples:
    """Every replica answers one probe of every slice; with repeat noise where the fleet states some."""
    known = fleet.certified
    assert known is not None
    replica, slice_ = (part.ravel() for part in np.indices((len(LAYOUT.replicas), len(LAYOUT.slices))))
    row = rng.integers(0, PROMPTS, replica.size)
    values = known.values[LAYOUT.replica_kernel[replica], row, 0]
    values = change(values, replica, now_s) * np.exp(known.repeat_noise * rng.standard_normal(values.shape))
    return ProbeSamples(
        replica=replica[None], slice=slice_[None], prompt=known.prompts[row][None],
        sampled_at_ms=np.full((1, row.size), now_s * 1000.0), values=values[None],
        valid=np.ones((1, row.size), dtype=np.bool_),
    )  # fmt: skip


def told(fleet: FleetSetup, seconds: int, change: Change = same, seed: int = 1) -> Iterator[FleetTelemetry]:
    """One telemetry a second."""
    rng = stream(seed, "told")
    for index in range(1, seconds + 1):
        quiet = quiet_telemetry(LAYOUT, float(index))
        yield replace(quiet, probes=probes_at(fleet, float(index), rng, change))


def changed(ticks: Run) -> NDArray[np.bool_]:
    """bool [T, R] of fleet 0."""
    flags = [decision.changed for decision in ticks.decisions]
    return np.stack([flag[0] for flag in flags if flag is not None])


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_streams_are_those_of_the_plain_paired_detector(noise: float) -> None:
    """Each (replica, metric) stream's evidence equals the plain detector's, fed with the plain scores."""
    fleet = fleet_of(noise)
    plan, known, rng = plan_of(fleet), certified(noise), stream(5, "plain")
    state, detector = initial_paired(1, plan), paired_detector()
    plain = [detector.initial(1) for _ in range(2)]
    for now_s in range(12):
        probes = probes_at(fleet, float(now_s), rng, scaled([2], 1.0 + noise, 0.0))
        state = paired_tick(state, probes, probes.valid, plan)
        for p in np.flatnonzero(probes.replica[0] == 2):
            row = int(known.rows(probes.prompt)[0, p])
            for m in range(2):
                score = paired_score(
                    probes.values[0, p, m : m + 1], known.values[0, row, 0, m : m + 1], noise
                )
                plain[m], _ = update(detector, plain[m], score, np.ones(1, dtype=np.bool_))
    assert not np.asarray(state["changed"]).any()
    expected = np.stack([one.memory[0] for one in plain])
    np.testing.assert_allclose(np.asarray(state["evidence"])[0, 2], expected, rtol=1e-9)


def test_without_noise_any_difference_flags_its_replica_at_once_and_nobody_else() -> None:
    """Equal repeats never flag; the smallest representable difference of one metric does, on its replica."""
    fleet = fleet_of()
    plan, rng = plan_of(fleet), stream(6, "once")
    state = initial_paired(1, plan)
    for now_s in range(300):
        probes = probes_at(fleet, float(now_s), rng)
        state = paired_tick(state, probes, probes.valid, plan)
    assert not np.asarray(state["changed"]).any()
    probes = probes_at(fleet, 300.0, rng)
    probes.values[0, 5, 1] = np.nextafter(probes.values[0, 5, 1], np.inf)
    state = paired_tick(state, probes, probes.valid, plan)
    assert np.flatnonzero(np.asarray(state["changed"])[0]).tolist() == [int(probes.replica[0, 5])]


def test_one_of_several_certified_repeats_is_enough() -> None:
    """Where repeats differed when the kernel was certified, a probe that equals any of them is no change."""
    fleet = fleet_of()
    known = certified()
    values = known.values.copy()
    values[:, :, 1] *= 1.01
    fleet = replace(fleet, certified=replace(known, values=values))
    plan, rng = plan_of(fleet), stream(7, "repeats")
    state = initial_paired(1, plan)
    for now_s in range(50):
        factor = 1.01 if now_s % 2 else 1.0
        probes = probes_at(fleet, float(now_s), rng)
        probes.values[0] *= factor
        for p in range(probes.values.shape[1]):
            row = known.rows(probes.prompt)[0, p]
            probes.values[0, p] = values[LAYOUT.replica_kernel[probes.replica[0, p]], row, now_s % 2]
        state = paired_tick(state, probes, probes.valid, plan)
    assert not np.asarray(state["changed"]).any()


def test_with_stated_noise_false_flags_are_as_rare_as_declared() -> None:
    """Under the stated noise the mean run to a false flag is at least the declared ARL0 (99 %)."""
    fleet, flags, units = fleet_of(0.05), 0, 0
    month = 30.0 * 86400.0
    budget = month / 200.0 / FLAG_SHARE * len(LAYOUT.replicas) * 2 * 2
    plan, rng = plan_of(fleet, budget_per_slice_month=budget), stream(8, "null")
    assert plan.arl0 == pytest.approx(200.0)
    state = initial_paired(1, plan)
    for now_s in range(2000):
        probes = probes_at(fleet, float(now_s), rng)
        state = paired_tick(state, probes, probes.valid, plan)
        flags, units = flags + int(np.asarray(state["changed"]).sum()), units + 2 * len(LAYOUT.replicas)
        state = {**state, "changed": np.zeros_like(state["changed"])}
    streams = 2  # metrics, whose alarms add up
    assert flags > 0
    assert streams * units / stats.gamma.ppf(0.99, flags + 1) >= plan.arl0


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_a_change_is_forgotten_when_probes_match_again(noise: float) -> None:
    """The flag stands while values are off and falls within two minutes after they are back."""
    fleet = fleet_of(noise)
    ticks = run(make_arm("sequential", fleet), told(fleet, 260, scaled([1], 1.6, 20.0, 120.0)))
    flags = changed(ticks)
    assert flags[24:120, 1].all()
    assert not flags[240:, 1].any()
    assert not np.delete(flags, 1, axis=1).any()


def test_what_still_differs_in_a_tenth_of_the_prompts_is_rarely_called_a_match() -> None:
    """Of attempts on replicas that differ in every tenth probe, at most 5 % end in a match (3 errors)."""
    fleet = fleet_of()
    plan, rng, ended, attempts = plan_of(fleet), stream(9, "tenth"), 0, 400
    for _ in range(attempts // len(LAYOUT.replicas)):
        state = {**initial_paired(1, plan), "changed": np.ones((1, len(LAYOUT.replicas)), dtype=np.bool_)}
        open_ = np.ones(len(LAYOUT.replicas), dtype=np.bool_)
        for now_s in range(60):
            probes = probes_at(fleet, float(now_s), rng)
            differs = rng.random(probes.values.shape[1]) < 0.1
            probes.values[0] *= np.where(differs, 1.5, 1.0)[:, None]
            state = paired_tick(state, probes, probes.valid, plan)
            flags = np.asarray(state["changed"])[0]
            ended += int((open_ & ~flags).sum())
            open_ &= flags & ~np.asarray(differs).reshape(-1, 2).any(axis=1)  # a difference ends the attempt
    assert ended <= 0.05 * attempts + 3.0 * math.sqrt(0.05 * 0.95 * attempts)


def test_a_change_that_keeps_every_clause_is_information_and_no_switch() -> None:
    """A changed build inside its clauses moves nothing and quarantines nobody; it is shown everywhere."""
    fleet = fleet_of()
    setup = make_arm("sequential", fleet)
    ticks = run(setup, told(fleet, 300, scaled([0, 1, 2, 3, 4], 1.3, 20.0)))
    assert changed(ticks)[30:, :5].all()
    assert (ticks.tables()[:, :, 0] == 1.0).all()
    assert not ticks.quarantined().any()
    last = ticks.decisions[-1]
    assert last.observation.changed is last.changed
    record = explain(ticks.state, ticks.state, last, setup)
    assert record.changed == LAYOUT.replicas[:5]


def test_knowing_when_a_change_began_makes_routing_alarms_sooner() -> None:
    """One replica breaks its clause: it is quarantined, and sooner with the prior than without."""
    fleet, left = fleet_of(), []
    for arm in ("sequential:prior=1", "sequential"):
        ticks = run(make_arm(arm, fleet), told(fleet, 200, scaled([1], 20.0, 50.0)))
        assert np.flatnonzero(ticks.quarantined()[-1]).tolist() == [1]
        left.append(int(ticks.quarantined()[:, 1].argmax()))
    assert 50 <= left[0] < left[1]


@pytest.mark.parametrize("factor", [12.0, 20.0, 60.0])
def test_a_build_that_changed_is_left_and_none_of_its_replicas_departs(factor: float) -> None:
    """All replicas of a kernel change and break the clause: the slices leave it, nobody is quarantined."""
    fleet = fleet_of()
    ticks = run(make_arm("sequential:prior=1", fleet), told(fleet, 120, scaled([0, 1, 2, 3], factor, 50.0)))
    assert (ticks.tables()[-1, :, 0] == 0.0).all()
    assert not ticks.quarantined().any()


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_without_the_prior_comparing_changes_no_verdict(noise: float) -> None:
    """Tick by tick the same alarms and evidence, tables and quarantines as where nobody compares."""
    fleet, flags, alarms = fleet_of(noise), 0, 0
    setups = [make_arm(arm, fleet) for arm in ("sequential", "sequential:paired=0")]
    states = [initial_state(setup, 1) for setup in setups]
    for seen in told(fleet, 240, scaled([0, 1, 2, 3, 5], 14.0, 40.0, 120.0)):
        (mine, one), (theirs, other) = (
            tick(state, seen, setup) for state, setup in zip(states, setups, strict=True)
        )
        states = [mine, theirs]
        assert one.changed is not None
        assert other.changed is None
        flags += int(one.changed.sum())
        alarms += int(np.asarray(mine.kernel_detector["alarm"]).sum())
        assert np.array_equal(one.table, other.table)
        assert np.array_equal(one.quarantined, other.quarantined)
        for unit in ("replica_detector", "kernel_detector"):
            own, bare = getattr(mine, unit), getattr(theirs, unit)
            assert all(np.array_equal(own[name], bare[name]) for name in bare)
            assert own["suspicion"].size == own["suspicion_anywhere"].size == 0
    assert flags > 0
    assert alarms > 0


def test_e_processes_of_a_changed_unit_alarm_as_rarely_as_stated() -> None:
    """At a mean and a rate at their limits a changed unit's e-process rings, ever, at most once in A."""
    from tests.controller.test_sequential import MEAN, RATE, arrivals, sequential_detector
    from tests.controller.test_sequential import fleet_of as small

    chance, units = 10.0, 1000
    fleet = small(MEAN, replace(RATE, threshold=0.2))
    layout = fleet.layout
    known = certified_values(np.zeros(1, np.int64), np.zeros(1, np.int64), [np.ones((1, 1, 2))], 0.0)
    fleet = replace(fleet, certified=known)
    detector = sequential_detector(
        fleet, paired=True, prior=True, suspect_arl0=chance, budget_per_slice_month=1e-9
    )  # fmt: skip
    assert layout.shape == (1, 1, 1)
    rng = np.random.Generator(np.random.PCG64(11))
    state, rang = detector.initial(units, 1, fleet.contract), np.zeros((units, 2), dtype=np.bool_)
    for _ in range(150):
        seen = arrivals(rng.choice([0.05, 0.3], size=(units, 1), p=[0.8, 0.2]), fleet.contract)
        seen = replace(seen, changed=np.ones((units, 1), dtype=np.bool_))
        verdicts, state = detector.update(state, None, np.zeros(units, dtype=np.bool_), fleet.contract, seen)
        rang |= verdicts.alarm[:, 0, 0]
    most = units / chance + 3.0 * math.sqrt(units / chance)
    assert rang.any(axis=0).sum() > 0
    assert (rang[:, 0].sum() <= most) or (rang[:, 1].sum() <= most)
    assert rang.any(axis=1).sum() <= 2.0 * most


@pytest.mark.parametrize("prior", [False, True])
def test_false_flags_that_lead_to_alarms_share_the_budget_with_them(prior: bool) -> None:
    """Counted for all slices, flags come to their share; only where they move something, alarms leave it."""
    fleet = fleet_of(0.02)
    plan = sequential_plan(fleet, paired=True, prior=prior)
    assert plan.paired is not None
    _, slices, replicas = LAYOUT.shape
    month_s = 30.0 * 86400.0
    per_stream = fleet.rates.probes_per_s * month_s / plan.paired.arl0
    flags = per_stream * replicas * slices * plan.paired.metrics.size
    assert flags == pytest.approx(FLAG_SHARE * fleet.contract.false_switch_budget_per_slice_month)
    allowed = fleet.contract.false_switch_budget_per_slice_month
    moving = plan.split.alarms_per_slice_month + (flags if prior else 0.0)
    assert moving == pytest.approx(allowed)
    assert plan.split.budget.per_slice_month == pytest.approx(allowed * (0.9 if prior else 1.0))


def test_a_fleet_that_nobody_certified_has_no_paired_form() -> None:
    """Without certified values nothing is compared, nothing is shown, and the whole budget is for routing."""
    fleet = make_fleet(LAYOUT)
    setup = make_arm("sequential", fleet)
    assert setup.paired is None
    assert initial_state(setup, 1).paired == {}
    bare = sequential_plan(fleet)
    assert sequential_plan(fleet, paired=True, prior=True).split.budget == bare.split.budget


@pytest.mark.parametrize("restored_s", [60, 105, 150])
def test_a_restored_controller_decides_the_same(restored_s: int) -> None:
    """Written to JSON and read back, before, in and after a change: the same later decisions."""
    fleet = fleet_of(0.05)
    setup = make_arm("sequential:prior=1", fleet)
    state = other = initial_state(setup, 1)
    for index, seen in enumerate(told(fleet, 200, scaled([1, 2], 9.0, 100.0, 110.0))):
        if index == restored_s:
            other = state_from_json(state_to_json(state, setup), setup)
        state, decision = tick(state, seen, setup)
        if index >= restored_s:
            other, again = tick(other, seen, setup)
            assert np.array_equal(decision.table, again.table)
            assert np.array_equal(decision.quarantined, again.quarantined)
            assert decision.changed is not None
            assert again.changed is not None
            assert np.array_equal(decision.changed, again.changed)
    assert state_to_json(state, setup) == state_to_json(other, setup)
