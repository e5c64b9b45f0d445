"""Reads one scrape of a vLLM server's ``/metrics``, by the server's own metric names.

Source: vLLM's ``v1/metrics/loggers.py`` (0.32); a former name is read if the server has only that. Values of
several engines of one server (data parallel) are summed; their KV use is averaged. A series that is stated
twice counts once. A missing name is not exported and therefore unknown, neither bad nor good. Values that no
counter or gauge can have (negative, infinite, NaN) are unknown too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import inf, isnan, nan
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from prometheus_client.samples import Sample

from contracts.telemetry import LATENCY_FAMILIES
from live.errors import LiveError
from live.exposition import read_samples
from live.observe.readings_pass import add_up

Found = TypeVar("Found")
#: Field of ``EngineCounters`` -> name of its sample.
COUNTERS: Mapping[str, str] = {
    "iterations": "vllm:iteration_tokens_total_count",
    "prompt_tokens": "vllm:prompt_tokens_total",
    "generation_tokens": "vllm:generation_tokens_total",
    "inter_token_s": "vllm:inter_token_latency_seconds_sum",
    "inter_tokens": "vllm:inter_token_latency_seconds_count",
    "queue_s": "vllm:request_queue_time_seconds_sum",
    "admitted": "vllm:request_queue_time_seconds_count",
    "finished": "vllm:request_success_total",
    "preemptions": "vllm:num_preemptions_total",
}
#: Inputs of passive signals: name -> sample, and the finish reason that it counts ("": any).
SIGNALS: Mapping[str, tuple[str, str]] = {
    "answers": ("vllm:request_success_total", ""),
    "length_stops": ("vllm:request_success_total", "length"),
    "error_stops": ("vllm:request_success_total", "error"),
    "repetition_stops": ("vllm:request_success_total", "repetition"),
    "lengths": ("vllm:request_generation_tokens_count", ""),
    "answer_tokens": ("vllm:request_generation_tokens_sum", ""),
    "corrupted": ("vllm:corrupted_requests_total", ""),
    "cache_queries": ("vllm:prefix_cache_queries_total", ""),
    "cache_hits": ("vllm:prefix_cache_hits_total", ""),
    "drafted": ("vllm:spec_decode_num_draft_tokens_total", ""),
    "accepted": ("vllm:spec_decode_num_accepted_tokens_total", ""),
}
_REASON = "finished_reason"
#: Gauges of the record. KV use is a ratio, although the server's name says "perc".
GAUGES: Mapping[str, str] = {
    "running": "vllm:num_requests_running",
    "waiting": "vllm:num_requests_waiting",
    "kv_used_ratio": "vllm:kv_cache_usage_perc",
}
#: Histogram of each of ``LATENCY_FAMILIES``, in seconds.
HISTOGRAMS: Mapping[str, str] = {
    "latency_ms": "vllm:e2e_request_latency_seconds",
    "ttft_ms": "vllm:time_to_first_token_seconds",
    "inter_token_ms": "vllm:inter_token_latency_seconds",
}
#: Names in earlier versions. Some versions export both names with the same meaning.
FORMER: Mapping[str, str] = {
    "vllm:kv_cache_usage_perc": "vllm:gpu_cache_usage_perc",
    "vllm:inter_token_latency_seconds": "vllm:time_per_output_token_seconds",
    "vllm:inter_token_latency_seconds_sum": "vllm:time_per_output_token_seconds_sum",
    "vllm:inter_token_latency_seconds_count": "vllm:time_per_output_token_seconds_count",
    "vllm:inter_token_latency_seconds_bucket": "vllm:time_per_output_token_seconds_bucket",
    "vllm:prefix_cache_queries_total": "vllm:gpu_prefix_cache_queries_total",
    "vllm:prefix_cache_hits_total": "vllm:gpu_prefix_cache_hits_total",
}
#: Start time of the server's process, which every Prometheus client exports.
STARTED = "process_start_time_seconds"
#: Positions in the numbers of a reading: process start, then gauges, counters and signals in their order,
#: then the counts of the histograms.
GAUGES_AT, COUNTERS_AT = 1, 1 + len(GAUGES)
_KV_AT = GAUGES_AT + list(GAUGES).index("kv_used_ratio")
SIGNALS_AT = COUNTERS_AT + len(COUNTERS)
HISTOGRAMS_AT = SIGNALS_AT + len(SIGNALS)

#: All samples that are read.
_CURRENT = frozenset(
    {
        *COUNTERS.values(),
        *(sample for sample, _ in SIGNALS.values()),
        *GAUGES.values(),
        *(f"{name}_bucket" for name in HISTOGRAMS.values()),
        STARTED,
    }
)
READ = _CURRENT | {FORMER[name] for name in _CURRENT & FORMER.keys()}


@dataclass(frozen=True, slots=True, eq=False)
class ReadFields:
    """Which samples of a text are summed into each of a reading's N numbers."""

    places: NDArray[np.int64]
    """[n], positions of samples in the text, grouped by number."""
    ends: NDArray[np.int64]  # [N], end of each number's group in ``places``; an empty group: unknown
    edges_s: tuple[tuple[float, ...], ...]
    """Edges of each of ``LATENCY_FAMILIES``; () if it is not exported."""
    begins: tuple[int, ...]
    """Index of the number at which the counts of each family begin."""
    kv_engines: int = 1
    """Number of engines that state their KV use."""

    def reading(self, values: NDArray[np.float64], read_at_s: float) -> EngineReading:
        """The reading for samples with these ``values``."""
        numbers = np.empty(len(self.ends))
        add_up(numbers, values, self.places, self.ends)
        numbers[_KV_AT] /= self.kv_engines
        numbers[~((numbers >= 0.0) & (numbers < inf))] = nan
        return EngineReading(read_at_s=read_at_s, fields=self, numbers=numbers)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EngineReading:
    """The content of one scrape. Numbers that are not exported, or not valid, are NaN or missing by name."""

    read_at_s: float  # of ``live.bounded_http.monotonic_unix_s``
    fields: ReadFields
    numbers: NDArray[np.float64]  # [N], positions as at ``GAUGES_AT`` and the constants after it

    @property
    def started_at_s(self) -> float | None:
        """Start of the process, Unix time; None: not exported."""
        found = float(self.numbers[0])
        return None if isnan(found) else found

    @property
    def gauges(self) -> dict[str, float]:
        """Name -> value, for ``GAUGES``."""
        return self._named(GAUGES, GAUGES_AT)

    @property
    def counters(self) -> dict[str, float]:
        """Name -> value, for ``COUNTERS``."""
        return self._named(COUNTERS, COUNTERS_AT)

    @property
    def counted(self) -> NDArray[np.float64]:
        """All counters except those of histograms, float64 [N] in a fixed order; NaN: not exported."""
        return self.numbers[COUNTERS_AT:HISTOGRAMS_AT]

    @property
    def signals(self) -> dict[str, float]:
        """Name -> value, for ``SIGNALS``."""
        return self._named(SIGNALS, SIGNALS_AT)

    def _named(self, names: Mapping[str, object], begin: int) -> dict[str, float]:
        told = self.numbers[begin : begin + len(names)].tolist()
        return {name: value for name, value in zip(names, told, strict=True) if not isnan(value)}


