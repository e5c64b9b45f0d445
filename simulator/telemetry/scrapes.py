"""Telemetry as a real fleet shows it: scraped at intervals, delayed, sometimes lost, never the ground truth.

There are three channels. Discovery and the gateway's counters are available at once, by slice and kernel or
by replica; the gateway's histograms every ``scrape_interval_s``, when it merges them. Metrics of a replica,
which does not know slices, are scraped every ``scrape_interval_s`` (each replica with its own phase), arrive
``scrape_delay_s`` later and may be lost. Counters are cumulative, so the next scrape makes up for a lost one;
a record contains the difference of the engine's counters between two scrapes that arrived. Probe results come
from ``simulator.telemetry.probes``. A replica with lost telemetry shows nothing of its own, which is not the
same as showing something bad.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.jit import borrowed, compiled
from contracts.telemetry import (
    ENGINE_COUNTERS,
    HISTOGRAM_EDGES_MS,
    LATENCY_FAMILIES,
    EngineCounters,
    FleetTelemetry,
    ProbeSamples,
    ReplicaState,
)
from contracts.units import MS_PER_S
from simulator.engine import exported
from simulator.engine import gauges as gauge
from simulator.engine.counters import Counters
from simulator.engine.gauges import Gauges
from simulator.telemetry.gateway import Returning, SimulatedGateways
from simulator.telemetry.gateway import warm as warm_gateway
from simulator.telemetry.timetables import Schedule, scrape_schedule
from simulator.world.board import ReplicaBoard
from simulator.world.compiled_scenario import CompiledScenario

#: Values of a scrape, without the histograms.
SCRAPED_AT_MS, RUNNING, WAITING, KV_USED, FINGERPRINT, TRACE_FIELDS, OUTSIDE = range(7)
_GAUGES = 7
#: Names of an engine's counters, in order; read once, because that takes longer than a scrape.
_COUNTED = tuple(item.name for item in fields(EngineCounters))


class Latencies(NamedTuple):
    """Answers by bucket since the start, not summed over edges."""

    clients: NDArray[np.int32]  # [B, R, S, F, E + 1] by the waiting times of the gateway's clients
    servers: NDArray[np.int32]  # [B, R, F, E + 1] by the servers' times


class CurrentReadings(NamedTuple):
    """What replicas would show if scraped now."""

    loss: NDArray[np.float64]  # [B, R] chance of a scrape to be lost
    lost: NDArray[np.bool_]  # [B, R] all telemetry is lost
    state: NDArray[np.int8]  # [B, R] ReplicaState
    wrong_fingerprint: NDArray[np.bool_]  # [B, R]
    trace_missing: NDArray[np.float64]  # [B, R] share of the answers
    gauges: NDArray[np.int64]  # [rows, B, R], ``Gauges.counts``
    measured: NDArray[np.float64]  # [B, R, columns], ``Gauges.measured``
    returning: NDArray[np.float64]  # [B, R] answers on their way to the gateway
    histogram: NDArray[np.int32]  # [B, R, F, E + 1] since the start


class LastScrapes(NamedTuple):
    """The cumulative values of each replica's last scrape."""

    histogram: NDArray[np.int32]  # [B, R, F, E + 1]
    engine: NDArray[np.float64]  # [B, R, ENGINE_COUNTERS] time in s, then counters; NaN before the first


class Scraped(NamedTuple):
    """Scrapes that arrive in the same tick."""

    filled: NDArray[np.bool_]  # [B, R] whether there is a scrape
    histogram: NDArray[np.int64]  # [B, R, F, E + 1] since the last scrape, summed over edges
    gauges: NDArray[np.float64]  # [B, R, _GAUGES]
    engine: NDArray[np.float64]  # [B, R, ENGINE_COUNTERS] since the last scrape


