"""What a server counted between two scrapes, on the edges of the record.

Unknown stays unknown: the first scrape of a process, a counter that went backwards, a name that is gone, and
a histogram whose edges changed count nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from contracts.telemetry import ENGINE_COUNTERS, HISTOGRAM_EDGES_MS, LATENCY_FAMILIES, EngineCounters
from contracts.units import MS_PER_S
from live.observe.metrics import COUNTERS, COUNTERS_AT, EngineReading
from live.observe.sums_pass import count_between, histogram_between

_FIELDS = tuple(entry.name for entry in fields(EngineCounters))
_SPAN = _FIELDS.index("span_s")
_ROWS = np.array([_FIELDS.index(name) for name in COUNTERS], dtype=np.int64)
_BUCKETS = len(HISTOGRAM_EDGES_MS) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Increments:
    """Of R replicas between two scrapes."""

    engine: NDArray[np.float64]  # [R, ENGINE_COUNTERS], NaN: unknown
    latency_le: NDArray[np.int64]  # [R, F, E + 1], 0 everywhere: unknown, or nothing ended


def nothing_known(replicas: int = 1) -> Increments:
    """Of replicas that were not scraped."""
    return Increments(
        engine=np.full((replicas, ENGINE_COUNTERS), np.nan),
        latency_le=np.zeros((replicas, len(LATENCY_FAMILIES), _BUCKETS), dtype=np.int64),
    )


def increments(before: EngineReading | None, now: EngineReading) -> Increments:
    """From ``before`` to ``now`` of one replica; nothing is known of a new process' first scrape."""
    found = nothing_known()
    if before is not None:
        count(before, now, found.engine[0], found.latency_le[0])
    return found


def count(
    before: EngineReading, now: EngineReading, engine: NDArray[np.float64], latency_le: NDArray[np.int64]
) -> None:
    """Write what one replica counted into its rows of ``Increments``, where nothing is known yet."""
    if before.started_at_s != now.started_at_s or now.read_at_s <= before.read_at_s:
        return
    if not count_between(engine, _ROWS, before.numbers, now.numbers, COUNTERS_AT):
        return
    engine[_SPAN] = now.read_at_s - before.read_at_s
    for at, (old, new) in enumerate(zip(before.fields.edges_s, now.fields.edges_s, strict=True)):
        if new and old == new:
            counts = (
                one.numbers[one.fields.begins[at] : one.fields.begins[at] + len(new)] for one in (before, now)
            )
            histogram_between(latency_le[at], _places(new), *counts)


def on_record_edges(edges_s: tuple[float, ...], counts: NDArray[np.float64]) -> NDArray[np.int64]:
    """int64 [E + 1]: cumulative ``counts`` on the server's edges as those on the record's.

    An answer is late only where it surely was: an edge of the record takes the count of the next edge of the
    server at or above it. Servers whose edges are the record's (vLLM: ``custom_histogram_buckets``) lose
    nothing.
    """
    return np.asarray(counts[_places(edges_s)], dtype=np.int64)


@lru_cache(maxsize=64)
def _places(edges_s: tuple[float, ...]) -> NDArray[np.int64]:
    """int64 [E + 1], the server's edge that each edge of the record takes its count from."""
    wanted = np.array([*HISTOGRAM_EDGES_MS, np.inf]) / MS_PER_S
    at = np.searchsorted(np.array(edges_s), wanted * (1.0 - 1e-9), side="left")
    return np.minimum(at, len(edges_s) - 1)
