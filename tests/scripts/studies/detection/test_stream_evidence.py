"""Accumulated evidence in the controller's axes equals one plain detector per stream, step by step."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from contracts.telemetry import ProbeSamples, SampleRates, Source
from controller.detect.budget import split_budget
from controller.detect.clauses import Kind
from controller.detect.sequential.evidence import clean_gain
from controller.detect.streams.protocol import LOWEST
from scripts.studies.detection.stream_evidence import (
    StreamEvidence,
    StreamPlan,
    accumulate_probes,
    alarms,
    initial_evidence,
    reset,
    stream_plan,
)
from tests.reference.recovery_laws import MatchRecovery, MeanRecovery
from tests.support.fleets.detect_worlds import contract_arrays, fleet_layout

REPLICAS = 3
LAYOUT = fleet_layout(REPLICAS)
PLAN: StreamPlan = stream_plan(
    contract_arrays(),
    split_budget(contract_arrays(), LAYOUT, SampleRates(probes_per_s=1.0, scrape_interval_s=5.0)),
)
OWN = np.arange(REPLICAS, dtype=np.int64)


def inside(state: StreamEvidence, plan: StreamPlan) -> NDArray[np.bool_]:
    """bool [B, U, S, C]: evidence since the last reset shows, at the plan's confidence, the clause is kept.

    A stream with a clause that is still broken is ever called inside with probability at most
    ``1 - confidence`` per attempt, and an attempt begins with a reset.
    """
    return np.asarray(state.health.mean(axis=-1) >= 1.0 / (1.0 - plan.confidence))


def relative_excess(state: StreamEvidence, plan: StreamPlan) -> NDArray[np.float64]:
    """float64 [B, U, S, C]: distance of observations since the likely change beyond the limit, as a share of
    it.
    """
    count = np.maximum(state.since[..., 0], 1.0)
    null = np.where(plan.clauses.kind == Kind.BETTING, plan.clauses.null_mean, 0.0)
    return np.asarray(np.maximum(state.since[..., 1] / count - null, 0.0) / plan.clauses.scale)


def probes(seed: int, batch: int, count: int, scale: float = 1.0) -> ProbeSamples:
    """Random probes; some invalid, some values not measured; several per stream."""
    rng = np.random.default_rng(seed)
    values = np.stack(
        [
            scale * rng.lognormal(-7.0, 1.0, (batch, count)),
            (rng.random((batch, count)) < 0.02).astype(np.float64),
            rng.uniform(0.8, 1.0, (batch, count)),
        ],
        axis=-1,
    )
    values[rng.random(values.shape) < 0.05] = np.nan
    return ProbeSamples.of_results(
        replica=rng.integers(0, REPLICAS, (batch, count)),
        slice=rng.integers(0, 2, (batch, count)),
        prompt=np.zeros((batch, count), dtype=np.int64),
        sampled_at_ms=np.zeros((batch, count)),
        values=values,
        valid=rng.random((batch, count)) < 0.9,
    )


def plain_statistic(seen: ProbeSamples, subject_of: np.ndarray, b: int, u: int, s: int, c: int) -> float:
    """The statistic of one stream, by its plain detector fed in the list's order."""
    contract, clauses = PLAN.contract, PLAN.clauses
    detector = clauses.detector(c)
    state = detector.initial(1)
    for p in range(seen.valid.shape[1]):
        value = seen.values[b, p, contract.column[c]]
        mine = seen.valid[b, p] and subject_of[seen.replica[b, p]] == u and seen.slice[b, p] == s
        if not mine or np.isnan(value):
            continue
        y = clauses.upper[c] - value if clauses.mirrored[c] else value
        y = float(contract.sense[c] * (value - contract.threshold[c]) > 0.0) if clauses.is_rate[c] else y
        detector.advance(state, np.array([y]), np.ones(1, dtype=np.bool_))
    return float(state.statistic[0])


