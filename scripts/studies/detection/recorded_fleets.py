"""Healthy telemetry of simulated fleets, and the observations that traffic thresholds are calibrated on.

Fault-free fleets of one to sixteen measured replicas run at a load where queues form, with sticky sessions
and three slices. An observation is a share of requests over the histogram edge that comes nearest to a
clause's 5 %, or KV use over its own 95 % point. Of replicas: of all requests that its server answered
between two scrapes, weighed by its peers' last scrapes as the sequential detector does. Of kernels: of what
the gateway saw of the busiest slice between two flushes; of KV use, of all replicas scraped in a tick.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.jit import compiled
from contracts.telemetry import HISTOGRAM_EDGES_MS, FleetTelemetry, Source
from controller.detect.clauses import Kind
from controller.detect.sequential.evidence import CLAUSE, EvidencePlan
from controller.detect.sequential.peers import note_scrapes, weigh_by_peers
from controller.detect.sequential.spread import SPREADS
from controller.detect.streams.protocol import Floats
from controller.detect.traffic import KINDS
from scripts.studies.detection.telemetry import ScrapeWatcher, queues
from simulator.fleet import run_episodes

#: Fleets that run together.
BATCH = 24
#: Load in requests/s, by replicas.
LOAD_RPS = {1: 10.0, 2: 21.0, 3: 31.5, 4: 42.0, 8: 86.0, 16: 173.0}
#: Edges that about 5 % of the requests are over at this load, in ms, and the share of scrapes that are over
#: the edge of KV use.
EDGES_MS, RATE = (8000.0, 80.0, 20.0), 0.05
#: Place in the contract of the busiest slice, with six requests in ten: six a second and replica.
BUSY = 0
#: Memory of the peers' last scrapes, in s: half the window of the shipped contract.
MEMORY_S = 30.0


@dataclass(slots=True)
class _Watcher(ScrapeWatcher):
    """Records (requests, over the edge), float32: of scrapes [B, R, kinds, 2], of ticks [B, kinds, 2]."""

    scraped: list[NDArray[np.float32]] = field(default_factory=list)  # each [B, R, kinds, 2]
    passed: list[NDArray[np.float32]] = field(default_factory=list)  # each [B, kinds, 2]

    def note(self, telemetry: FleetTelemetry, fresh: NDArray[np.bool_]) -> None:
        """See ``ScrapeWatcher``. KV use takes the place of the count over the edge."""
        scraped = _counted(telemetry.latency_le[:, : self.replicas])
        scraped[..., -1, 0] = 1.0
        scraped[..., -1, 1] = telemetry.kv_used_ratio[:, : self.replicas]
        scraped[~fresh] = 0.0
        self.scraped.append(scraped)
        self.passed.append(_counted(telemetry.gateway.latency_le[:, BUSY, 0]))


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedFleets:
    """Healthy telemetry of fleets."""

    #: [B, T, R, kinds, 2]: requests and those over the edge, 0 without a scrape.
    scraped: NDArray[np.float32]
    #: [B, T, kinds, 2]: the same of the kernel in a tick.
    passed: NDArray[np.float32]
    #: KV use that ``RATE`` of the scrapes exceed, if these fleets are for learning.
    kv_edge: float
    scenario_sha256: str
    profile_sha256: tuple[str, ...]


class Series(NamedTuple):
    """Of each kind: its mean, and observations alone and beside peers, by fleet and series, in order."""

    means: Floats  # [kinds]
    alone: list[list[list[Floats]]]  # by kind, fleet and series, each [n]
    observations: list[list[list[Floats]]]  # likewise, each [n]


def _counted(le: NDArray[np.int64]) -> NDArray[np.float32]:
    """(requests, over the edge) of histograms [..., F, E + 1], float32 [..., kinds, 2]; 0 of KV use."""
    cells = np.zeros((*le.shape[:-2], len(KINDS), 2), dtype=np.float32)
    for place, edge in enumerate(EDGES_MS):
        cells[..., place, 0] = le[..., place, -1]
        cells[..., place, 1] = le[..., place, -1] - le[..., place, HISTOGRAM_EDGES_MS.index(edge)]
    return cells


def record(fleets: int, replicas: int, *, seed: int, kv_edge: float | None = None) -> RecordedFleets:
    """Run ``fleets`` fleets without a fault, from ``seed`` on; ``kv_edge``: of those learned from."""
    scenario, sha256 = queues(mixed=True, replicas=replicas, rate_rps=LOAD_RPS[replicas])
    parts: list[tuple[NDArray[np.float32], NDArray[np.float32]]] = []
    for first in range(0, fleets, BATCH):
        watcher, seeds = _Watcher(scenario, replicas=replicas), range(fleets)[first : first + BATCH]
        run_episodes(scenario, watcher, range(seed + seeds[0], seed + seeds[-1] + 1), batch=BATCH)
        parts.append((np.stack(watcher.scraped, axis=1), np.stack(watcher.passed, axis=1)))
    scraped, passed = (np.concatenate(each) for each in zip(*parts, strict=True))
    used, known = scraped[..., -1, 1], scraped[..., -1, 0] > 0.0
    edge = float(np.quantile(used[known], 1.0 - RATE)) if kv_edge is None else kv_edge
    used[:] = used > edge
    passed[..., -1, :] = scraped[..., -1, :].sum(axis=2)
    return RecordedFleets(
        scraped=scraped,
        passed=passed,
        kv_edge=edge,
        scenario_sha256=sha256,
        profile_sha256=scenario.profile_sha256,
    )


def series_of(seen: RecordedFleets, unit: str, means: Floats | None = None) -> Series:
    """Observations of ``unit``; ``means`` [kinds]: of what was learned from, else its own."""
    compared = unit == "replica"
    cells = seen.scraped if compared else seen.passed[:, :, None]
    if means is None:
        total = [_shares(part).reshape(-1, len(KINDS)) for part in _batches(cells)]
        received = sum(np.isfinite(part).sum(axis=0) for part in total)
        means = np.asarray(sum(np.nansum(part, axis=0) for part in total) / np.maximum(received, 1))
    found = Series(means, [[] for _ in KINDS], [[] for _ in KINDS])
    for part in _batches(cells):
        alone = _shares(part)
        worth = _worth(part, means) if compared else np.ones_like(alone)
        for kind in range(len(KINDS)):
            for series, values in (
                (found.alone, alone[..., kind]),
                (found.observations, (alone * worth)[..., kind]),
            ):
                series[kind].extend([[one[np.isfinite(one)] for one in fleet.T] for fleet in values])
    return found


def _batches(cells: NDArray[np.float32]) -> list[NDArray[np.float32]]:
    return [cells[first : first + BATCH] for first in range(0, len(cells), BATCH)]


def _shares(cells: NDArray[np.float32]) -> Floats:
    """Share over the edge [B, T, R, kinds] of ``cells`` [B, T, R, kinds, 2]; NaN without requests."""
    wide = cells.astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(wide[..., 0] > 0.0, wide[..., 1] / wide[..., 0], np.nan))


def _worth(cells: NDArray[np.float32], means: Floats) -> Floats:
    """Weight of each scrape relative to its peers' last ones, [B, T, R, kinds]."""
    sums = np.zeros((*cells.shape[:3], 1, len(KINDS), 4))
    sums[..., 0, :, 0], sums[..., 0, :, 3] = cells[..., 0], cells[..., 1]
    worth = np.ones((*cells.shape[:3], len(KINDS)))
    _beside(worth, sums, np.zeros(worth.shape[2], dtype=np.int64), math.exp(-1.0 / MEMORY_S), _limits(means))
    return worth


