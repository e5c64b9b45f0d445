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
from live.observe.metrics import COUNTERS, COUNTERS_AT, EngineReading, ReadFields
from live.observe.readings_pass import count_between

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


def count(
    before: EngineReading, now: EngineReading, engine: NDArray[np.float64], latency_le: NDArray[np.int64]
) -> None:
    """Write what one replica counted into its rows of ``Increments``, where nothing is known yet."""
    if before.started_at_s != now.started_at_s or now.read_at_s <= before.read_at_s:
        return
    families, places = _compared(before.fields, now.fields)
    if count_between(engine, latency_le, before.numbers, now.numbers, _ROWS, COUNTERS_AT, families, places):
        engine[_SPAN] = now.read_at_s - before.read_at_s


@lru_cache(maxsize=256)
def _compared(before: ReadFields, now: ReadFields) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """``families`` and ``places`` of ``count_between``; one whose edges changed has no counts."""
    both = zip(before.edges_s, before.begins, now.edges_s, now.begins, strict=True)
    families = [(old, new, len(edges) if edges == were else 0) for were, old, edges, new in both]
    none = np.zeros(_BUCKETS, dtype=np.int64)
    places = [_places(edges) if edges else none for edges in now.edges_s]
    return np.array(families, dtype=np.int64), np.array(places, dtype=np.int64)


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
