"""Telemetry of running servers for one controller tick: discovery, scrapes, gateway, probes.

Each part fails independently: what it did not report is unknown in that tick. All instants are on the
controller's clock, so a step of the system clock makes no data look older or newer.
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

#: A gateway sample without any rows.
NO_ROWS = GatewaySample(read_at_s=0.0, requests=(), attempts=(), hosts=(), unreadable=0)


class ProbeStep(Protocol):
    """Sends probes, as ``live.probe.prober.Prober`` does."""

    def step(self, now_s: float) -> ProbeSamples:
        """Send the probes that are due; return the results since the last call."""


class ServerReader(Protocol):
    """Reads servers: ``live.observe.scraper.Scraper``, or a reader that several sources share."""

    def scrape(self, urls: Mapping[str, str]) -> dict[str, EngineReading]:
        """Replica -> its reading, for those that answered in time."""

    def close(self) -> None:
        """Stop scraping and release connections."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceParts:
    """The parts of a source. statistics None: no gateway reports its routing. prober None: no probes."""

    layout: FleetLayout
    discovery: Discovery
    scraper: ServerReader
    clock: Clock
    statistics: GatewayStatistics | None = None
    prober: ProbeStep | None = None
    listeners: Sequence[Callable[[Mapping[str, EngineReading]], None]] = ()
    """Called with the readings of every scrape that ended, by replica."""
    fingerprints: Mapping[str, str] | None = None
    """Kernel -> fingerprint that its replicas must state; None, or a missing kernel: not judged."""
    trust: FleetTrust | None = None
    """Trust in counters that the listeners share, so that the source uses the same; None: no such
    listeners.
    """


class FleetSource:
    """``controller.ports.TelemetrySource`` over running servers. Call ``close`` at the end."""

    def __init__(self, parts: SourceParts) -> None:
        self._parts = parts
        self._recorder = TelemetryRecorder(parts.layout, dict(parts.fingerprints or {}), parts.trust)
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="scrapes")
        self._scrape: Future[dict[str, EngineReading]] | None = None

    @property
    def outdated(self) -> str:
        """Why the list of servers is out of date; "" if it is current."""
        return str(getattr(self._parts.discovery, "outdated", ""))

    def close(self, *, wait: bool = True) -> None:
        """Stop scraping. wait: wait for the running scrape; otherwise its result is dropped, and a reader
        shared with other sources continues.
        """
        self._threads.shutdown(wait=wait, cancel_futures=True)
        self._parts.scraper.close()

    def read(self) -> FleetTelemetry:
        """All telemetry since the previous call. Scrapes run in threads and never delay the tick.

        Raises the errors of discovery, because the servers are unknown without it.
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
        """Readings of the scrape that ended since the last call; dates are shifted by ``ahead_s`` to our
        clock.
        """
        if self._scrape is None or not self._scrape.done():
            return {}
        ended, self._scrape = self._scrape, None
        return {
            name: replace(one, read_at_s=min(one.read_at_s - ahead_s, now_s))
            for name, one in ended.result().items()
        }


def nothing_probed(layout: FleetLayout) -> ProbeSamples:
    """Probe samples of one fleet without any probe."""
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
    """``probes`` with instants on the controller's clock, none in the future."""
    at_ms = probes.sampled_at_ms - ahead_s * MS_PER_S
    return replace(probes, sampled_at_ms=np.minimum(at_ms, now_s * MS_PER_S))


def counted_by_servers(seen: FleetTelemetry, fresh: NDArray[np.bool_]) -> FleetTelemetry:
    """``seen`` with answer counts from the servers' own counters, for fleets whose gateway has none by
    replica.

    ``answered`` is the number of requests a server finished, and at least 1 if it wrote tokens, so that long
    answers do not look like a hang. For a server that exports neither counter, ``running`` is unknown too.
    ``fresh``: bool [1, R], scraped since the last tick.
    """
    finished, wrote = seen.engine.finished, seen.engine.generation_tokens
    unknown = np.isnan(finished) & np.isnan(wrote)
    answered = np.maximum(np.where(np.isnan(finished), 0.0, finished), wrote > 0.0)
    return replace(
        seen,
        answered=answered.astype(np.int64),
        running=np.where(unknown & fresh, np.nan, seen.running),
    )
