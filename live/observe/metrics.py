"""One scrape of a vLLM server's ``/metrics`` by the server's own names.

Source: vLLM's ``v1/metrics/loggers.py`` (0.32). Engines of one server (data parallel) are added up. A name
that is not there is not exported: it is left out, and is neither bad nor good.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from prometheus_client.samples import Sample

from contracts.telemetry import LATENCY_FAMILIES
from live.errors import LiveError
from live.exposition import read_samples

#: Field of ``EngineCounters`` -> sample that counts it.
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
#: What passive signals are made of: name -> sample, with the reason that answers ended for where one counts.
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
#: Gauges of the record. KV use is a ratio whatever the server's name for it says.
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
#: When the server's process began, as every Prometheus client exports it.
STARTED = "process_start_time_seconds"
#: Places of samples in a text.
_Places = tuple[int, ...]
_Sums = Callable[[Sequence[float]], tuple[float, ...]]

_READ = frozenset(
    {
        *COUNTERS.values(),
        *(sample for sample, _ in SIGNALS.values()),
        *GAUGES.values(),
        *(f"{name}_bucket" for name in HISTOGRAMS.values()),
        STARTED,
    }
)


class Histogram(NamedTuple):
    """Cumulative counts up to each edge, the last edge inf."""

    edges_s: tuple[float, ...]
    counts: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineReading:
    """What one scrape said; fields that the server does not export are missing."""

    read_at_s: float
    started_at_s: float | None
    """Of the process, Unix time; None: not exported."""
    gauges: Mapping[str, float]
    counters: Mapping[str, float]
    histograms: Mapping[str, Histogram]
    signals: Mapping[str, float] = field(default_factory=dict)
    """Counters of ``SIGNALS``."""


def gauge(name: str, readings: Mapping[str, EngineReading]) -> dict[str, float]:
    """Replica -> its gauge ``name``, of those that export it."""
    return {replica: one.gauges[name] for replica, one in readings.items() if name in one.gauges}


def parse_reading(text: str, read_at_s: float) -> EngineReading:
    """The reading in ``text``; LiveError where it is no Prometheus exposition."""
    samples = read_samples("\n".join(filter(is_read, text.split("\n"))) or text)
    return fields_of(samples).reading([float(one.value) for one in samples], read_at_s)


def is_read(line: str) -> bool:
    """Whether ``line`` is a sample that is read here: parsing a line takes far longer than looking at its
    name.
    """
    return line.partition("{")[0].partition(" ")[0] in _READ


@dataclass(frozen=True, slots=True)
class ReadFields:
    """Which samples of a text each field of a reading adds up; the numbers are the samples' places."""

    started: _Places | None
    gauges: Mapping[str, _Places]
    counters: Mapping[str, _Places]
    signals: Mapping[str, _Places]
    histograms: Mapping[str, tuple[tuple[float, ...], _Sums]]
    """Family -> edges in s, and the sums of each from the samples' values."""

    def reading(self, values: Sequence[float], read_at_s: float) -> EngineReading:
        """The reading whose samples have these ``values``."""
        return EngineReading(
            read_at_s=read_at_s,
            started_at_s=None if self.started is None else _sum(values, self.started),
            gauges={name: _sum(values, places) for name, places in self.gauges.items()},
            counters={name: _sum(values, places) for name, places in self.counters.items()},
            signals={name: _sum(values, places) for name, places in self.signals.items()},
            histograms={
                family: Histogram(edges_s, sums(values))
                for family, (edges_s, sums) in self.histograms.items()
            },
        )


def fields_of(samples: Sequence[Sample]) -> ReadFields:
    """Which of ``samples`` make up each field; LiveError for an edge that is no number."""
    totals: dict[str, list[int]] = {}
    reasons: dict[tuple[str, str], list[int]] = {}
    buckets: dict[str, dict[float, list[int]]] = {}
    for at, one in enumerate(samples):
        totals.setdefault(one.name, []).append(at)
        if _REASON in one.labels:
            reasons.setdefault((one.name, one.labels[_REASON]), []).append(at)
        if "le" in one.labels:
            edges = buckets.setdefault(one.name.removesuffix("_bucket"), {})
            edges.setdefault(_edge_s(one.labels["le"]), []).append(at)
    signals = {
        name: tuple(reasons.get((sample, reason), ()) if reason else totals.get(sample, ()))
        for name, (sample, reason) in SIGNALS.items()
    }
    return ReadFields(
        started=tuple(totals[STARTED]) if STARTED in totals else None,
        gauges=_named(GAUGES, totals),
        counters=_named(COUNTERS, totals),
        signals={name: places for name, places in signals.items() if places},
        histograms={
            family: _histogram(buckets[HISTOGRAMS[family]])
            for family in LATENCY_FAMILIES
            if HISTOGRAMS[family] in buckets
        },
    )


def _sum(values: Sequence[float], places: _Places) -> float:
    return values[places[0]] if len(places) == 1 else sum([values[at] for at in places])


def _named(names: Mapping[str, str], totals: Mapping[str, list[int]]) -> dict[str, _Places]:
    return {field: tuple(totals[name]) for field, name in names.items() if name in totals}


def _edge_s(label: str) -> float:
    try:
        return float(label)
    except ValueError as error:
        raise LiveError(f"/metrics is no Prometheus text: {error}") from error


def _histogram(places: Mapping[float, list[int]]) -> tuple[tuple[float, ...], _Sums]:
    edges = tuple(sorted(places))
    return edges, _sums([tuple(places[edge]) for edge in edges])


def _sums(every: Sequence[_Places]) -> _Sums:
    """From values to the sum of each of ``every``; of one engine it only picks."""
    if len(every) > 1 and all(len(places) == 1 for places in every):
        return itemgetter(*[places[0] for places in every])
    return lambda values: tuple([_sum(values, places) for places in every])
