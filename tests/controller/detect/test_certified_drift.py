"""Certified drift: which differences from certified values flag a replica, and how rarely falsely."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from contracts.rng import stream
from controller.detect.certified_drift import (
    FLAG_SHARE,
    drift_detector,
    drift_score,
    drift_tick,
    initial_drift,
)
from controller.detect.streams.protocol import update
from tests.support.fleets.certified_fleets import (
    LAYOUT,
    certified,
    certified_fleet,
    plan_of,
    probes_at,
    scaled,
)


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_streams_equal_those_of_the_plain_drift_detector(noise: float) -> None:
    """Each (replica, metric) stream's evidence equals the plain detector's on the plain scores."""
    fleet = certified_fleet(noise)
    plan, known, rng = plan_of(fleet), certified(noise), stream(5, "plain")
    state, detector = initial_drift(1, plan), drift_detector()
    plain = [detector.initial(1) for _ in range(2)]
    for now_s in range(12):
        probes = probes_at(fleet, float(now_s), rng, scaled([2], 1.0 + noise, 0.0))
        state = drift_tick(state, probes, probes.valid, plan)
        for p in np.flatnonzero(probes.replica[0] == 2):
            row = int(known.rows(probes.prompt)[0, p])
            for m in range(2):
                score = drift_score(probes.values[0, p, m : m + 1], known.values[0, row, 0, m : m + 1], noise)
                plain[m], _ = update(detector, plain[m], score, np.ones(1, dtype=np.bool_))
    assert not np.asarray(state["drifted"]).any()
    expected = np.stack([one.memory[0] for one in plain])
    np.testing.assert_allclose(np.asarray(state["evidence"])[0, 2], expected, rtol=1e-9)


def test_without_noise_any_difference_flags_only_its_replica_at_once() -> None:
    """Equal repeats never flag; the smallest representable difference of one metric flags its replica."""
    fleet = certified_fleet()
    plan, rng = plan_of(fleet), stream(6, "once")
    state = initial_drift(1, plan)
    for now_s in range(300):
        probes = probes_at(fleet, float(now_s), rng)
        state = drift_tick(state, probes, probes.valid, plan)
    assert not np.asarray(state["drifted"]).any()
    probes = probes_at(fleet, 300.0, rng)
    probes.values[0, 5, 1] = np.nextafter(probes.values[0, 5, 1], np.inf)
    state = drift_tick(state, probes, probes.valid, plan)
    assert np.flatnonzero(np.asarray(state["drifted"])[0]).tolist() == [int(probes.replica[0, 5])]


def test_one_of_several_certified_repeats_is_enough() -> None:
    """Where repeats differed at certification, a probe that equals any of them is no change."""
    fleet = certified_fleet()
    known = certified()
    values = known.values.copy()
    values[:, :, 1] *= 1.01
    fleet = replace(fleet, certified=replace(known, values=values))
    plan, rng = plan_of(fleet), stream(7, "repeats")
    state = initial_drift(1, plan)
    for now_s in range(50):
        factor = 1.01 if now_s % 2 else 1.0
        probes = probes_at(fleet, float(now_s), rng)
        probes.values[0] *= factor
        for p in range(probes.values.shape[1]):
            row = known.rows(probes.prompt)[0, p]
            probes.values[0, p] = values[LAYOUT.replica_kernel[probes.replica[0, p]], row, now_s % 2]
        state = drift_tick(state, probes, probes.valid, plan)
    assert not np.asarray(state["drifted"]).any()


def test_with_stated_noise_false_flags_are_as_rare_as_declared() -> None:
    """Under the stated noise the mean run to a false flag is at least the declared ARL0 (99 %)."""
    fleet, flags, units = certified_fleet(0.05), 0, 0
    month = 30.0 * 86400.0
    budget = month / 200.0 / FLAG_SHARE * len(LAYOUT.replicas) * 2 * 2
    plan, rng = plan_of(fleet, budget_per_slice_month=budget), stream(8, "null")
    assert plan.arl0 == pytest.approx(200.0)
    state = initial_drift(1, plan)
    for now_s in range(2000):
        probes = probes_at(fleet, float(now_s), rng)
        state = drift_tick(state, probes, probes.valid, plan)
        flags, units = flags + int(np.asarray(state["drifted"]).sum()), units + 2 * len(LAYOUT.replicas)
        state = {**state, "drifted": np.zeros_like(state["drifted"])}
    streams = 2  # metrics, whose alarms add up
    assert flags > 0
    assert streams * units / stats.gamma.ppf(0.99, flags + 1) >= plan.arl0


def test_a_difference_in_a_tenth_of_the_prompts_is_rarely_called_a_match() -> None:
    """Of attempts on replicas that differ in every tenth probe, at most 5 % end in a match (3 errors)."""
    fleet = certified_fleet()
    plan, rng, ended, attempts = plan_of(fleet), stream(9, "tenth"), 0, 400
    for _ in range(attempts // len(LAYOUT.replicas)):
        state = {**initial_drift(1, plan), "drifted": np.ones((1, len(LAYOUT.replicas)), dtype=np.bool_)}
        open_ = np.ones(len(LAYOUT.replicas), dtype=np.bool_)
        for now_s in range(60):
            probes = probes_at(fleet, float(now_s), rng)
            differs = rng.random(probes.values.shape[1]) < 0.1
            probes.values[0] *= np.where(differs, 1.5, 1.0)[:, None]
            state = drift_tick(state, probes, probes.valid, plan)
            flags = np.asarray(state["drifted"])[0]
            ended += int((open_ & ~flags).sum())
            open_ &= flags & ~np.asarray(differs).reshape(-1, 2).any(axis=1)  # a difference ends the attempt
    assert ended <= 0.05 * attempts + 3.0 * math.sqrt(0.05 * 0.95 * attempts)
