"""The compiled sequential detector against a plain one, and with its state consumed against copied."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from contracts.rng import stream
from contracts.telemetry import ProbeSamples, Source
from controller.detect.detector import AlarmState, DetectorState, EvidenceBatch
from controller.detect.sequential.detector import SequentialDetector
from controller.detect.sequential.plan import SequentialSettings, sequential_plan
from controller.detect.traffic import shipped_traffic
from policies.synthetic_fleet import synthetic_fleet
from tests.reference import plain_sequential

FLEET = synthetic_fleet(2, 2, 6)
SETTINGS = SequentialSettings(budget_per_slice_month=1e5, confidence=0.8, traffic=shipped_traffic())
PLAN = sequential_plan(FLEET, SETTINGS)
DETECTOR = SequentialDetector(plan=PLAN)
BATCH, TICKS = 2, 150
FIELDS = ("alarm", "excess", "inside", "fresh", "judged", "against")


def ticks(pooled: bool, seed: int, longest_s: float = 60.0) -> list[EvidenceBatch]:
    """Random batches: heaps of probes, occasional scrapes, bad and good phases, silence, doubted samples.

    longest_s: the longest duration of a tick.
    """
    rng, contract = stream(seed, "plain"), PLAN.contract
    _, slices, replicas = FLEET.layout.shape
    units = len(FLEET.layout.kernels) if pooled else replicas
    shape = units, slices, contract.source.size
    return [_tick(rng, pooled, shape, 40 <= index < 90, longest_s) for index in range(TICKS)]


def _tick(
    rng: np.random.Generator, pooled: bool, shape: tuple[int, int, int], bad: bool, longest_s: float
) -> EvidenceBatch:
    count, replicas, (units, slices, _) = 8, len(FLEET.layout.replicas), shape
    values = rng.exponential([5e-4, 0.02], (BATCH, count, 2)) * (6.0 if bad else 1.0)
    values[rng.random(values.shape) < 0.1] = np.nan
    probes = ProbeSamples.of_results(
        replica=rng.integers(0, replicas, (BATCH, count)),
        slice=rng.integers(0, slices, (BATCH, count)),
        prompt=np.zeros((BATCH, count), dtype=np.int64),
        sampled_at_ms=np.zeros((BATCH, count)),
        values=values,
        valid=np.ones((BATCH, count), dtype=np.bool_),
    )
    units_of = rng.poisson(2.0, (BATCH, *shape)).astype(np.float64)
    over = rng.binomial(units_of.astype(np.int64), 0.5 if bad else 0.005).astype(np.float64)
    sums = np.stack([units_of, over, over, over], axis=-1)
    news = rng.random((BATCH, units, slices)) < 0.4
    return EvidenceBatch(
        pooled=pooled,
        probes=probes,
        received=rng.random((BATCH, count)) < 0.9,
        subject_of=FLEET.layout.replica_kernel if pooled else np.arange(replicas, dtype=np.int64),
        sums=np.where(news[..., None, None], sums, 0.0),
        news=news,
        since_s=rng.uniform(0.5, longest_s, BATCH),
        doubted=rng.random((BATCH, *shape)) < 0.05,
    )


def _told(seen: EvidenceBatch) -> EvidenceBatch:
    """Batch with the news flags that the controller sets: a stream that a probe reached has news."""
    for b, p in np.argwhere(seen.received).tolist():
        u, s = seen.subject_of[seen.probes.replica[b, p]], seen.probes.slice[b, p]
        seen.news[b, u, s] = True  # type: ignore[index]
    return seen


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("seed, longest_s", [(1, 60.0), (2, 60.0), (3, 4.0)])
def test_the_compiled_detector_equals_the_plain_one(pooled: bool, seed: int, longest_s: float) -> None:
    """Every verdict of every tick is equal bit for bit, through alarms, recoveries, doubts and silence.

    Short ticks exercise the rule of lasting lateness too.
    """
    closed = np.zeros(BATCH, dtype=np.bool_)
    units = len(FLEET.layout.kernels) if pooled else len(FLEET.layout.replicas)
    state = DETECTOR.initial(BATCH, units, PLAN.contract)
    plain, was_raised, came_back = plain_sequential.initial(PLAN, BATCH, units), 0, 0
    for seen in map(_told, ticks(pooled, seed, longest_s)):
        verdicts, state = DETECTOR.update(state, None, closed, PLAN.contract, seen)
        expected, plain = plain_sequential.update(plain, seen, PLAN)
        for name in FIELDS:
            np.testing.assert_array_equal(getattr(verdicts, name), expected[name], err_msg=name)
        was_raised, came_back = was_raised + int(verdicts.alarm.sum()), came_back + int(verdicts.inside.sum())
    assert was_raised > 20
    assert came_back > 5 or longest_s < 60.0


def test_consuming_the_state_changes_no_verdict() -> None:
    """With ``consume`` every verdict is the same; without it the input state is left unchanged."""
    closed, replicas = np.zeros(BATCH, dtype=np.bool_), len(FLEET.layout.replicas)
    kept = given = DETECTOR.initial(BATCH, replicas, PLAN.contract)
    given = {name: array.copy() for name, array in given.items()}
    for seen in map(_told, ticks(False, 3)):
        before = {name: array.copy() for name, array in kept.items()}
        verdicts, after = DETECTOR.update(kept, None, closed, PLAN.contract, seen)
        _equal(before, kept)
        other, given = DETECTOR.update(given, None, closed, PLAN.contract, seen, consume=True)
        _same(verdicts, other)
        kept = after
    _equal(kept, given)


def _same(one: AlarmState, other: AlarmState) -> None:
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


def _equal(one: DetectorState, other: DetectorState) -> None:
    assert sorted(one) == sorted(other)
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)


def test_fleets_of_a_batch_are_independent() -> None:
    """A fleet's verdicts are the same alone and beside another one."""
    closed, replicas = np.zeros(BATCH, dtype=np.bool_), len(FLEET.layout.replicas)
    both, alone = (DETECTOR.initial(count, replicas, PLAN.contract) for count in (BATCH, 1))
    for seen in map(_told, ticks(False, 4)):
        together, both = DETECTOR.update(both, None, closed, PLAN.contract, seen)
        single, alone = DETECTOR.update(alone, None, closed[1:], PLAN.contract, _second(seen))
        for name in FIELDS:
            np.testing.assert_array_equal(getattr(together, name)[1:], getattr(single, name), err_msg=name)


def _second(seen: EvidenceBatch) -> EvidenceBatch:
    names = [entry.name for entry in fields(ProbeSamples)]
    probes = ProbeSamples(**{name: getattr(seen.probes, name)[1:] for name in names})
    assert seen.news is not None
    return EvidenceBatch(
        pooled=seen.pooled,
        probes=probes,
        received=seen.received[1:],
        subject_of=seen.subject_of,
        sums=seen.sums[1:],
        doubted=seen.doubted[1:],
        since_s=seen.since_s[1:],
        news=seen.news[1:],
    )


def test_the_synthetic_fleet_has_every_kind_of_clause() -> None:
    """The comparison above covers probes, traffic and gauges, rates and means, and limits of 0."""
    assert {int(Source.PROBE), int(Source.LATENCY), int(Source.FAILED)} <= set(PLAN.contract.source.tolist())
    assert len(set(PLAN.clauses.kind.tolist())) >= 2
