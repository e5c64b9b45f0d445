"""The telemetry record of one live fleet: discovery, scrapes, gateway and probes put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.layout import FleetLayout
from contracts.telemetry import (
    ENGINE_COUNTERS,
    EngineCounters,
    FleetTelemetry,
    GatewayCounts,
    ProbeSamples,
    ReplicaState,
)
from contracts.units import MS_PER_S
from live.observe.increments import Increments, increments, nothing_known
from live.observe.metrics import GAUGES, EngineReading
from live.observe.traffic import Traffic, TrafficCounter
from live.ports import GatewaySample, LiveReplica


class Recorder:
    """Makes one ``FleetTelemetry`` (a batch of one fleet) per tick; remembers the scrapes before."""

    def __init__(self, layout: FleetLayout, fingerprints: Mapping[str, str]) -> None:
        """``fingerprints``: kernel -> what its replicas must state; "" or missing: not judged."""
        self._layout = layout
        self._expected = [fingerprints.get(layout.kernels[k], "") for k in layout.replica_kernel]
        self._traffic = TrafficCounter(layout)
        self._last: dict[str, EngineReading] = {}

    def record(
        self,
        now_s: float,
        replicas: Sequence[LiveReplica],
        readings: Mapping[str, EngineReading],
        sample: GatewaySample,
        probes: ProbeSamples,
    ) -> FleetTelemetry:
        """All that arrived since the last call. ``readings`` are of replicas that were scraped since."""
        seen = {replica.name: replica for replica in replicas}
        known = [self._increments(name, readings.get(name)) for name in self._layout.replicas]
        traffic = self._traffic.count(sample)
        engine = np.stack([one.engine for one in known], axis=1).reshape(ENGINE_COUNTERS, 1, -1)
        gauges = {field: _fleet(self._gauge(field)) for field in GAUGES}
        return FleetTelemetry(
            now_ms=np.array([now_s * MS_PER_S]),
            replica_state=_fleet([_state(seen.get(name)) for name in self._layout.replicas]).astype(np.int8),
            scraped_at_ms=_fleet([self._scraped_at_ms(name) for name in self._layout.replicas]),
            running=gauges["running"],
            waiting=gauges["waiting"],
            kv_used_ratio=gauges["kv_used_ratio"],
            latency_le=np.stack([one.latency_le for one in known])[None],
            engine=EngineCounters.of(engine),
            fingerprint_match=_fleet(self._matches(seen)),
            trace_fields_ratio=np.full((1, len(self._layout.replicas)), np.nan),
            offered=traffic.offered[None],
            gateway=_gateway(traffic),
            answered=traffic.replica_answered[None],
            failed=traffic.replica_failed[None],
            consecutive_failed=self._traffic.consecutive_failed[None].copy(),
            probes=probes,
        )

    def _increments(self, replica: str, reading: EngineReading | None) -> Increments:
        if reading is None:
            return nothing_known()
        found = increments(self._last.get(replica), reading)
        self._last[replica] = reading
        return found

    def _gauge(self, field: str) -> list[float]:
        """[R] as last read; 0 before the first scrape, as nobody looks then, and NaN where not exported."""
        last = (self._last.get(name) for name in self._layout.replicas)
        return [0.0 if reading is None else reading.gauges.get(field, np.nan) for reading in last]

    def _scraped_at_ms(self, replica: str) -> float:
        reading = self._last.get(replica)
        return np.nan if reading is None else reading.read_at_s * MS_PER_S

    def _matches(self, seen: Mapping[str, LiveReplica]) -> list[float]:
        """[R] 1 right, 0 wrong, NaN where either side states none."""
        found = []
        for name, expected in zip(self._layout.replicas, self._expected, strict=True):
            stated = seen[name].fingerprint if name in seen else ""
            found.append(float(stated == expected) if stated and expected else np.nan)
        return found


def _state(replica: LiveReplica | None) -> int:
    return int(ReplicaState.ABSENT if replica is None else replica.state)


def _fleet(values: Sequence[float]) -> NDArray[np.float64]:
    """[1, R] of the one fleet."""
    return np.array([values], dtype=np.float64)


def _gateway(traffic: Traffic) -> GatewayCounts:
    return GatewayCounts(
        answered=traffic.answered[None],
        failed=traffic.failed[None],
        timed_out=traffic.timed_out[None],
        latency_le=traffic.latency_le[None],
    )
