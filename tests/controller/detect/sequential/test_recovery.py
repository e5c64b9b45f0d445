"""How an alarm of the sequential detector ends: by evidence of health, or by silence."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from contracts.telemetry import Source
from controller.detect.sequential.evidence import healthy_threshold
from controller.detect.streams.protocol import update
from tests.reference.recovery_laws import MeanRecovery
from tests.support.fleets.builders import Clause
from tests.support.fleets.sequential_detectors import MEAN, arrivals, feed, sequential_detector, small_fleet


def test_recovery_is_the_stated_test() -> None:
    """An alarm ends at the unit at which the e-process of "still broken" reaches the stated confidence."""
    fleet = small_fleet(MEAN)
    detector = sequential_detector(fleet, confidence=0.9)
    unhealthy, healthy = np.full((1, 1), 0.9), np.full((1, 1), 0.01)
    verdicts, state = feed(detector, [unhealthy] * 30, fleet.contract)
    last = max(i for i in range(30) if verdicts[i].alarm.item())
    assert last == 29
    state["health"][:] = 1.0
    verdicts, _ = feed(detector, [healthy] * 80, fleet.contract, state)
    test = MeanRecovery(null_mean=0.1, upper=1.0)
    memory, units = test.initial(1), 0
    while memory.statistic.item() < healthy_threshold(0.9):
        memory, _ = update(test, memory, np.array([0.01]), np.array([True]))
        units += 1
    assert [v.alarm.item() for v in verdicts].index(False) + 1 == units
    assert verdicts[units - 1].inside.item()


def test_a_broken_stream_is_rarely_called_healthy() -> None:
    """At the limit, attempts that end in "healthy" are at most 1 - confidence of all (3 standard errors)."""
    fleet = small_fleet(MEAN)
    detector = sequential_detector(fleet, confidence=0.8)
    rng, streams = np.random.Generator(np.random.PCG64(5)), 1500
    law = [np.where(rng.random((streams, 1)) < 0.1, 1.0, 0.0) for _ in range(250)]
    verdicts, _ = feed(detector, law, fleet.contract, doubted=True)
    healed = np.stack([v.inside[:, 0, 0, 0] for v in verdicts]).any(axis=0).mean()
    assert 0.02 < healed <= 0.2 + 3.0 * math.sqrt(0.2 * 0.8 / streams)


def test_a_further_alarm_begins_the_recovery_anew() -> None:
    """Evidence of health from before a further alarm is discarded."""
    fleet = small_fleet(MEAN)
    detector = sequential_detector(fleet, confidence=0.9999)
    unhealthy, healthy = np.full((1, 1), 0.9), np.full((1, 1), 0.0)
    _, state = feed(detector, [unhealthy] * 20 + [healthy] * 60, fleet.contract)
    assert state["health"].mean() > 1.0
    _, state = feed(detector, [unhealthy] * 20, fleet.contract, state)
    assert max(state["health"].ravel().tolist()) <= 1.0
    assert state["alarm"].item()


def test_alarms_on_traffic_end_in_silence() -> None:
    """Only traffic shows that a failing replica has recovered, so five silent windows end its alarm."""
    clause = Clause(source=Source.FAILED, threshold=0.1, hard=False)
    fleet = small_fleet(clause)
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
