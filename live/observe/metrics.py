"""One scrape of a vLLM server's ``/metrics`` by the server's own names.

Source: vLLM's ``v1/metrics/loggers.py`` (0.32). Engines of one server (data parallel) are added up. A name
that is not there is not exported: it is left out, and is neither bad nor good.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from contracts.telemetry import LATENCY_FAMILIES
from live.errors import LiveError

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
    totals: dict[str, float] = {}
    reasons: dict[tuple[str, str], float] = {}
    buckets: dict[str, dict[float, float]] = {}
    try:
        for family in text_string_to_metric_families(_read_lines(text) or text):
            for sample in family.samples:
                totals[sample.name] = totals.get(sample.name, 0.0) + float(sample.value)
                if _REASON in sample.labels:
                    ended = sample.name, sample.labels[_REASON]
                    reasons[ended] = reasons.get(ended, 0.0) + float(sample.value)
                if "le" in sample.labels:
                    edges = buckets.setdefault(sample.name.removesuffix("_bucket"), {})
                    edge = float(sample.labels["le"])
                    edges[edge] = edges.get(edge, 0.0) + float(sample.value)
    except (ValueError, KeyError) as error:
        raise LiveError(f"/metrics is no Prometheus text: {error}") from error
    return EngineReading(
        read_at_s=read_at_s,
        started_at_s=totals.get(STARTED),
        gauges={key: totals[name] for key, name in GAUGES.items() if name in totals},
        counters={key: totals[name] for key, name in COUNTERS.items() if name in totals},
        histograms={
            family: _histogram(buckets[HISTOGRAMS[family]])
            for family in LATENCY_FAMILIES
            if HISTOGRAMS[family] in buckets
        },
        signals={
            name: reasons[sample, reason] if reason else totals[sample]
            for name, (sample, reason) in SIGNALS.items()
            if (reason and (sample, reason) in reasons) or (not reason and sample in totals)
        },
    )


def _read_lines(text: str) -> str:
    """The samples that are read here: parsing a line takes far longer than looking at its name."""
    lines = text.split("\n")
    return "\n".join(line for line in lines if line.partition("{")[0].partition(" ")[0] in _READ)


def _histogram(counts: Mapping[float, float]) -> Histogram:
    edges = tuple(sorted(counts))
    return Histogram(edges, tuple(counts[edge] for edge in edges))
