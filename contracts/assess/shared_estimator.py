"""The estimator that several kernels were all measured by, and what a reader must know of it."""

from __future__ import annotations

from collections.abc import Sequence

from contracts.assess.observations import Observations
from contracts.documents.contract import Estimator
from contracts.metrics import metric
from contracts.rules.estimators import ESTIMATORS


def shared_estimator(seen: Sequence[tuple[str, Observations]], name: str) -> Estimator | None:
    """The most telling estimator of ``name`` that every kernel was measured by; None for none."""
    spec = metric(name)
    return next(
        (
            one
            for one in ESTIMATORS
            if one in spec.estimators
            and all(spec.column(one) in observations.column_names for _, observations in seen)
        ),
        None,
    )


def lower_bound_note(estimator: str) -> str:
    """What a reader must know of an estimator that is not exact."""
    if estimator != "top_k":
        return ""
    return (
        " Measured by the most probable tokens alone: a lower bound, of the healthy and of the faulty alike."
    )
