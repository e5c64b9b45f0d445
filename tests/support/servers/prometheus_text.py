"""The text of ``/metrics`` as a vLLM server writes it, from numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from live.observe.metrics import COUNTERS, GAUGES, HISTOGRAMS, STARTED

LABELS = '{engine="0",model_name="m"'


def metrics_text(
    counters: Mapping[str, float],
    gauges: Mapping[str, float],
    histograms: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    started_at_s: float = 1000.0,
) -> str:
    """The text for fields of the record; ``histograms``: family -> edges in s and cumulative counts."""
    lines = [f"# TYPE {STARTED} gauge", f"{STARTED} {started_at_s!r}"]
    inside: set[str] = set()
    for field, name in {**COUNTERS, **GAUGES}.items():
        value = {**counters, **gauges}.get(field)
        if value is not None and not any(name.startswith(one) for one in HISTOGRAMS.values()):
            lines.append(f"{name}{LABELS}}} {float(value)!r}")
    for family, (edges, counts) in histograms.items():
        name = HISTOGRAMS[family]
        inside.add(name)
        lines.append(f"# TYPE {name} histogram")
        for edge, count in zip(edges, counts, strict=True):
            mark = "+Inf" if edge == float("inf") else repr(float(edge))
            lines.append(f'{name}_bucket{LABELS},le="{mark}"}} {float(count)!r}')
    for field, name in COUNTERS.items():
        if field in counters and any(name.startswith(one) for one in HISTOGRAMS.values()):
            lines.append(f"{name}{LABELS}}} {float(counters[field])!r}")
    return "\n".join(lines) + "\n"
