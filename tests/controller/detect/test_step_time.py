"""Step-time ratios as evidence: an e-value under its null, whatever the error of the model."""

from __future__ import annotations

import math

import numpy as np
import pytest

from contracts.rng import stream
from controller.detect.calibration.simulate import FalseAlarms
from controller.detect.step_time import MOST, NOISE, step_time_observation
from controller.detect.streams.eprocess import Betting
from controller.detect.streams.protocol import guaranteed_threshold
from tests.support.run_lengths import arl_at_least

LIMIT = 1.4
observe = np.vectorize(lambda ratio: step_time_observation(ratio, LIMIT))


def first_alarms(ratio: np.ndarray, arl0: float) -> tuple[FalseAlarms, np.ndarray]:
    """First alarms of streams [T, N] of ratios, and the step of each (T: never)."""
    detector = Betting(null_mean=1.0)
    state, present = detector.initial(ratio.shape[1]), np.ones(ratio.shape[1], dtype=np.bool_)
    when, samples = np.full(ratio.shape[1], len(ratio)), 0
    for row, values in enumerate(observe(ratio)):
        detector.advance(state, values, present)
        samples += int(present.sum())
        raised = present & (state.statistic >= guaranteed_threshold(arl0))
        when[raised] = row + 1
        present &= ~raised
    return FalseAlarms(alarms=int(raised.sum() + (when < len(ratio)).sum()), samples=samples), when


def test_observation_is_an_e_value_at_the_limit() -> None:
    """At the limit its mean is at most 1; it is capped, and 0 for an invalid ratio."""
    z = np.linspace(-9.0, 9.0, 20_001)
    law = np.exp(-0.5 * z * z)
    mean = float((observe(LIMIT * np.exp(NOISE * z)) * law).sum() / law.sum())
    assert 0.95 < mean <= 1.0 + 1e-9
    assert step_time_observation(1e9, LIMIT) == pytest.approx(math.exp(MOST))
    assert [step_time_observation(bad, LIMIT) for bad in (0.0, -1.0, math.nan)] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("name", ["at the limit", "error of the model", "noise that persists"])
def test_arl0_is_kept_on_healthy_clocks(name: str) -> None:
    """Steps at the limit, a model error per replica, and dependent noise all keep the ARL0."""
    rng, shape, arl0 = stream(4, f"clocks {name}"), (400, 300), 500.0
    noise = NOISE * rng.normal(size=shape)
    error = np.full(shape[1], math.log(LIMIT))
    if name == "error of the model":
        error = np.minimum(0.15 * rng.normal(size=shape[1]), math.log(LIMIT))
    if name == "noise that persists":
        error = np.full(shape[1], math.log(LIMIT) - NOISE)
        for row in range(1, shape[0]):
            noise[row] = 0.8 * noise[row - 1] + 0.6 * noise[row]
    found, _ = first_alarms(np.exp(error + noise), arl0)
    assert arl_at_least(found, 0.99) >= arl0


@pytest.mark.parametrize(("factor", "scrapes"), [(4.0, 2), (2.0, 7), (1.8, 9)])
def test_slow_replicas_are_found_in_a_few_scrapes(factor: float, scrapes: int) -> None:
    """At the ARL0 of a whole fleet the median is two scrapes at 4 times, seven at 2, nine at 1.8."""
    rng = stream(5, "slow clocks")
    error = np.exp(0.1 * rng.normal(size=200))
    ratio = factor * error * np.exp(0.1 * rng.normal(size=(60, 200)))
    _, when = first_alarms(ratio, 1e9)
    assert np.median(when) <= scrapes
    assert when.min() >= 2