def _limits(means: Floats) -> EvidencePlan:
    """Fields of a plan that ``weigh_by_peers`` reads, for the kinds of ``KINDS`` at their own ``means``."""
    clauses = np.zeros(len(KINDS), dtype=CLAUSE)
    clauses["source"], clauses["kind"] = int(Source.LATENCY), int(Kind.BETTING)
    clauses["is_rate"], clauses["upper"], clauses["clip"] = True, 1.0, np.inf
    clauses["null_mean"] = means
    return EvidencePlan(
        clauses=clauses,
        applies=np.ones((len(KINDS), 1), dtype=np.bool_),
        gain=1.0,
        fair=np.empty((0, 1, len(KINDS), SPREADS)),
    )


@compiled
def _beside(worth, sums, owner, kept, limits):
    """Into ``worth`` [B, T, R, kinds]: what the scrapes ``sums`` [B, T, R, 1, kinds, 4] count."""
    fleets, ticks, replicas, _, kinds, _ = sums.shape
    whole, compared = np.ones((replicas, 2, kinds)), np.ones(kinds, np.bool_)
    for b in range(fleets):
        latest = np.zeros((replicas, 1, kinds, 4))
        for t in range(ticks):
            news = sums[b, t, :, :, -1, 0] > 0.0
            whole[:] = 1.0
            weigh_by_peers(whole, sums[b, t], news, latest, owner, limits)
            worth[b, t] = whole[:, 0]
            for r in range(replicas):
                note_scrapes(latest[r], sums[b, t, r], news[r], kept, compared)
