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

#: What a scrape brings beside the histograms: instant, running, waiting, KV use, fingerprint, trace fields.
_GAUGES = 6


class Telemetry:
    """What arrived from B fleets, tick by tick.

    With ``reuse`` the histograms of a tick are overwritten in the next one: for drivers that keep none.
    """

    def __init__(self, each: Sequence[CompiledScenario], seeds: list[int], *, reuse: bool = False) -> None:
        scenario = each[0]
        _, slices, replicas = scenario.layout.shape
        batch, tick_s = len(seeds), scenario.tick_s
        waits = [max(1, round(own.telemetry.scrape_interval_s / tick_s)) for own in each]
        self._interval = np.array(waits)
        self._delay = int(np.ceil(scenario.telemetry.scrape_delay_s / tick_s - 1e-9))
        draws = [_draws(seed, scenario.ticks, replicas) for seed in seeds]
        phase = np.stack([phase for phase, _ in draws]) * self._interval[:, None]
        self._phase = np.floor(phase).astype(np.int64)
        self._luck = np.stack([luck for _, luck in draws], axis=1)
        shape, self._reuse = (batch, replicas), reuse
        buckets = (slices, len(LATENCY_FAMILIES), len(HISTOGRAM_EDGES_MS) + 1)
        self._seen_counts = np.zeros((*shape, *buckets), dtype=np.int32)
        # Under way, by the slot of the tick in which they arrive; ``_filled``: a slot holds something.
        self._counts = [np.zeros((*shape, *buckets), dtype=np.int64) for _ in range(self._delay + 1)]
        self._filled = np.zeros((self._delay + 1, *shape), dtype=np.bool_)
        self._gauges = np.zeros((self._delay + 1, *shape, _GAUGES))
        self._shown = np.full((*shape, _GAUGES), np.nan)
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
        leaves, slot = (tick + self._delay) % (self._delay + 1), tick % (self._delay + 1)
        _scrape(
            tick, now_s * MS_PER_S, self._interval, self._phase, self._luck[tick], board.scrape_loss,
            board.telemetry_lost, board.state, board.wrong_fingerprint, board.trace_missing, gauges.counts,
            gauges.kv_used_ratio, latency_counts, self._seen_counts, self._counts[leaves],
            self._filled[leaves], self._gauges[leaves],
        )  # fmt: skip
        shown = np.empty((_GAUGES, *self._shown.shape[:2]))
        _arrive(self._filled[slot], self._gauges[slot], self._shown, shown)
        latency_le = self._counts[slot]
        if not self._reuse:
            self._counts[slot], self._filled[slot] = np.zeros_like(latency_le), False
        return FleetTelemetry(
            now_ms=np.full(len(self._shown), now_s * MS_PER_S),
            replica_state=board.state.copy(),
            scraped_at_ms=shown[0],
            running=shown[1],
            waiting=shown[2],
            kv_used_ratio=shown[3],
            # Contiguous once and for all: every reader in the controller wants them so.
            answered=np.ascontiguousarray(counters.answered),
            failed=np.ascontiguousarray(counters.attempts_failed),
            latency_le=latency_le,
            consecutive_failed=gauges.consecutive_failed,
            fingerprint_match=shown[4],
            trace_fields_ratio=shown[5],
            offered=counters.offered,
            probes=probes,
        )


def _draws(seed: int, ticks: int, replicas: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    rng = stream(seed, "scrapes")
    return rng.random(replicas), rng.random((ticks, replicas))


_READY, _DRAINING = int(ReplicaState.READY), int(ReplicaState.DRAINING)


@njit(cache=True, error_model="numpy")
def _scrape(  # type: ignore[no-untyped-def]  # pragma: no cover
    tick, now_ms, interval, phase, luck, loss, lost, state, wrong_fingerprint, trace_missing, gauges, kv_used,
    counts, seen, out, filled, taken,
):  # fmt: skip
    """For each replica that is due, put what it shows into ``out``, ``filled`` and ``taken``.

    Histograms are those since its last scrape, summed over edges; ``out`` is zero elsewhere. The metrics
    endpoint of a hung engine answers, as measured.
    """
    batch, replicas, slices, families, edges = counts.shape
    for b in range(batch):
        in_turn = tick % interval[b]
        for r in range(replicas):
            if filled[b, r]:
                out[b, r] = 0
            filled[b, r] = (
                in_turn == phase[b, r]
                and luck[b, r] >= loss[b, r]
                and not lost[b, r]
                and (state[b, r] == _READY or state[b, r] == _DRAINING)
            )
            if not filled[b, r]:
                continue
            taken[b, r, 0] = now_ms
            taken[b, r, 1] = gauges[0, b, r]
            taken[b, r, 2] = gauges[1, b, r]
            taken[b, r, 3] = kv_used[b, r]
            taken[b, r, 4] = 1.0 - wrong_fingerprint[b, r]
            taken[b, r, 5] = 1.0 - trace_missing[b, r]
            for s in range(slices):
                for f in range(families):
                    total = 0
                    for e in range(edges):
                        total += counts[b, r, s, f, e] - seen[b, r, s, f, e]
                        seen[b, r, s, f, e] = counts[b, r, s, f, e]
                        out[b, r, s, f, e] = total


@njit(cache=True, error_model="numpy")
def _arrive(filled, arrived, shown, out):  # type: ignore[no-untyped-def]  # pragma: no cover
    """What a replica showed last, [B, R, 6], with what arrives now; also as ``out`` [6, B, R]."""
    for b in range(filled.shape[0]):
        for r in range(filled.shape[1]):
            for g in range(out.shape[0]):
                if filled[b, r]:
                    shown[b, r, g] = arrived[b, r, g]
                out[g, b, r] = shown[b, r, g]


def warm() -> None:
    """Compile what this module compiles, so that no job pays for it after a fork."""
    buckets = (1, len(LATENCY_FAMILIES), len(HISTOGRAM_EDGES_MS) + 1)
    for batch in (1, 2):
        each = (batch, 1)
        counts, seen, out = (
            np.zeros((*each, *buckets), dtype=kind) for kind in (np.int32, np.int32, np.int64)
        )
        numbers, no = np.zeros(each), np.zeros(each, dtype=np.bool_)
        _scrape(
            0, 0.0, np.ones(batch, dtype=np.int64), np.zeros(each, dtype=np.int64), numbers, numbers, no,
            np.full(each, _READY, dtype=np.int8), no, numbers, np.zeros((5, *each), dtype=np.int64), numbers,
            counts, seen, out, no.copy(), np.zeros((*each, _GAUGES)),
        )  # fmt: skip
        _arrive(no, np.zeros((*each, _GAUGES)), np.zeros((*each, _GAUGES)), np.zeros((_GAUGES, *each)))
