"""Tests that every adapter of a port must pass, in any world.

A test class of an adapter inherits one of these suites and provides the abstract methods.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from contracts.compiled.contract import FleetLayout
from contracts.telemetry import (
    HISTOGRAM_EDGES_MS,
    LATENCY_FAMILIES,
    FleetTelemetry,
    ProbeOutcome,
    ReplicaState,
)
from controller.ports import Clock, RouteActuator, RoutingPlan, TelemetrySource


class TelemetrySourceSuite(ABC):
    """Laws of ``TelemetrySource``; ``batch`` fleets of ``layout``, at least three reads."""

    layout: FleetLayout
    batch: int = 1

    @abstractmethod
    def source(self) -> TelemetrySource:
        """A fresh source."""

    def reads(self) -> list[FleetTelemetry]:
        source = self.source()
        return [source.read() for _ in range(3)]

    def test_shapes(self) -> None:
        """Every array has the shape of the layout."""
        kernels, slices, replicas = self.layout.shape
        assert kernels > 0
        for seen in self.reads():
            assert seen.now_ms.shape == (self.batch,)
            for name in (
                "replica_state",
                "scraped_at_ms",
                "running",
                "waiting",
                "kv_used_ratio",
                "consecutive_failed",
                "fingerprint_match",
                "trace_fields_ratio",
            ):
                assert getattr(seen, name).shape == (self.batch, replicas), name
            assert seen.answered.shape == seen.failed.shape == (self.batch, replicas)
            columns = len(HISTOGRAM_EDGES_MS) + 1
            assert seen.latency_le.shape == (*seen.answered.shape, len(LATENCY_FAMILIES), columns)
            counted = (self.batch, slices, kernels)
            assert seen.gateway.answered.shape == seen.gateway.failed.shape == counted
            assert seen.gateway.latency_le.shape == (*counted, len(LATENCY_FAMILIES), columns)
            assert seen.offered.shape == (self.batch, slices)
            assert seen.probes.values.shape == (*seen.probes.valid.shape, len(self.layout.probe_metrics))

    def test_probes_end_in_one_way(self) -> None:
        """Only answered ones have values or take time; the others have their status, or nothing."""
        for seen in self.reads():
            probes = seen.probes
            assert probes.outcome.shape == probes.latency_ms.shape == probes.valid.shape
            np.testing.assert_array_equal(probes.valid, probes.outcome == ProbeOutcome.ANSWERED)
            assert np.isin(probes.outcome, list(ProbeOutcome)).all()
            assert np.isnan(probes.latency_ms[~probes.valid]).all()
            known = probes.latency_ms[~np.isnan(probes.latency_ms)]
            assert (known >= 0.0).all()

    def test_clock_never_goes_back(self) -> None:
        """Now does not decrease, and nothing was scraped or probed after now."""
        last = np.full(self.batch, -np.inf)
        for seen in self.reads():
            assert (seen.now_ms >= last).all()
            last = seen.now_ms
            scraped = seen.scraped_at_ms
            assert (np.isnan(scraped) | (scraped <= seen.now_ms[:, None])).all()
            sampled = seen.probes.sampled_at_ms
            assert (~seen.probes.valid | (sampled <= seen.now_ms[:, None])).all()

    def test_values_are_possible(self) -> None:
        """Counts are >= 0, ratios in 0..1 or unknown, histograms cumulative, states and indices known."""
        _, slices, replicas = self.layout.shape
        for seen in self.reads():
            for counts in (
                seen.answered,
                seen.failed,
                seen.latency_le,
                seen.gateway.answered,
                seen.gateway.failed,
                seen.gateway.latency_le,
                seen.offered,
                seen.consecutive_failed,
            ):
                assert (counts >= 0).all()
            for ratio in (seen.kv_used_ratio, seen.fingerprint_match, seen.trace_fields_ratio):
                assert (np.isnan(ratio) | ((ratio >= 0.0) & (ratio <= 1.0))).all()
            assert (np.diff(seen.latency_le, axis=-1) >= 0).all()
            assert (np.diff(seen.gateway.latency_le, axis=-1) >= 0).all()
            assert np.isin(seen.replica_state, [int(state) for state in ReplicaState]).all()
            valid = seen.probes.valid
            assert (seen.probes.replica[valid] < replicas).all()
            assert (seen.probes.slice[valid] < slices).all()


class RouteActuatorSuite(ABC):
    """Laws of ``RouteActuator``."""

    layout: FleetLayout
    batch: int = 1

    @abstractmethod
    def actuator(self) -> RouteActuator:
        """A fresh actuator that accepts plans."""

    @abstractmethod
    def table_in_force(self, actuator: RouteActuator) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        """Table [B, S, K + 1] in force for traffic."""

    def plan(self, kernel: int, version: int) -> RoutingPlan:
        kernels, slices, replicas = self.layout.shape
        table = np.zeros((self.batch, slices, kernels + 1))
        table[:, :, kernel] = 1.0
        return RoutingPlan(
            table=table,
            in_rotation=np.ones((self.batch, replicas), dtype=np.bool_),
            version=np.full(self.batch, version, dtype=np.int64),
        )

    def test_acknowledged_plan_is_in_force(self) -> None:
        """After True, traffic is routed by the plan's table."""
        actuator, plan = self.actuator(), self.plan(0, 1)
        assert actuator.apply(plan)
        np.testing.assert_allclose(self.table_in_force(actuator), plan.table, atol=1e-6)

    def test_applying_twice_is_applying_once(self) -> None:
        """The same plan again changes nothing, and the newest plan wins."""
        actuator, newest = self.actuator(), self.plan(len(self.layout.kernels) - 1, 2)
        for plan in (self.plan(0, 1), newest, newest):
            assert actuator.apply(plan)
        np.testing.assert_allclose(self.table_in_force(actuator), newest.table, atol=1e-6)


class ClockSuite(ABC):
    """Laws of ``Clock``."""

    @abstractmethod
    def clock(self) -> Clock:
        """A clock."""

    def test_never_goes_back(self) -> None:
        """Later readings are not smaller."""
        clock = self.clock()
        assert clock.now_ms() <= clock.now_ms()
