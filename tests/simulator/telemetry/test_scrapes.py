"""The engines' own counters on their way from replicas to the controller."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import pytest
from numpy.typing import NDArray

from contracts.telemetry import ENGINE_COUNTERS, EngineCounters, FleetTelemetry
from contracts.units import MS_PER_S
from simulator.env.fleets import SteppedFleets
from simulator.telemetry.scrapes import _scrape_engine
from simulator.world.compiled_scenario import CompiledScenario
from tests.support.fleets.simulated_fleets import CHANGES, FAULTS, Build, FixedDriver


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """An episode of one fleet: T ticks, R replicas."""

    arrived: NDArray[np.float64]
    """[T, R, ENGINE_COUNTERS], what the controller was shown."""
    counted: NDArray[np.float64]
    """[T, R, ENGINE_COUNTERS], the clock in s and the engine's counts at that time."""
    scraped_at_s: NDArray[np.float64]
    """[T, R], instant of the newest scrape that had arrived."""

    def arrivals(self, replica: int) -> NDArray[np.int64]:
        """Ticks in which a scrape of ``replica`` arrived."""
        newest = np.nan_to_num(self.scraped_at_s[:, replica], nan=0.0)
        return np.flatnonzero(np.diff(newest, prepend=0.0) > 0.0)


def watch(scenario: CompiledScenario, seed: int = 3) -> Shown:
    """One fleet under a constant table."""
    fleets = SteppedFleets([scenario], [seed])
    plan = FixedDriver(scenario).begin(1)
    arrived, counted, scraped_at_s = [], [], []
    for _ in range(scenario.ticks):
        seen = fleets.advance(plan)
        arrived.append(stacked(seen))
        clock_s = np.broadcast_to(seen.now_ms[:, None] / MS_PER_S, seen.running.shape)
        counted.append(np.concatenate([clock_s[..., None], fleets.gauges.exported], axis=2)[0])
        scraped_at_s.append(seen.scraped_at_ms[0] / MS_PER_S)
    return Shown(arrived=np.array(arrived), counted=np.array(counted), scraped_at_s=np.array(scraped_at_s))


def stacked(seen: FleetTelemetry) -> NDArray[np.float64]:
    """[R, ENGINE_COUNTERS] of the only fleet."""
    return np.stack([getattr(seen.engine, entry.name)[0] for entry in fields(EngineCounters)], axis=1)


def losing(build: Build, ratio: float) -> CompiledScenario:
    """A fleet without a fault whose scrapes are lost with ``ratio``."""
    telemetry = {
        "scrape_interval_s": 3.0,
        "scrape_delay_s": 1.5,
        "scrape_loss_ratio": ratio,
        "probes_per_s": 1.0,
        "repeat_noise": 0.0,
    }
    return build(telemetry=telemetry, horizon_s=60.0)


@pytest.mark.parametrize("ratio", [0.0, 0.4])
def test_a_scrape_shows_counts_since_the_last_one(build: Build, ratio: float) -> None:
    """Each difference spans the two scrapes around it, however many between them were lost."""
    shown = watch(losing(build, ratio))
    lost = False
    for replica in range(shown.arrived.shape[1]):
        ticks = shown.arrivals(replica)
        at = np.rint(shown.scraped_at_s[ticks, replica]).astype(np.int64) - 1
        np.testing.assert_array_equal(ticks - at, 2)
        expected = np.diff(shown.counted[at, replica], axis=0)
        np.testing.assert_array_equal(shown.arrived[ticks[1:], replica], expected)
        total = shown.arrived[ticks[1:], replica].sum(axis=0)
        unseen = shown.counted[-1, replica] - shown.counted[at[-1], replica]
        everything = shown.counted[at[0], replica] + total + unseen
        np.testing.assert_allclose(everything, shown.counted[-1, replica], rtol=1e-12)
        lost |= bool((np.diff(at) > 3).any())
    assert lost == (ratio > 0.0)


def test_counts_without_a_scrape_are_unknown(build: Build) -> None:
    """NaN in every tick without a scrape and at a replica's first one; otherwise counts are not negative."""
    shown = watch(losing(build, 0.2))
    known = np.zeros(shown.scraped_at_s.shape, dtype=np.bool_)
    for replica in range(shown.arrived.shape[1]):
        known[shown.arrivals(replica)[1:], replica] = True
    assert known.any()
    assert np.isnan(shown.arrived[~known]).all()
    assert (shown.arrived[known] >= 0.0).all()
    busy = shown.arrived[known][:, 1:6].sum(axis=0)
    assert (busy > 0.0).all()


@pytest.mark.parametrize("kind", ["restart", "crash"])
def test_a_new_process_is_unknown_once(build: Build, kind: str) -> None:
    """After a restart the first scrape has no predecessor, the next one has."""
    replicas: tuple[int, ...] = (6, 7, 8)
    if kind == "restart":
        scenario = build(changes=CHANGES[:1], horizon_s=80.0)
    else:
        crash = FAULTS["crash"] | {"duration_s": 5.0, "target": {"kernel": "bf16", "replica": 1}}
        scenario, replicas = build(faults=[crash], horizon_s=80.0), (4,)
    shown = watch(scenario)
    for replica in range(shown.arrived.shape[1]):
        ticks = shown.arrivals(replica)
        unknown = np.isnan(shown.arrived[ticks, replica]).all(axis=1)
        assert np.isfinite(shown.arrived[ticks, replica][~unknown]).all()
        assert unknown[0]
        assert unknown[1:].sum() == (replica in replicas)
        assert not unknown[-1]
        assert (shown.arrived[ticks, replica][~unknown] >= 0.0).all()


def test_a_falling_counter_was_reset() -> None:
    """If a count is lower than at the last scrape, nothing is known of the time between."""
    seen, out = np.full(ENGINE_COUNTERS, 7.0), np.zeros(ENGINE_COUNTERS)
    counts = np.full(ENGINE_COUNTERS, 9.0)
    counts[3] = 6.0
    _scrape_engine(12.0, counts, seen, out)
    assert np.isnan(out).all()
    _scrape_engine(13.0, counts + 1.0, seen, out)
    np.testing.assert_array_equal(out, 1.0)


def test_unknown_counters_are_nan_in_separate_arrays() -> None:
    """The unknown record has its own array for every field."""
    nothing = EngineCounters.unknown(2, 3)
    arrays = [getattr(nothing, entry.name) for entry in fields(EngineCounters)]
    assert all(array.shape == (2, 3) and np.isnan(array).all() for array in arrays)
    arrays[0][:] = 0.0
    assert np.isnan(arrays[1]).all()
