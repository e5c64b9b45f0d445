"""What a server counted between two scrapes, on the edges of the record.

Unknown stays unknown: the first scrape of a process, a counter that went backwards, a name that is gone, and
a histogram whose edges changed count nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from contracts.telemetry import HISTOGRAM_EDGES_MS, LATENCY_FAMILIES, EngineCounters
from contracts.units import MS_PER_S
from live.observe.metrics import EngineReading, Histogram

_FIELDS = tuple(entry.name for entry in fields(EngineCounters))
_BUCKETS = len(HISTOGRAM_EDGES_MS) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Increments:
    """Of one replica between two scrapes."""

    engine: NDArray[np.float64]  # [ENGINE_COUNTERS], NaN: unknown
    latency_le: NDArray[np.int64]  # [F, E + 1], 0 everywhere: unknown, or nothing ended


def nothing_known() -> Increments:
    """Of a replica that was not scraped."""
    return Increments(
        engine=np.full(len(_FIELDS), np.nan),
        latency_le=np.zeros((len(LATENCY_FAMILIES), _BUCKETS), dtype=np.int64),
    )


def increments(before: EngineReading | None, now: EngineReading) -> Increments:
    """From ``before`` to ``now`` of one replica; nothing is known of a new process' first scrape."""
    if before is None or _is_new_process(before, now):
        return nothing_known()
    counted = {name: _risen(before.counters.get(name), value) for name, value in now.counters.items()}
    if any(value < 0.0 for value in counted.values()) or now.read_at_s <= before.read_at_s:
        return nothing_known()
    counted["span_s"] = now.read_at_s - before.read_at_s
    engine = np.array([counted.get(name, np.nan) for name in _FIELDS])
    rows = [_row(before.histograms.get(family), now.histograms.get(family)) for family in LATENCY_FAMILIES]
    return Increments(engine=engine, latency_le=np.stack(rows))


def _is_new_process(before: EngineReading, now: EngineReading) -> bool:
    return now.started_at_s != before.started_at_s


def _risen(before: float | None, now: float) -> float:
    return np.nan if before is None else now - before


def _row(before: Histogram | None, now: Histogram | None) -> NDArray[np.int64]:
    """int64 [E + 1], answers up to each edge of the record between two scrapes."""
    if before is None or now is None or before.edges_s != now.edges_s:
        return np.zeros(_BUCKETS, dtype=np.int64)
    risen = np.array(now.counts) - np.array(before.counts)
    return on_record_edges(now.edges_s, risen) if (risen >= 0.0).all() else np.zeros(_BUCKETS, dtype=np.int64)


def on_record_edges(edges_s: tuple[float, ...], counts: NDArray[np.float64]) -> NDArray[np.int64]:
    """int64 [E + 1]: cumulative ``counts`` on the server's edges as those on the record's.

    An answer is late only where it surely was: an edge of the record takes the count of the next edge of the
    server at or above it. Servers whose edges are the record's (vLLM: ``custom_histogram_buckets``) lose
    nothing.
    """
    wanted = np.array([*HISTOGRAM_EDGES_MS, np.inf]) / MS_PER_S
    at = np.searchsorted(np.array(edges_s), wanted * (1.0 - 1e-9), side="left")
    return np.asarray(counts[np.minimum(at, len(edges_s) - 1)], dtype=np.int64)
