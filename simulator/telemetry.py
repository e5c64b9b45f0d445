"""Telemetry as a real fleet shows it: scraped at intervals, delayed, sometimes lost, never the truth.

Three channels with their own honesty. Discovery and the gateway's counters are there at once. Metrics of
a replica are scraped every ``scrape_interval_s`` (each replica in its own phase), arrive
``scrape_delay_s`` later and may be lost; counters are cumulative, so the next scrape brings what a lost
one would have. Probe results come through ``simulator.probes``. A replica whose telemetry is lost shows
nothing of its own, which is not the same as showing something bad.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit
from numpy.typing import NDArray

from contracts.layout import HISTOGRAM_EDGES_MS, LATENCY_FAMILIES
from contracts.streams import stream
from contracts.telemetry import FleetTelemetry, ProbeSamples, ReplicaState
from contracts.units import MS_PER_S
from simulator.board import ReplicaBoard
from simulator.engine_records import Counters, Gauges
from simulator.world import CompiledScenario


class Telemetry:
    """What arrived from B fleets, tick by tick."""

    def __init__(self, each: Sequence[CompiledScenario], seeds: list[int]) -> None:
        scenario = each[0]
        _, slices, replicas = scenario.layout.shape
        batch, tick_s = len(seeds), scenario.tick_s
        waits = [max(1, round(own.telemetry.scrape_interval_s / tick_s)) for own in each]
        self._interval = np.array(waits)[:, None]
        self._delay = int(np.ceil(scenario.telemetry.scrape_delay_s / tick_s - 1e-9))
        draws = [_draws(seed, scenario.ticks, replicas) for seed in seeds]
        self._phase = np.floor(np.stack([phase for phase, _ in draws]) * self._interval).astype(np.int64)
        self._luck = np.stack([luck for _, luck in draws], axis=1)
        shape = (batch, replicas)
        buckets = (slices, len(LATENCY_FAMILIES), len(HISTOGRAM_EDGES_MS) + 1)
        self._seen_counts = np.zeros((*shape, *buckets), dtype=np.int32)
        self._counts = [np.zeros((*shape, *buckets), dtype=np.int64) for _ in range(self._delay + 1)]
        # Gauges under way: instant, running, waiting, KV use, fingerprint, trace fields.
        self._gauges = np.full((self._delay + 1, *shape, 6), np.nan)
        self._shown = np.full((*shape, 6), np.nan)
        self._shown[:, :, 1:4] = 0.0

    def forget(self, fleet: int, replica: int, latency_counts: NDArray[np.int32]) -> None:
        """A new process starts its counters at zero: what nobody scraped of the old one is gone."""
        self._seen_counts[fleet, replica] = latency_counts[fleet, replica]

    def read(
        self,
        tick: int,
        now_s: float,
        counters: Counters,
        gauges: Gauges,
        latency_counts: NDArray[np.int32],
        board: ReplicaBoard,
        probes: ProbeSamples,
    ) -> FleetTelemetry:
        """All that arrives at the end of ``tick``, at ``now_s``."""
        self._scrape(tick, now_s, gauges, latency_counts, board)
        slot = tick % (self._delay + 1)
        arrived = self._gauges[slot]
        fresh = np.isfinite(arrived[:, :, 0])
        self._shown[fresh] = arrived[fresh]
        latency_le = self._counts[slot]
        arrived[...] = np.nan
        self._counts[slot] = np.zeros_like(latency_le)
        batch = self._shown.shape[0]
        return FleetTelemetry(
            now_ms=np.full(batch, now_s * MS_PER_S),
            replica_state=board.state.copy(),
            scraped_at_ms=self._shown[:, :, 0].copy(),
            running=self._shown[:, :, 1].copy(),
            waiting=self._shown[:, :, 2].copy(),
            kv_used_ratio=self._shown[:, :, 3].copy(),
            answered=counters.answered,
            failed=counters.attempts_failed,
            latency_le=latency_le,
            consecutive_failed=gauges.consecutive_failed,
            fingerprint_match=self._shown[:, :, 4].copy(),
            trace_fields_ratio=self._shown[:, :, 5].copy(),
            offered=counters.offered,
            probes=probes,
        )

    def _scrape(
        self, tick: int, now_s: float, gauges: Gauges, latency_counts: NDArray[np.int32], board: ReplicaBoard
    ) -> None:
        due = (tick % self._interval == self._phase) & (self._luck[tick] >= board.scrape_loss)
        due &= ~board.telemetry_lost & _has_metrics(board)
        slot = (tick + self._delay) % (self._delay + 1)
        _collect(due, latency_counts, self._seen_counts, self._counts[slot])
        taken = self._gauges[slot]
        values = (
            np.full(due.shape, now_s * MS_PER_S),
            gauges.running,
            gauges.waiting,
            gauges.kv_used_ratio,
            1.0 - board.wrong_fingerprint,
            1.0 - board.trace_missing,
        )
        for place, value in enumerate(values):
            taken[:, :, place] = np.where(due, value, np.nan)


def _draws(seed: int, ticks: int, replicas: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    rng = stream(seed, "scrapes")
    return rng.random(replicas), rng.random((ticks, replicas))


def _has_metrics(board: ReplicaBoard) -> NDArray[np.bool_]:
    """Bool [B, R]: the metrics endpoint answers; that of a hung engine does, as measured."""
    ready, draining = int(ReplicaState.READY), int(ReplicaState.DRAINING)
    return np.asarray((board.state == ready) | (board.state == draining))


@njit(cache=True)
def _collect(due, counts, seen, out):  # type: ignore[no-untyped-def]  # pragma: no cover
    """For each due replica, put its buckets since the last scrape into ``out``, summed over edges."""
    batch, replicas, slices, families, edges = counts.shape
    for b in range(batch):
        for r in range(replicas):
            if not due[b, r]:
                continue
            for s in range(slices):
                for f in range(families):
                    total = 0
                    for e in range(edges):
                        total += counts[b, r, s, f, e] - seen[b, r, s, f, e]
                        seen[b, r, s, f, e] = counts[b, r, s, f, e]
                        out[b, r, s, f, e] = total


def warm() -> None:
    """Compile what this module compiles, so that no job pays for it after a fork."""
    shape = (1, 1, 1, len(LATENCY_FAMILIES), len(HISTOGRAM_EDGES_MS) + 1)
    counts, seen, out = (np.zeros(shape, dtype=kind) for kind in (np.int32, np.int32, np.int64))
    _collect(np.ones((1, 1), dtype=np.bool_), counts, seen, out)
