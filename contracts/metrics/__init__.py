"""The metrics that a clause may name, their registry, and the per-prompt values they are computed from."""

from __future__ import annotations

from contracts.metrics import generation, numeric, observability, runtime, statistical
from contracts.metrics.columns import (
    COLUMN_NAMES,
    PromptColumns,
    draw_tokens,
    prompt_columns,
    sampled_columns,
    top_k_columns,
)
from contracts.metrics.generation import GENERATION_COLUMNS, PASSIVE_COLUMNS
from contracts.metrics.registry import (
    METRICS,
    Estimator,
    JudgedBy,
    MetricSpec,
    Sense,
    UnknownMetricError,
    metric,
    register_metric,
)

__all__ = [
    "COLUMN_NAMES",
    "GENERATION_COLUMNS",
    "METRICS",
    "PASSIVE_COLUMNS",
    "Estimator",
    "JudgedBy",
    "MetricSpec",
    "PromptColumns",
    "Sense",
    "UnknownMetricError",
    "draw_tokens",
    "generation",
    "metric",
    "numeric",
    "observability",
    "prompt_columns",
    "register_metric",
    "runtime",
    "sampled_columns",
    "statistical",
    "top_k_columns",
]