@given(seed=st.integers(0, 999), pooled=st.booleans())
def test_the_fold_is_one_plain_detector_per_stream(seed: int, pooled: bool) -> None:
    """For replicas and for kernels: the statistic of every stream equals its own detector's."""
    seen, subject_of = probes(seed, 2, 40), (LAYOUT.replica_kernel if pooled else OWN)
    units = 2 if pooled else REPLICAS
    state = accumulate_probes(initial_evidence(2, units, PLAN), seen, seen.valid, subject_of, PLAN)
    for b, u, s, c in np.ndindex(2, units, 2, 4):
        if PLAN.clauses.kind[c] != Kind.BETTING or not PLAN.applies[c, s]:
            continue
        expected = plain_statistic(seen, subject_of, b, u, s, c)
        assert state.statistic[b, u, s, c] == pytest.approx(expected, rel=1e-12)


@given(seed=st.integers(0, 999), cut=st.integers(1, 39))
def test_ticks_and_fleets_can_be_cut_anywhere(seed: int, cut: int) -> None:
    """One tick or two, two fleets together or each alone: the same evidence, bit for bit."""
    seen = probes(seed, 2, 40)
    begin = initial_evidence(2, REPLICAS, PLAN)
    whole = accumulate_probes(begin, seen, seen.valid, OWN, PLAN)
    first, second = _columns(seen, slice(0, cut)), _columns(seen, slice(cut, 40))
    halves = accumulate_probes(
        accumulate_probes(begin, first, first.valid, OWN, PLAN), second, second.valid, OWN, PLAN
    )
    assert np.array_equal(whole.evidence, halves.evidence)
    alone = probes(seed, 2, 40)
    one = accumulate_probes(initial_evidence(1, REPLICAS, PLAN), _fleet(alone, 1), alone.valid[1:], OWN, PLAN)
    assert np.array_equal(whole.statistic[1:], one.statistic)


def _columns(seen: ProbeSamples, columns: slice) -> ProbeSamples:
    names = [entry.name for entry in fields(ProbeSamples)]
    return ProbeSamples(**{name: getattr(seen, name)[:, columns] for name in names})


def _fleet(seen: ProbeSamples, b: int) -> ProbeSamples:
    names = [entry.name for entry in fields(ProbeSamples)]
    return ProbeSamples(**{name: getattr(seen, name)[b : b + 1] for name in names})


def test_a_hard_zero_limit_alarms_at_its_first_unit() -> None:
    """One flip over the threshold: alarm at once, on that stream only, until it is reset."""
    seen = probes(1, 1, 1)
    values = np.array([[[1e-5, 1.0, 0.99]]])
    hit = ProbeSamples.of_results(
        replica=np.array([[1]]),
        slice=np.array([[0]]),
        prompt=seen.prompt,
        sampled_at_ms=seen.sampled_at_ms,
        values=values,
        valid=np.ones((1, 1), dtype=np.bool_),
    )
    state = accumulate_probes(initial_evidence(1, REPLICAS, PLAN), hit, hit.valid, OWN, PLAN)
    raised = alarms(state, PLAN.replica_threshold)
    assert np.argwhere(raised).tolist() == [[0, 1, 0, 2]]
    assert relative_excess(state, PLAN)[0, 1, 0, 2] == pytest.approx(1.0)
    assert not alarms(reset(state, raised), PLAN.replica_threshold).any()


def test_a_poisoned_replica_alarms_and_a_healthy_one_does_not() -> None:
    """Drift tenfold on one replica: its mean clause alarms, no other does; the excess is about right."""
    state = initial_evidence(1, REPLICAS, PLAN)
    for tick in range(40):
        seen = probes(tick, 1, 12)
        values = seen.values.copy()
        values[..., 1] = 0.0
        values[..., 0] *= np.where(seen.replica == 2, 10.0, 1.0)
        sick = ProbeSamples.of_results(
            replica=seen.replica,
            slice=seen.slice,
            prompt=seen.prompt,
            sampled_at_ms=seen.sampled_at_ms,
            values=values,
            valid=seen.valid,
        )
        state = accumulate_probes(state, sick, sick.valid, OWN, PLAN)
    raised = alarms(state, PLAN.replica_threshold)
    assert raised[0, 2, :, 0].all()
    assert not raised[0, :2].any()
    mean = 10.0 * np.exp(-7.0 + 0.5)
    assert relative_excess(state, PLAN)[0, 2, 0, 0] == pytest.approx(mean / 2e-3 - 1.0, rel=0.4)


