"""Fleets of certified kernels, and probes of them with changing values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.certified import CertifiedValues, certified_values
from contracts.rng import stream
from contracts.telemetry import FleetTelemetry, ProbeSamples
from controller.detect.certified_drift import DriftPlan, drift_plan
from controller.fleet import FleetSetup
from tests.support.fleets.builders import make_fleet, make_layout, quiet_telemetry
from tests.support.fleets.worlds import Run

LAYOUT = make_layout(kernels=2, slices=2, per_kernel=4)
PROMPTS = 40


def certified(noise: float = 0.0) -> CertifiedValues:
    """Healthy values of forty prompts on two kernels, measured twice, well within the test contract."""
    rng = stream(3, "certified")
    values = [np.repeat(rng.uniform(0.005, 0.02, (PROMPTS, 1, 2)), 2, axis=1) for _ in range(2)]
    ids = np.arange(PROMPTS, dtype=np.int64) * 7 + 5
    return certified_values(ids[::-1], ids[::-1] % 2, [block[::-1] for block in values], noise)


def certified_fleet(noise: float = 0.0) -> FleetSetup:
    """A fleet of certified kernels."""
    return replace(make_fleet(LAYOUT), certified=certified(noise))


def plan_of(fleet: FleetSetup, **settings: Any) -> DriftPlan:
    """Drift of ``fleet`` from its certified baseline."""
    plan = drift_plan(fleet, **settings)
    assert plan is not None
    return plan


Change = Callable[[NDArray[np.float64], NDArray[np.int64], float], NDArray[np.float64]]


def unchanged(values: NDArray[np.float64], replica: NDArray[np.int64], now_s: float) -> NDArray[np.float64]:
    """Nothing changes."""
    return values


def scaled(replicas: list[int], factor: float, from_at_s: float, until_at_s: float = np.inf) -> Change:
    """The first metric of these replicas is multiplied by ``factor`` for a time."""

    def change(values: NDArray[np.float64], replica: NDArray[np.int64], now_s: float) -> NDArray[np.float64]:
        hit = np.isin(replica, replicas) & (from_at_s < now_s <= until_at_s)
        return np.where(hit[:, None] * np.array([1.0, 0.0]) > 0.0, values * factor, values)

    return change


def probes_at(
    fleet: FleetSetup, now_s: float, rng: np.random.Generator, change: Change = unchanged
) -> ProbeSamples:
    """Every replica answers one probe of every slice; with repeat noise if the fleet states some."""
    known = fleet.certified
    assert known is not None
    replica, slice_ = (part.ravel() for part in np.indices((len(LAYOUT.replicas), len(LAYOUT.slices))))
    row = rng.integers(0, PROMPTS, replica.size)
    values = known.values[LAYOUT.replica_kernel[replica], row, 0]
    values = change(values, replica, now_s) * np.exp(known.repeat_noise * rng.standard_normal(values.shape))
    return ProbeSamples.of_results(
        replica=replica[None],
        slice=slice_[None],
        prompt=known.prompts[row][None],
        sampled_at_ms=np.full((1, row.size), now_s * 1000.0),
        values=values[None],
        valid=np.ones((1, row.size), dtype=np.bool_),
    )


def telemetry_of(
    fleet: FleetSetup, seconds: int, change: Change = unchanged, seed: int = 1
) -> Iterator[FleetTelemetry]:
    """One telemetry a second."""
    rng = stream(seed, "told")
    for index in range(1, seconds + 1):
        quiet = quiet_telemetry(LAYOUT, float(index))
        yield replace(quiet, probes=probes_at(fleet, float(index), rng, change))


def drifted(ticks: Run) -> NDArray[np.bool_]:
    """bool [T, R] of fleet 0."""
    flags = [decision.drifted for decision in ticks.decisions]
    return np.stack([flag[0] for flag in flags if flag is not None])
