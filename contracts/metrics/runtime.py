"""Runtime metrics (family R): latency, failures, throughput and resource use.

Latencies are one number per request, in ms; a percentile clause on them is judged online by the share
of requests over the threshold, from the histogram of ``contracts.telemetry``.
"""

from __future__ import annotations

from contracts.metrics.registry import register_metric
from contracts.telemetry import Source
from contracts.units import MS_PER_S


def latency_ms(arrived_at_s: float, ended_at_s: float) -> float:
    """Time from a request's arrival at the gateway to its last token, ms."""
    return (ended_at_s - arrived_at_s) * MS_PER_S


def ttft_ms(arrived_at_s: float, first_token_at_s: float) -> float:
    """Time from a request's arrival to its first output token, ms."""
    return (first_token_at_s - arrived_at_s) * MS_PER_S


def inter_token_ms(first_token_at_s: float, ended_at_s: float, output_tokens: int) -> float:
    """Mean time between output tokens of a request, ms; 0 for a single token."""
    return (ended_at_s - first_token_at_s) * MS_PER_S / max(1, output_tokens - 1)


def _register_latency() -> None:
    """Register the p50, p95, p99 and per-request forms of the three latency families."""
    for function in (latency_ms, ttft_ms, inter_token_ms):
        name, columns = function.__name__, {"none": function.__name__}
        for suffix, judgement in (
            ("", "per_observation"),
            ("_p50", "percentile(50)"),
            ("_p95", "percentile(95)"),
            ("_p99", "percentile(99)"),
        ):
            register_metric(
                name + suffix,
                family="R",
                unit="ms",
                judgement=judgement,
                columns=columns,
                source=Source.LATENCY,
            )(function)


_register_latency()


@register_metric(
    "throughput_tokens_per_s",
    family="R",
    unit="tokens/s",
    sense="at_least",
    columns={"none": "throughput_tokens_per_s"},
    source=Source.OFFLINE,
)
def throughput_tokens_per_s(output_tokens: float, duration_s: float) -> float:
    """Output tokens per second of a run, at the contracted KV budget."""
    if duration_s <= 0.0:
        raise ValueError(f"duration must be a positive number of seconds, got {duration_s}")
    return output_tokens / duration_s


@register_metric(
    "peak_memory_bytes",
    family="R",
    unit="bytes",
    judgement="per_observation",
    columns={"none": "peak_memory_bytes"},
    source=Source.OFFLINE,
)
def peak_memory_bytes(samples_bytes: list[float]) -> float:
    """Largest resident memory of a server over a run, bytes."""
    return max(samples_bytes)


@register_metric(
    "kv_used_ratio",
    family="R",
    unit="ratio",
    columns={"none": "kv_used_ratio"},
    source=Source.KV_USED,
)
def kv_used_ratio(used_blocks: float, total_blocks: float) -> float:
    """Share of the KV-cache blocks in use, 0..1."""
    return used_blocks / total_blocks


@register_metric(
    "step_time_ratio",
    family="R",
    unit="ratio",
    columns={"none": "step_time_ratio"},
    source=Source.STEP_TIME,
)
def step_time_ratio(measured_s: float, certified_s: float) -> float:
    """Measured time of engine steps over the certified model's prediction for the same batches."""
    if certified_s <= 0.0:
        raise ValueError(f"expected a certified time above 0 s, got {certified_s}")
    return measured_s / certified_s


@register_metric(
    "failure_rate",
    family="R",
    unit="ratio",
    judgement="share",
    columns={"none": "failed"},
    source=Source.FAILED,
)
def failed(status: int | None) -> float:
    """1 for a request with a 5xx answer, a reset or a timeout (status None), else 0."""
    return float(status is None or status >= 500)
