"""Builds the telemetry record of one live fleet from discovery, scrapes, gateway and probes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import FleetLayout
from contracts.telemetry import (
    EngineCounters,
    FleetTelemetry,
    GatewayCounts,
    ProbeSamples,
    ReplicaState,
)
from contracts.units import MS_PER_S
from live.observe.increments import Increments, count, unknown_increments
from live.observe.metrics import GAUGES, GAUGES_AT, EngineReading
from live.observe.traffic import GatewayTraffic, TrafficCounter
from live.observe.trust import FleetTrust
from live.ports import GatewaySample, LiveReplica


class TelemetryRecorder:
    """Makes one ``FleetTelemetry`` (a batch of one fleet) per tick; keeps the previous scrapes."""

    def __init__(
        self, layout: FleetLayout, fingerprints: Mapping[str, str], trust: FleetTrust | None = None
    ) -> None:
        """``fingerprints``: kernel -> what its replicas must state; "" or missing: not judged.

        trust: shared with other listeners to the same scrapes; None: there are none.
        """
        self._layout = layout
        self._expected = [fingerprints.get(layout.kernels[k], "") for k in layout.replica_kernel]
        self._traffic = TrafficCounter(layout)
        self._last: list[EngineReading | None] = [None] * len(layout.replicas)
        self._trust = trust or FleetTrust()
        #: float64 [GAUGES, 1, R] as last read; 0 before the first scrape.
        self._gauges = np.zeros((len(GAUGES), 1, len(layout.replicas)))
        self._scraped_at_ms = np.full((1, len(layout.replicas)), np.nan)
        self._outside = np.full((1, len(layout.replicas)), np.nan)
        self._unseen = np.full((1, len(layout.replicas)), np.nan)

    def record(
        self,
        now_s: float,
        replicas: Sequence[LiveReplica],
        readings: Mapping[str, EngineReading],
        sample: GatewaySample,
        probes: ProbeSamples,
    ) -> FleetTelemetry:
        """All telemetry since the last call. ``readings``: of the replicas that were scraped since."""
        seen = {replica.name: replica for replica in replicas}
        known = self._counted(readings)
        traffic = self._traffic.count(sample)
        self._note_outside(readings)
        gauges = dict(zip(GAUGES, self._gauges.copy(), strict=True))
        return FleetTelemetry(
            now_ms=np.array([now_s * MS_PER_S]),
            replica_state=_fleet([_state(seen.get(name)) for name in self._layout.replicas]).astype(np.int8),
            scraped_at_ms=self._scraped_at_ms.copy(),
            running=gauges["running"],
            waiting=_waiting(gauges["running"], gauges["waiting"], self._traffic.open),
            kv_used_ratio=gauges["kv_used_ratio"],
            latency_le=known.latency_le[None],
            engine=EngineCounters.of(known.engine.T.copy()[:, None]),
            outside=self._outside.copy(),
            fingerprint_match=_fleet(self._matches(seen)),
            trace_fields_ratio=self._unseen.copy(),
            offered=traffic.offered[None],
            gateway=_gateway(traffic),
            answered=traffic.replica_answered[None],
            failed=traffic.replica_failed[None],
            consecutive_failed=self._traffic.consecutive_failed[None].copy(),
            probes=probes,
        )

    def _counted(self, readings: Mapping[str, EngineReading]) -> Increments:
        """What every replica counted since its previous scrape; stores ``readings`` for the next call."""
        names = self._layout.replicas
        found = unknown_increments(len(names))
        for r, name in enumerate(names):
            now, before = readings.get(name), self._last[r]
            if now is None:
                continue
            believed = self._trust.believes(name, now)
            if before is not None and believed:
                count(before, now, found.engine[r], found.latency_le[r], self._layout.edges_ms)
            self._last[r] = now
            self._gauges[:, 0, r] = now.numbers[GAUGES_AT : GAUGES_AT + len(GAUGES)]
            self._scraped_at_ms[0, r] = now.read_at_s * MS_PER_S
        return found

    def _note_outside(self, readings: Mapping[str, EngineReading]) -> None:
        """Requests open at the gateway that the engine does not count, for each replica that was
        just read.
        """
        gauges = dict(zip(GAUGES, self._gauges[:, 0], strict=True))
        outside = self._traffic.open - gauges["running"] - gauges["waiting"]
        for r, name in enumerate(self._layout.replicas):
            if name in readings:
                self._outside[0, r] = outside[r] if self._traffic.told else np.nan

    def _matches(self, seen: Mapping[str, LiveReplica]) -> list[float]:
        """[R] 1: fingerprint matches, 0: it differs, NaN: not stated by one of the two sides."""
        found = []
        for name, expected in zip(self._layout.replicas, self._expected, strict=True):
            stated = seen[name].fingerprint if name in seen else ""
            found.append(float(stated == expected) if stated and expected else np.nan)
        return found


def _state(replica: LiveReplica | None) -> int:
    return int(ReplicaState.ABSENT if replica is None else replica.state)


def _waiting(
    running: NDArray[np.float64], waiting: NDArray[np.float64], held: NDArray[np.float64]
) -> NDArray[np.float64]:
    """[1, R] requests: those that the gateway has open (``held`` [R]) count as waiting if an engine reports
    none.

    An engine counts a request only in its next step, so an engine that hung while idle never counts it.
    """
    return np.where((running == 0.0) & (waiting == 0.0), held[None], waiting)


def _fleet(values: Sequence[float]) -> NDArray[np.float64]:
    """``values`` as [1, R], a batch of one fleet."""
    return np.array([values], dtype=np.float64)


def _gateway(traffic: GatewayTraffic) -> GatewayCounts:
    return GatewayCounts(
        answered=traffic.answered[None],
        failed=traffic.failed[None],
        timed_out=traffic.timed_out[None],
        latency_le=traffic.latency_le[None],
    )
