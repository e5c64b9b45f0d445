"""Metrics of users' own answers, where an operator lets sampled log-probabilities be looked at.

Nobody knows what is right there, so a kernel is compared with its own certified past on the same slice. Users
change as well, so a clause on such a metric informs (L1, with a budget) and moves nothing.
"""

from __future__ import annotations

from contracts.metrics.registry import register_metric

#: Columns that these metrics read.
PASSIVE_COLUMNS: tuple[str, ...] = ("surprise_outside",)


@register_metric(
    "surprise_outside_rate", family="S", unit="ratio", judgement="share", columns={"none": "surprise_outside"}
)
def surprise_outside(surprise_nats: float, low_nats: float, high_nats: float) -> float:
    """1 for an answer whose mean surprise lies outside the limits of its kernel's certified past, else 0.

    Surprise: minus the log-probability of a sampled token. Limits: those of ``live.observe.past``, nats.
    """
    return float(not low_nats <= surprise_nats <= high_nats)
