"""Telemetry of running servers as the controller reads it: discovery, scrapes, gateway, probes of one tick.

Each part fails for itself: what it did not tell is unknown in that tick. All instants are on the controller's
clock, so a step of the system clock makes nothing look old or new.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import FleetLayout
from contracts.telemetry import FleetTelemetry, ProbeSamples, ReplicaState
from contracts.units import MS_PER_S
from controller.ports import Clock
from live.bounded_http import monotonic_unix_s
from live.observe.metrics import EngineReading
from live.observe.record import TelemetryRecorder
from live.observe.trust import FleetTrust
from live.ports import Discovery, GatewaySample, GatewayStatistics

#: Nothing that the gateway reported.
NO_ROWS = GatewaySample(read_at_s=0.0, requests=(), attempts=(), hosts=(), unreadable=0)


class ProbeStep(Protocol):
    """Sends probes: ``live.probe.prober.Prober``, or any other."""

    def step(self, now_s: float) -> ProbeSamples:
        """Send what is due; what ended since the last call."""


class ServerReader(Protocol):
    """Reads servers: ``live.observe.scraper.Scraper``, or one that several share."""

    def scrape(self, urls: Mapping[str, str]) -> dict[str, EngineReading]:
        """Replica -> its reading, of those that answered in time."""

    def close(self) -> None:
        """Stop scraping and release connections."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceParts:
    """What is watched. statistics None: no gateway tells what it routed. prober None: nothing is probed."""

    layout: FleetLayout
    discovery: Discovery
    scraper: ServerReader
    clock: Clock
    statistics: GatewayStatistics | None = None
    prober: ProbeStep | None = None
    listeners: Sequence[Callable[[Mapping[str, EngineReading]], None]] = ()
    """Are told of every scrape that ended, by replica."""
    fingerprints: Mapping[str, str] | None = None
    """Kernel -> what its replicas must state; None or missing: not judged."""
    trust: FleetTrust | None = None
    """That of listeners which ask whose counters a scrape tells; None: there are none."""


class FleetSource:
    """``controller.ports.TelemetrySource`` over running servers. ``close`` it at the end."""

    def __init__(self, parts: SourceParts) -> None:
        self._parts = parts
        self._recorder = TelemetryRecorder(parts.layout, dict(parts.fingerprints or {}), parts.trust)
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="scrapes")
        self._scrape: Future[dict[str, EngineReading]] | None = None

    @property
    def outdated(self) -> str:
        """Why servers are known only as they were last seen, "" where they are as now."""
        return str(getattr(self._parts.discovery, "outdated", ""))

    def close(self, *, wait: bool = True) -> None:
        """Stop scraping. wait: for the scrape under way; else what it brings is nobody's any more, and
        whoever reads for others too goes on.
        """
        self._threads.shutdown(wait=wait, cancel_futures=True)
        self._parts.scraper.close()

    def read(self) -> FleetTelemetry:
        """All telemetry that arrived since the previous call. Scrapes run in threads and never delay the
        tick.

        Raises the errors of discovery: without it the servers are unknown.
        """
        parts, now_s = self._parts, self._parts.clock.now_ms() / MS_PER_S
        ahead_s = monotonic_unix_s() - now_s
        replicas = parts.discovery.replicas()
        readings = self._readings(now_s, ahead_s)
        for tell in parts.listeners:
            tell(readings)
        urls = {one.name: one.url for one in replicas if one.state == ReplicaState.READY}
        if self._scrape is None and urls:
            self._scrape = self._threads.submit(parts.scraper.scrape, urls)
        sample = NO_ROWS if parts.statistics is None else parts.statistics.read()
        probes = nothing_probed(parts.layout) if parts.prober is None else parts.prober.step(now_s)
        seen = self._recorder.record(now_s, replicas, readings, sample, _on_clock(probes, now_s, ahead_s))
        told = parts.statistics is not None and sample.tells_replicas
        return seen if told else counted_by_servers(seen, self._fresh(readings))

    def _fresh(self, readings: Mapping[str, EngineReading]) -> NDArray[np.bool_]:
        """bool [1, R]: scraped since the last tick."""
        return np.array([[name in readings for name in self._parts.layout.replicas]])

    def _readings(self, now_s: float, ahead_s: float) -> dict[str, EngineReading]:
        """What the scrapes that ended since told, on the controller's clock; dates are ``ahead_s`` of it."""
        if self._scrape is None or not self._scrape.done():
            return {}
        ended, self._scrape = self._scrape, None
        return {
            name: replace(one, read_at_s=min(one.read_at_s - ahead_s, now_s))
            for name, one in ended.result().items()
        }


def nothing_probed(layout: FleetLayout) -> ProbeSamples:
    """No probe ended, of one fleet."""
    none = np.zeros((1, 0), dtype=np.int64)
    return ProbeSamples.of_results(
        replica=none,
        slice=none,
        prompt=none,
        sampled_at_ms=np.zeros((1, 0)),
        values=np.zeros((1, 0, len(layout.probe_metrics))),
        valid=np.zeros((1, 0), dtype=np.bool_),
    )


def _on_clock(probes: ProbeSamples, now_s: float, ahead_s: float) -> ProbeSamples:
    """``probes`` with instants on the controller's clock, none of them to come."""
    at_ms = probes.sampled_at_ms - ahead_s * MS_PER_S
    return replace(probes, sampled_at_ms=np.minimum(at_ms, now_s * MS_PER_S))


def counted_by_servers(seen: FleetTelemetry, fresh: NDArray[np.bool_]) -> FleetTelemetry:
    """``seen`` with what servers say of themselves, where no gateway counts by replica.

    Requests that a server finished are its answers, and at least one where it wrote tokens: long answers are
    no hang. Of a server that exports neither, what it runs is not known either. ``fresh``: bool [1, R],
    scraped since the last tick.
    """
    finished, wrote = seen.engine.finished, seen.engine.generation_tokens
    unknown = np.isnan(finished) & np.isnan(wrote)
    answered = np.maximum(np.where(np.isnan(finished), 0.0, finished), wrote > 0.0)
    return replace(
        seen,
        answered=answered.astype(np.int64),
        running=np.where(unknown & fresh, np.nan, seen.running),
    )