class Telemetry:
    """The telemetry of B fleets, tick by tick.

    With ``reuse`` the histograms of a tick are overwritten in the next one, for drivers that do not keep
    them.
    """

    def __init__(self, each: Sequence[CompiledScenario], seeds: list[int], *, reuse: bool = False) -> None:
        scenario = each[0]
        _, _, replicas = scenario.layout.shape
        shape, self._reuse = (len(seeds), replicas), reuse
        self._delay = int(np.ceil(scenario.telemetry.scrape_delay_s / scenario.tick_s - 1e-9))
        self._packed_schedule = tuple(scrape_schedule(each, seeds))
        buckets = (len(LATENCY_FAMILIES), len(HISTOGRAM_EDGES_MS) + 1)
        self._gateway = SimulatedGateways(each)
        self._returning = Returning(*shape, scenario.tick_s)
        self._seen = LastScrapes(
            histogram=np.zeros((*shape, *buckets), dtype=np.int32),
            engine=np.full((*shape, ENGINE_COUNTERS), np.nan),
        )
        self._packed_seen = tuple(self._seen)
        # Scrapes under way, by the slot of the tick in which they arrive.
        self._under_way = [
            Scraped(
                filled=np.zeros(shape, dtype=np.bool_),
                histogram=np.zeros((*shape, *buckets), dtype=np.int64),
                gauges=np.zeros((*shape, _GAUGES)),
                engine=np.zeros((*shape, ENGINE_COUNTERS)),
            )
            for _ in range(self._delay + 1)
        ]
        self._shown = np.full((*shape, _GAUGES), np.nan)
        self._shown[:, :, RUNNING : KV_USED + 1] = 0.0

    def forget(self, fleet: int, replica: int, served: NDArray[np.int32]) -> None:
        """Restart the counters of a replica's new process at zero; unscraped counts are lost."""
        self._seen.histogram[fleet, replica] = served[fleet, replica]
        self._seen.engine[fleet, replica] = np.nan

    def read(
        self,
        tick: int,
        now_s: float,
        counters: Counters,
        gauges: Gauges,
        latencies: Latencies,
        board: ReplicaBoard,
        probes: ProbeSamples,
    ) -> FleetTelemetry:
        """All telemetry that arrives at the end of ``tick``, at ``now_s``."""
        answered = counters.answered.sum(axis=2)
        returning = self._returning.count(answered, gauges.return_s)
        now = _shown_now(gauges, returning, latencies.servers, board)
        shown, engine, histogram = self._scrape(tick, now_s, now)
        return FleetTelemetry(
            now_ms=np.full(len(self._shown), now_s * MS_PER_S),
            replica_state=board.state.copy(),
            scraped_at_ms=shown[SCRAPED_AT_MS],
            running=shown[RUNNING],
            waiting=shown[WAITING],
            kv_used_ratio=shown[KV_USED],
            answered=answered,
            failed=counters.attempts_failed.sum(axis=2),
            consecutive_failed=gauges.consecutive_failed,
            latency_le=histogram,
            gateway=self._gateway.read(tick, counters, latencies.clients),
            fingerprint_match=shown[FINGERPRINT],
            trace_fields_ratio=shown[TRACE_FIELDS],
            offered=counters.offered,
            engine=EngineCounters(**dict(zip(_COUNTED, engine, strict=True))),
            outside=shown[OUTSIDE],
            probes=probes,
        )

    def _scrape(
        self, tick: int, now_s: float, now: CurrentReadings
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
        """Send off the scrapes of ``now``; returns gauges, engine counters and histograms of those that
        arrive.
        """
        leaves, slot = (tick + self._delay) % (self._delay + 1), tick % (self._delay + 1)
        out = tuple(self._under_way[leaves])
        _scrape(tick, now_s, self._packed_schedule, tuple(now), self._packed_seen, out)
        arrived = self._under_way[slot]
        shape = self._shown.shape[:2]
        shown, engine = np.empty((_GAUGES, *shape)), np.empty((ENGINE_COUNTERS, *shape))
        _arrive(tuple(arrived), self._shown, shown, engine)
        if not self._reuse:
            arrived.filled[:] = False
            self._under_way[slot] = arrived._replace(histogram=np.zeros_like(arrived.histogram))
        return shown, engine, arrived.histogram


def _shown_now(
    gauges: Gauges, returning: NDArray[np.float64], served: NDArray[np.int32], board: ReplicaBoard
) -> CurrentReadings:
    return CurrentReadings(
        loss=board.scrape_loss,
        lost=board.telemetry_lost,
        state=board.state,
        wrong_fingerprint=board.wrong_fingerprint,
        trace_missing=board.trace_missing,
        gauges=gauges.counts,
        measured=gauges.measured,
        returning=returning,
        histogram=served,
    )


_READY, _DRAINING = int(ReplicaState.READY), int(ReplicaState.DRAINING)


@compiled
def _scrape(tick, now_s, packed_schedule, packed_shown, packed_seen, packed_out):
    """Write the scrape of each due replica into ``out``; its histogram is zero for all others.

    The metrics endpoint of a hung engine answers, as measured on real servers.
    """
    schedule, shown = borrowed(Schedule(*packed_schedule)), borrowed(CurrentReadings(*packed_shown))
    out, seen = borrowed(Scraped(*packed_out)), borrowed(LastScrapes(*packed_seen))
    for b in range(out.filled.shape[0]):
        in_turn = tick % schedule.interval[b]
        for r in range(out.filled.shape[1]):
            if out.filled[b, r]:
                out.histogram[b, r] = 0
            state = shown.state[b, r]
            out.filled[b, r] = (
                in_turn == schedule.phase[b, r]
                and schedule.luck[tick, b, r] >= shown.loss[b, r]
                and not shown.lost[b, r]
                and state in (_READY, _DRAINING)
            )
            if out.filled[b, r]:
                out.gauges[b, r, SCRAPED_AT_MS] = now_s * MS_PER_S
                out.gauges[b, r, RUNNING] = shown.gauges[gauge.RUNNING, b, r]
                out.gauges[b, r, WAITING] = shown.gauges[gauge.WAITING, b, r]
                out.gauges[b, r, KV_USED] = shown.measured[b, r, exported.KV_USED]
                out.gauges[b, r, FINGERPRINT] = 1.0 - shown.wrong_fingerprint[b, r]
                out.gauges[b, r, TRACE_FIELDS] = 1.0 - shown.trace_missing[b, r]
                out.gauges[b, r, OUTSIDE] = shown.returning[b, r]
                _scrape_histogram(b, r, shown.histogram, seen.histogram, out.histogram)
                _scrape_engine(now_s, shown.measured[b, r], seen.engine[b, r], out.engine[b, r])


@compiled
def _scrape_histogram(b, r, counts, seen, out):
    """Answers of a replica since its last scrape, summed over edges; ``counts`` and ``seen`` are
    not summed.
    """
    for f in range(counts.shape[2]):
        total = 0
        for e in range(counts.shape[3]):
            total += counts[b, r, f, e] - seen[b, r, f, e]
            seen[b, r, f, e] = counts[b, r, f, e]
            out[b, r, f, e] = total


@compiled
def _scrape_engine(now_s, measured, seen, out):
    """Time since the last scrape, then what the process counted since then; NaN if unknown.

    All columns of ``measured`` except the first are cumulative; the first is replaced by the time.
    """
    reset = False
    for c in range(out.shape[0]):
        now = now_s if c == 0 else measured[c]
        out[c] = now - seen[c]
        reset |= now < seen[c]
        seen[c] = now
    if reset:
        out[:] = np.nan


@compiled
def _arrive(packed_arrived, shown, out, engine):
    """Update the last shown values [B, R, _GAUGES] with what arrives; also written to ``out`` [_GAUGES, B,
    R].

    ``engine`` [ENGINE_COUNTERS, B, R]: only what arrives now, NaN if nothing does.
    """
    arrived = borrowed(Scraped(*packed_arrived))
    for b in range(shown.shape[0]):
        for r in range(shown.shape[1]):
            filled = arrived.filled[b, r]
            for g in range(out.shape[0]):
                if filled:
                    shown[b, r, g] = arrived.gauges[b, r, g]
                out[g, b, r] = shown[b, r, g]
            for c in range(engine.shape[0]):
                engine[c, b, r] = arrived.engine[b, r, c] if filled else np.nan


def warm() -> None:
    """Compile this module's functions before work is forked."""
    warm_gateway()
    buckets = (len(LATENCY_FAMILIES), len(HISTOGRAM_EDGES_MS) + 1)
    for batch in (1, 2):
        each = (batch, 1)
        numbers, no = np.zeros(each), np.zeros(each, dtype=np.bool_)
        counts, state = np.zeros((*each, *buckets), dtype=np.int32), np.zeros(each, dtype=np.int8)
        gauges = np.zeros((gauge.GAUGE_ROWS, *each), dtype=np.int64)
        schedule = Schedule(
            np.ones(batch, dtype=np.int64), np.zeros(each, dtype=np.int64), np.zeros((1, *each))
        )
        engine = np.zeros((*each, ENGINE_COUNTERS))
        measured = np.zeros((*each, exported.MEASURED_COLUMNS))
        shown = CurrentReadings(numbers, no, state, no, numbers, gauges, measured, numbers, counts)
        out = Scraped(no.copy(), counts.astype(np.int64), np.zeros((*each, _GAUGES)), engine)
        _scrape(0, 0.0, tuple(schedule), tuple(shown), (counts.copy(), engine.copy()), tuple(out))
        _arrive(tuple(out), out.gauges.copy(), np.zeros((_GAUGES, *each)), np.zeros((ENGINE_COUNTERS, *each)))
