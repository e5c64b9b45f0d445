"""``/metrics`` of a busy vLLM server at each tick: the families and buckets that vLLM 0.32 exports."""

from __future__ import annotations

from collections.abc import Iterator

from live.observe.metrics import COUNTERS, GAUGES, HISTOGRAMS, STARTED

_LABELS = 'engine="0",model_name="m"'
#: Upper edges of vLLM's histograms of whole requests, first tokens and gaps, in s.
EDGES_S = {
    "latency_ms": (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920,
                   7680),
    "ttft_ms": (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40,
                80, 160, 640, 2560),
    "inter_token_ms": (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20,
                       40, 80),
}  # fmt: skip
#: Metrics of a server that are not read: with them an answer has about 600 lines, as in vLLM 0.32.
UNREAD_GAUGES, UNREAD_HISTOGRAMS = 25, 16
#: Counts per second and server.
_RATES = {
    "iterations": 30.0, "prompt_tokens": 600.0, "generation_tokens": 300.0, "inter_token_s": 12.0,
    "inter_tokens": 297.0, "queue_s": 0.1, "admitted": 3.0, "finished": 3.0, "preemptions": 0.0,
}  # fmt: skip
_GAUGES = {"running": 12.0, "waiting": 0.0, "kv_used_ratio": 0.4}
#: For each histogram: observations per second, and their bucket.
_OBSERVED = {"latency_ms": (3.0, 5), "ttft_ms": (3.0, 8), "inter_token_ms": (297.0, 2)}


def answer(second: float) -> str:
    """The text after this many seconds of steady work."""
    return "\n".join(_lines(second)) + "\n"


def _lines(second: float) -> Iterator[str]:
    yield from _unread(second)
    yield f"# TYPE {STARTED} gauge"
    yield f"{STARTED} 1000.0"
    for field, value in _GAUGES.items():
        yield f"# TYPE {GAUGES[field]} gauge"
        yield f"{GAUGES[field]}{{{_LABELS}}} {value!r}"
    for family, name in HISTOGRAMS.items():
        yield from _histogram(family, name, second)
    inside = tuple(HISTOGRAMS.values())
    for field, rate in _RATES.items():
        name = COUNTERS[field]
        if not name.startswith(inside):
            kind = "counter" if name.endswith("_total") else "unknown"
            yield f"# TYPE {name.removesuffix('_total')} {kind}"
            yield f"{name}{{{_LABELS}}} {rate * second!r}"


def _unread(second: float) -> Iterator[str]:
    """Other exports of a server: its process, and histograms that are not read here."""
    for n in range(UNREAD_GAUGES):
        yield f"# HELP python_gc_objects_{n} Of the process."
        yield f"# TYPE python_gc_objects_{n} gauge"
        yield f'python_gc_objects_{n}{{generation="0"}} {second + n!r}'
    for n in range(UNREAD_HISTOGRAMS):
        name = f"vllm:request_unread_{n}_seconds"
        yield f"# HELP {name} Histogram that is not read here."
        yield f"# TYPE {name} histogram"
        for edge in EDGES_S["latency_ms"]:
            yield f'{name}_bucket{{{_LABELS},le="{float(edge)!r}"}} {second!r}'
        yield f'{name}_bucket{{{_LABELS},le="+Inf"}} {second!r}'
        yield f"{name}_count{{{_LABELS}}} {second!r}"
        yield f"{name}_sum{{{_LABELS}}} {3.0 * second!r}"


def _histogram(family: str, name: str, second: float) -> Iterator[str]:
    rate, place = _OBSERVED[family]
    edges = EDGES_S[family]
    total = float(int(rate * second))
    yield f"# TYPE {name} histogram"
    for at, edge in enumerate(edges):
        yield f'{name}_bucket{{{_LABELS},le="{float(edge)!r}"}} {total if at >= place else 0.0!r}'
    yield f'{name}_bucket{{{_LABELS},le="+Inf"}} {total!r}'
    yield f"{name}_count{{{_LABELS}}} {total!r}"
    yield f"{name}_sum{{{_LABELS}}} {total * edges[place]!r}"
