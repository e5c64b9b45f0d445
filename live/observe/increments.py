"""What a server counted between two scrapes, converted to the record's histogram edges.

An SLO may lie between two edges that a server exports: 2 s lies between vLLM's 1 and 2.5 s for the first
token. Between two edges, answer times are *assumed* to be uniform on a logarithmic scale, which fits a
falling tail, and the result is rounded in favour of "in time". Below the first edge and above the last finite
one, only answers that were certainly late count as late. If the server's edges are the record's (vLLM:
``custom_histogram_buckets``), nothing is assumed.

Unknown stays unknown: no counts are derived from the first scrape of a process, a counter that decreased, a
missing name, or a histogram with changed edges.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from contracts.telemetry import ENGINE_COUNTERS, HISTOGRAM_EDGES_MS, LATENCY_FAMILIES, EngineCounters
from contracts.units import MS_PER_S
from live.observe.metrics import COUNTERS, COUNTERS_AT, EngineReading, ReadFields
from live.observe.readings_pass import EdgePlaces, count_between

_FIELDS = tuple(entry.name for entry in fields(EngineCounters))
_SPAN = _FIELDS.index("span_s")
_ROWS = np.array([_FIELDS.index(name) for name in COUNTERS], dtype=np.int64)
_BUCKETS = len(HISTOGRAM_EDGES_MS) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Increments:
    """Increments of R replicas between two scrapes."""

    engine: NDArray[np.float64]  # [R, ENGINE_COUNTERS], NaN: unknown
    latency_le: NDArray[np.int64]  # [R, F, E + 1], 0 everywhere: unknown, or nothing ended


def unknown_increments(replicas: int = 1) -> Increments:
    """Increments of replicas that were not scraped: all unknown."""
    return Increments(
        engine=np.full((replicas, ENGINE_COUNTERS), np.nan),
        latency_le=np.zeros((replicas, len(LATENCY_FAMILIES), _BUCKETS), dtype=np.int64),
    )


def count(
    before: EngineReading,
    now: EngineReading,
    engine: NDArray[np.float64],
    latency_le: NDArray[np.int64],
    edges_ms: tuple[float, ...],
) -> None:
    """Write one replica's increments into its rows of ``Increments``, which must be unknown so far.

    The histograms are converted to the record's edges ``edges_ms`` [E].
    """
    if before.started_at_s != now.started_at_s or now.read_at_s <= before.read_at_s:
        return
    families, places = _compared(before.fields, now.fields, edges_ms)
    numbers = before.numbers, now.numbers
    if count_between(engine, latency_le, *numbers, _ROWS, COUNTERS_AT, families, tuple(places)):
        engine[_SPAN] = now.read_at_s - before.read_at_s


@lru_cache(maxsize=256)
def _compared(
    before: ReadFields, now: ReadFields, edges_ms: tuple[float, ...]
) -> tuple[NDArray[np.int64], EdgePlaces]:
    """``families`` and ``places`` [F, E + 1] for ``count_between``; a family with changed edges has no
    counts.
    """
    both = zip(before.edges_s, before.begins, now.edges_s, now.begins, strict=True)
    families = [(old, new, len(edges) if edges == were else 0) for were, old, edges, new in both]
    found = [_places(edges or (float("inf"),), edges_ms) for edges in now.edges_s]
    places = EdgePlaces(*(np.stack(each) for each in zip(*found, strict=True)))
    return np.array(families, dtype=np.int64), places


def on_record_edges(
    edges_s: tuple[float, ...],
    counts: NDArray[np.float64],
    edges_ms: tuple[float, ...] = HISTOGRAM_EDGES_MS,
) -> NDArray[np.int64]:
    """int64 [E + 1]: cumulative ``counts`` on the server's edges, converted to the record's ``edges_ms``."""
    places = _places(edges_s, edges_ms)
    below, above = counts[places.below], counts[places.above]
    return np.asarray(np.ceil(below + places.share * (above - below)), dtype=np.int64)


@lru_cache(maxsize=64)
def _places(edges_s: tuple[float, ...], edges_ms: tuple[float, ...]) -> EdgePlaces:
    """For each edge of the record [E + 1], the server's edges that it lies between."""
    wanted, bounds = np.array([*edges_ms, np.inf]) / MS_PER_S, np.array(edges_s)
    at = np.searchsorted(bounds, wanted * (1.0 - 1e-9), side="left")
    above = np.minimum(at, len(edges_s) - 1)
    below = np.maximum(above - 1, 0)
    between = (bounds[below] > 0.0) & np.isfinite(bounds[above]) & (wanted < bounds[above] * (1.0 - 1e-9))
    share, some = np.ones(len(wanted)), between & (wanted > bounds[below])
    low, high = bounds[below[some]], bounds[above[some]]
    share[some] = np.log(wanted[some] / low) / np.log(high / low)
    return EdgePlaces(below, above, share)
