"""What a server counted between two scrapes, on the edges of the record.

Unknown stays unknown: the first scrape of a process, a counter that went backwards, a name that is gone, and
a histogram whose edges changed count nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from contracts.telemetry import HISTOGRAM_EDGES_MS, LATENCY_FAMILIES, EngineCounters
from contracts.units import MS_PER_S
from live.observe.metrics import EngineReading, Histogram

_FIELDS = tuple(entry.name for entry in fields(EngineCounters))
_BUCKETS = len(HISTOGRAM_EDGES_MS) + 1
_NOTHING = (0,) * _BUCKETS
#: More answers than this between two scrapes are no count.
_MOST = 2.0**53


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
    return Increments(engine=engine, latency_le=np.array(rows, dtype=np.int64))


def _is_new_process(before: EngineReading, now: EngineReading) -> bool:
    return now.started_at_s != before.started_at_s


def _risen(before: float | None, now: float) -> float:
    return np.nan if before is None else now - before


def _row(before: Histogram | None, now: Histogram | None) -> Sequence[int]:
    """[E + 1], answers up to each edge of the record between two scrapes; a few numbers, so no arrays."""
    if before is None or now is None or before.edges_s != now.edges_s:
        return _NOTHING
    risen = [new - old for new, old in zip(now.counts, before.counts, strict=True)]
    if not all(0.0 <= one < _MOST for one in risen):
        return _NOTHING
    return [int(risen[at]) for at in _places(now.edges_s)]


def on_record_edges(edges_s: tuple[float, ...], counts: NDArray[np.float64]) -> NDArray[np.int64]:
    """int64 [E + 1]: cumulative ``counts`` on the server's edges as those on the record's.

    An answer is late only where it surely was: an edge of the record takes the count of the next edge of the
    server at or above it. Servers whose edges are the record's (vLLM: ``custom_histogram_buckets``) lose
    nothing.
    """
    return np.asarray(counts[list(_places(edges_s))], dtype=np.int64)


@lru_cache(maxsize=64)
def _places(edges_s: tuple[float, ...]) -> tuple[int, ...]:
    """[E + 1], the server's edge that each edge of the record takes its count from."""
    wanted = np.array([*HISTOGRAM_EDGES_MS, np.inf]) / MS_PER_S
    at = np.searchsorted(np.array(edges_s), wanted * (1.0 - 1e-9), side="left")
    return tuple(np.minimum(at, len(edges_s) - 1).tolist())