def test_offline_clauses_and_foreign_slices_have_no_stream() -> None:
    """For a clause that does not apply nothing is accumulated, and no threshold can be reached."""
    seen = probes(5, 1, 200, scale=100.0)
    state: StreamEvidence = accumulate_probes(
        initial_evidence(1, REPLICAS, PLAN), seen, seen.valid, OWN, PLAN
    )
    assert (state.statistic[:, :, 1, 1] == LOWEST).all()
    assert (state.statistic[..., 5] == LOWEST).all()
    assert np.isinf(PLAN.replica_threshold[:, 1, 1]).all()
    assert PLAN.contract.source[5] == Source.OFFLINE


def test_evidence_of_health_is_the_recovery_test() -> None:
    """Each stream's evidence of health is the stated law's: ``MeanRecovery`` at the limit, or clean units."""
    seen = probes(8, 1, 120)
    state = accumulate_probes(initial_evidence(1, REPLICAS, PLAN), seen, seen.valid, OWN, PLAN)
    clauses, level = PLAN.clauses, np.log(state.health.mean(axis=-1))
    for c in (0, 1, 2, 3):
        hard = clauses.kind[c] == Kind.AT_ONCE
        plain: MeanRecovery | MatchRecovery = MatchRecovery(share=1.0 - 1.0 / PLAN.evidence_plan.gain)
        if not hard:
            plain = MeanRecovery(null_mean=float(clauses.null_mean[c]), upper=float(clauses.health_range[c]))
        memory, whole = plain.initial(1), np.ones(1, dtype=np.bool_)
        for p in range(120):
            value = seen.values[0, p, PLAN.contract.column[c]]
            if not seen.valid[0, p] or seen.replica[0, p] != 1 or seen.slice[0, p] != 0 or np.isnan(value):
                continue
            y = clauses.upper[c] - value if clauses.mirrored[c] else value
            y = float(value > PLAN.contract.threshold[c]) if clauses.is_rate[c] else y
            if hard and y > 0.0:
                memory = plain.initial(1)  # an observation over the limit restarts the attempt
                continue
            plain.advance(memory, np.array([max(y, 0.0)]), whole)
        assert level[0, 1, 0, c] == pytest.approx(float(memory.statistic[0]), rel=1e-9, abs=1e-12)


@given(units=st.integers(1, 300), confidence=st.floats(0.5, 0.999))
def test_clean_units_reach_the_confidence_and_not_one_sooner(units: int, confidence: float) -> None:
    """At limit 0, the required number of clean observations shows health, one fewer does not."""
    gain = clean_gain(confidence, units)
    assert gain**units == pytest.approx(1.0 / (1.0 - confidence), rel=1e-9)
    assert gain ** (units - 1) < 1.0 / (1.0 - confidence)


def test_a_healed_stream_comes_inside_and_a_broken_one_does_not() -> None:
    """After the fault is gone the clause is called inside; while it lasts, it is not."""
    state, trail = initial_evidence(1, REPLICAS, PLAN), []
    for tick in range(180):
        seen = probes(tick, 1, 24)
        values = seen.values.copy()
        values[..., 0] *= 20.0 if tick < 60 else 0.1
        sick = ProbeSamples.of_results(
            replica=seen.replica,
            slice=seen.slice,
            prompt=seen.prompt,
            sampled_at_ms=seen.sampled_at_ms,
            values=values,
            valid=seen.valid,
        )
        state = accumulate_probes(state, sick, sick.valid, OWN, PLAN)
        state = reset(state, alarms(state, PLAN.replica_threshold))  # an alarm begins a new attempt
        trail.append(inside(state, PLAN)[..., 0])
    assert not np.array(trail[40:60]).any()
    assert inside(state, PLAN)[..., 0].all()
