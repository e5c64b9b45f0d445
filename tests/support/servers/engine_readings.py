"""Readings of made-up servers, by the names of their metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from contracts.telemetry import LATENCY_FAMILIES
from live.observe.metrics import (
    COUNTERS,
    GAUGES,
    HISTOGRAMS_AT,
    SIGNALS,
    EngineReading,
    ReadFields,
)


class Histogram(NamedTuple):
    """Cumulative counts up to each edge, the last edge inf."""

    edges_s: tuple[float, ...]
    counts: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Said:
    """A server's exported values; missing ones are not exported."""

    read_at_s: float
    started_at_s: float | None = 1.0
    gauges: Mapping[str, float] = field(default_factory=dict)
    counters: Mapping[str, float] = field(default_factory=dict)
    signals: Mapping[str, float] = field(default_factory=dict)
    histograms: Mapping[str, Histogram] = field(default_factory=dict)

    def reading(self) -> EngineReading:
        """A reading with one sample per number."""
        told = [self.histograms.get(family, Histogram((), ())) for family in LATENCY_FAMILIES]
        numbers = [
            np.nan if self.started_at_s is None else self.started_at_s,
            *_told(GAUGES, self.gauges),
            *_told(COUNTERS, self.counters),
            *_told(SIGNALS, self.signals),
            *(count for one in told for count in one.counts),
        ]
        counts = [len(one.edges_s) for one in told]
        fields = ReadFields(
            places=np.arange(len(numbers)),
            ends=np.arange(1, len(numbers) + 1),
            edges_s=tuple(one.edges_s for one in told),
            begins=tuple(accumulate(counts[:-1], initial=HISTOGRAMS_AT)),
        )
        return EngineReading(read_at_s=self.read_at_s, fields=fields, numbers=np.array(numbers, dtype=float))


def told(reading: EngineReading) -> tuple[Any, ...]:
    """All values of ``reading``, for comparison."""
    return (
        reading.read_at_s,
        reading.started_at_s,
        reading.gauges,
        reading.counters,
        reading.signals,
        histograms(reading),
    )


def histograms(reading: EngineReading) -> dict[str, Histogram]:
    """Histograms of ``HISTOGRAMS``, by family."""
    found = zip(LATENCY_FAMILIES, reading.fields.edges_s, reading.fields.begins, strict=True)
    return {
        family: Histogram(edges_s, tuple(reading.numbers[begin : begin + len(edges_s)].tolist()))
        for family, edges_s, begin in found
        if edges_s
    }


def _told(names: Iterable[str], values: Mapping[str, float]) -> list[float]:
    return [values.get(name, np.nan) for name in names]