def gauge(name: str, readings: Mapping[str, EngineReading]) -> dict[str, float]:
    """Replica -> value of its gauge ``name``, for replicas that export it."""
    at = GAUGES_AT + list(GAUGES).index(name)
    told = ((replica, float(one.numbers[at])) for replica, one in readings.items())
    return {replica: value for replica, value in told if not isnan(value)}


def parse_reading(text: str, read_at_s: float) -> EngineReading:
    """The reading in ``text``; LiveError if it is no Prometheus exposition."""
    samples = read_samples("\n".join(filter(is_read, text.split("\n"))) or text)
    return fields_of(samples).reading(values_of(samples), read_at_s)


def values_of(samples: Sequence[Sample]) -> NDArray[np.float64]:
    """float64 [V], the value of each sample; a number that overflows is infinite and thus unknown."""
    return np.array([_number(one.value) for one in samples], dtype=np.float64)


def _number(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return inf


def is_read(line: str) -> bool:
    """Whether ``line`` is a sample that is read here. Checked first, because parsing a line is far slower."""
    return line.partition("{")[0].partition(" ")[0] in READ


def fields_of(samples: Sequence[Sample], *, whole: bool = True) -> ReadFields:
    """The ``samples`` that make up each number; LiveError for an edge that is no number.

    whole: the samples have all labels, so equal ones are one series that is stated twice.
    """
    totals: dict[str, list[int]] = {}
    reasons: dict[tuple[str, str], list[int]] = {}
    buckets: dict[str, dict[float, list[int]]] = {}
    for at, one in _distinct(samples) if whole else enumerate(samples):
        totals.setdefault(one.name, []).append(at)
        if _REASON in one.labels:
            reasons.setdefault((one.name, one.labels[_REASON]), []).append(at)
        if "le" in one.labels:
            edges = buckets.setdefault(one.name.removesuffix("_bucket"), {})
            edges.setdefault(_edge_s(one.labels["le"]), []).append(at)
    families = [sorted(_named(buckets, HISTOGRAMS[family], {}).items()) for family in LATENCY_FAMILIES]
    signals = [reasons.get(one, []) if one[1] else _named(totals, one[0], []) for one in SIGNALS.values()]
    named = [_named(totals, name, []) for name in (STARTED, *GAUGES.values(), *COUNTERS.values())]
    each = [*named, *signals, *(places for family in families for _, places in family)]
    counts = [len(family) for family in families]
    return ReadFields(
        places=_integers(at for places in each for at in places),
        ends=_integers(accumulate(len(places) for places in each)),
        edges_s=tuple(tuple(edge for edge, _ in family) for family in families),
        begins=tuple(accumulate(counts[:-1], initial=HISTOGRAMS_AT)),
        kv_engines=max(1, len(named[_KV_AT])),
    )


def _distinct(samples: Sequence[Sample]) -> Iterator[tuple[int, Sample]]:
    """The first sample of each series, with its position."""
    seen: set[tuple[str, frozenset[tuple[str, str]]]] = set()
    for at, one in enumerate(samples):
        series = one.name, frozenset(one.labels.items())
        if series not in seen:
            seen.add(series)
            yield at, one


def _named(found: Mapping[str, Found], name: str, nothing: Found) -> Found:
    """The entry under ``name``, or else under its former name."""
    return found.get(name) or found.get(FORMER.get(name, ""), nothing)


def _integers(values: Iterable[int]) -> NDArray[np.int64]:
    return np.fromiter(values, dtype=np.int64)


def _edge_s(label: str) -> float:
    try:
        return float(label)
    except ValueError as error:
        raise LiveError(f"/metrics is no Prometheus text: {error}") from error
