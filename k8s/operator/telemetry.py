"""Telemetry of one pool: pods found, scraped and, where there is a prober, probed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.layout import FleetLayout
from contracts.telemetry import FleetTelemetry, ProbeSamples, ReplicaState
from contracts.units import MS_PER_S
from controller.ports import Clock
from live.control.source import nothing_probed
from live.observe.metrics import EngineReading
from live.observe.record import Recorder
from live.ports import Discovery, GatewaySample


class Scrapes(Protocol):
    """Who reads servers, as ``live.observe.scraper.Scraper`` does."""

    def scrape(self, urls: Mapping[str, str]) -> dict[str, EngineReading]:
        """Replica -> its reading, of those that answered in time."""


class Probes(Protocol):
    """Who probes servers, as ``live.probe.prober.Prober`` does."""

    def step(self, now_s: float) -> ProbeSamples:
        """Send what is due; what came back since the last call."""


class ClusterTelemetry:
    """``TelemetrySource`` of one pool.

    Gateways of clusters tell their counts in no common form, so nothing is known of them: what replicas
    answered comes from the servers themselves, and nobody knows how much was offered to a slice.
    """

    def __init__(
        self,
        layout: FleetLayout,
        discovery: Discovery,
        scrapes: Scrapes,
        clock: Clock,
        probes: Probes | None = None,
    ) -> None:
        self._layout, self._recorder = layout, Recorder(layout, {})
        self._discovery, self._scrapes, self._clock, self._probes = discovery, scrapes, clock, probes

    def read(self) -> FleetTelemetry:
        """All that arrived since the last call."""
        now_s = self._clock.now_ms() / MS_PER_S
        replicas = self._discovery.replicas()
        reachable = {one.name: one.url for one in replicas if one.state in _SCRAPED}
        readings = self._scrapes.scrape(reachable)
        nothing = GatewaySample(read_at_s=now_s, requests=(), attempts=(), hosts=(), unreadable=0)
        probes = nothing_probed(self._layout) if self._probes is None else self._probes.step(now_s)
        found = self._recorder.record(now_s, replicas, readings, nothing, probes)
        return replace(found, answered=_answered(found))


_SCRAPED = frozenset({ReplicaState.READY, ReplicaState.STARTING, ReplicaState.DRAINING})


def _answered(found: FleetTelemetry) -> NDArray[np.int64]:
    """int64 [1, R]: requests that the servers finished; at least 1 where tokens came, which is no hang."""
    finished = np.nan_to_num(found.engine.finished).astype(np.int64)
    wrote = np.nan_to_num(found.engine.generation_tokens) > 0.0
    return np.asarray(np.maximum(finished, wrote.astype(np.int64)))
