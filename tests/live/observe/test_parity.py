"""Both worlds agree: the simulator's record, written as servers and a gateway write it, is read
back by the live world as the same record.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from itertools import chain, islice, repeat

import numpy as np
import pytest
from numpy.typing import NDArray

from contracts.compiled.contract import FleetLayout
from contracts.telemetry import (
    HISTOGRAM_EDGES_MS,
    LATENCY_FAMILIES,
    EngineCounters,
    FleetTelemetry,
    ReplicaState,
)
from live.observe.metrics import EngineReading, parse_reading
from live.observe.record import TelemetryRecorder
from live.ports import GatewayAttempt, GatewayRequest, GatewaySample, LiveReplica
from simulator.fleet import run_episodes
from tests.support.fleets.simulated_fleets import FAULTS, Build, FixedDriver
from tests.support.servers.prometheus_text import metrics_text

_EDGES_MS = (*HISTOGRAM_EDGES_MS, np.inf)
_EDGES_S = tuple(edge / 1000.0 for edge in _EDGES_MS)
_COUNTED = [entry.name for entry in fields(EngineCounters) if entry.name != "span_s"]
_LATENCY, _TTFT = LATENCY_FAMILIES.index("latency_ms"), LATENCY_FAMILIES.index("ttft_ms")


class Servers:
    """Writes the record of simulated replicas as the text that servers would export."""

    def __init__(self, layout: FleetLayout) -> None:
        self._names = layout.replicas
        self._counters = np.zeros((len(_COUNTED), len(layout.replicas)))
        self._histograms = np.zeros((len(layout.replicas), len(LATENCY_FAMILIES), len(_EDGES_MS)))
        self._scraped = np.full(len(layout.replicas), np.nan)

    def scrape(self, seen: FleetTelemetry) -> dict[str, EngineReading]:
        """Readings of the replicas with a scrape that arrived with ``seen``."""
        found = {}
        for r, name in enumerate(self._names):
            at_ms = seen.scraped_at_ms[0, r]
            if np.isnan(at_ms) or at_ms == self._scraped[r]:
                continue
            self._scraped[r] = at_ms
            risen = np.array([getattr(seen.engine, field)[0, r] for field in _COUNTED])
            self._counters[:, r] += np.nan_to_num(risen)
            self._histograms[r] += seen.latency_le[0, r]
            found[name] = parse_reading(self._text(seen, r), at_ms / 1000.0)
        return found

    def _text(self, seen: FleetTelemetry, r: int) -> str:
        gauges = {field: getattr(seen, field)[0, r] for field in ("running", "waiting", "kv_used_ratio")}
        histograms = {
            family: (_EDGES_S, self._histograms[r, at]) for at, family in enumerate(LATENCY_FAMILIES)
        }
        return metrics_text(dict(zip(_COUNTED, self._counters[:, r], strict=True)), gauges, histograms)


class Gateway:
    """Writes the counts of the simulated gateway as rows; its histograms came later than its counts."""

    def __init__(self, layout: FleetLayout, every: list[FleetTelemetry]) -> None:
        self._layout = layout
        times = np.sum([seen.gateway.latency_le[0] for seen in every], axis=0)
        self._times = {
            (s, k): zip(
                chain(durations(times[s, k, _LATENCY], upper=True), repeat(1.0)),
                chain(durations(times[s, k, _TTFT], upper=False), repeat(None)),
                strict=True,
            )
            for s in range(times.shape[0])
            for k in range(times.shape[1])
        }

    def sample(self, seen: FleetTelemetry) -> GatewaySample:
        """Rows with the counts of ``seen``."""
        left = seen.answered[0].copy(), seen.failed[0].copy()
        attempts: list[GatewayAttempt] = []
        for (s, k), times in self._times.items():
            mine, name = np.flatnonzero(self._layout.replica_kernel == k), self._layout.slices[s]
            for total_ms, first_ms in islice(times, int(seen.gateway.answered[0, s, k])):
                replica = self._layout.replicas[taken(left[0], mine)]
                attempts.append(attempt(name, replica, 200, total_ms, first_ms))
            for _ in range(int(seen.gateway.failed[0, s, k])):
                replica = self._layout.replicas[taken(left[1], mine)]
                attempts.append(attempt(name, replica, 503, 1.0, None))
        offered = [
            ended(name) for s, name in enumerate(self._layout.slices) for _ in range(int(seen.offered[0, s]))
        ]
        return GatewaySample(
            read_at_s=0.0, requests=tuple(offered), attempts=tuple(attempts), hosts=(), unreadable=0
        )


def durations(counts: NDArray[np.int64], *, upper: bool) -> Iterator[float]:
    """Times, ascending, that fall into the buckets of cumulative ``counts``: at or just over an edge."""
    for at, count in enumerate(np.diff(counts, prepend=0)):
        low = 0.0 if at == 0 else _EDGES_MS[at - 1]
        high = _EDGES_MS[at] if np.isfinite(_EDGES_MS[at]) else 10.0 * low
        for _ in range(int(count)):
            yield high if upper else low + 0.01 * (high - low)


def taken(left: NDArray[np.int64], mine: NDArray[np.int64]) -> int:
    """The first of ``mine`` that has rows left; takes one."""
    r = int(mine[np.argmax(left[mine] > 0)])
    left[r] -= 1
    return r


def attempt(slice_: str, replica: str, code: int, total_ms: float, first_ms: float | None) -> GatewayAttempt:
    """One row."""
    return GatewayAttempt(
        started_at_s=0.0,
        slice=slice_,
        replica=replica,
        code=code,
        first_byte_ms=first_ms,
        duration_ms=total_ms,
        flags="",
        shadow=False,
    )


def ended(slice_: str) -> GatewayRequest:
    """One request that ended."""
    return GatewayRequest(
        started_at_s=0.0,
        slice=slice_,
        code=200,
        shed=False,
        replica="",
        attempts=1,
        duration_ms=1.0,
        flags="",
    )


def known_replicas(seen: FleetTelemetry, layout: FleetLayout) -> list[LiveReplica]:
    """The replicas from discovery."""
    return [
        LiveReplica(
            name=name,
            kernel=layout.kernels[layout.replica_kernel[r]],
            url="http://127.0.0.1:1",
            state=ReplicaState(int(seen.replica_state[0, r])),
        )
        for r, name in enumerate(layout.replicas)
    ]


@pytest.mark.parametrize("kind", ["requantise", "crash", "slow", "http_errors"])
def test_one_recording_gives_one_record_through_both_adapters(build: Build, kind: str) -> None:
    """Gauges, counters, histograms and the gateway's counts of a faulty episode, tick by tick."""
    scenario = build(faults=[FAULTS[kind]])
    recording = FixedDriver(scenario)
    run_episodes(scenario, recording, [3])
    layout = scenario.layout
    servers, recorder = Servers(layout), TelemetryRecorder(layout, {})
    gateway, told_latencies = Gateway(layout, recording.seen), []
    scrapes = np.zeros(len(layout.replicas), dtype=np.int64)
    for seen in recording.seen:
        before = scrapes.copy()
        readings = servers.scrape(seen)
        scrapes += [name in readings for name in layout.replicas]
        sample = gateway.sample(seen)
        told = recorder.record(
            seen.now_ms[0] / 1000.0, known_replicas(seen, layout), readings, sample, seen.probes
        )
        second = (scrapes > before) & (scrapes > 1)
        for field in _COUNTED:
            ours, theirs = getattr(told.engine, field)[0], getattr(seen.engine, field)[0]
            both = second & np.isfinite(theirs)
            np.testing.assert_allclose(ours[both], theirs[both], rtol=1e-9, atol=1e-6, err_msg=field)
        assert (told.latency_le[0][second] == seen.latency_le[0][second]).all()
        for field in ("running", "waiting", "kv_used_ratio", "scraped_at_ms"):
            np.testing.assert_array_equal(getattr(told, field), getattr(seen, field), err_msg=field)
        for field in ("offered", "answered", "failed", "replica_state", "now_ms"):
            np.testing.assert_array_equal(getattr(told, field), getattr(seen, field), err_msg=field)
        for field in ("answered", "failed"):
            np.testing.assert_array_equal(getattr(told.gateway, field), getattr(seen.gateway, field))
        told_latencies.append(told.gateway.latency_le[0])
    told_sum = np.sum(told_latencies, axis=0)
    seen_sum = np.sum([seen.gateway.latency_le[0] for seen in recording.seen], axis=0)
    answered = np.sum([seen.gateway.answered[0] for seen in recording.seen], axis=0)
    unflushed = answered - seen_sum[:, :, _LATENCY, -1]
    assert (unflushed >= 0).all()
    assert (told_sum[:, :, _LATENCY] - seen_sum[:, :, _LATENCY] == unflushed[:, :, None]).all()
    assert (told_sum[:, :, _TTFT] == seen_sum[:, :, _TTFT]).all()
