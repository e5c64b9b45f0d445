"""Fit the step-time model to measured steps.

time_ms = base + a * prefill tokens + b * decoding sequences + c * context tokens, all coefficients >= 0,
weighted so that relative errors count alike: a step of 2 ms matters as much as one of 50 ms.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import nnls

from contracts.documents.profile import StepPoint, StepTime


def fit_step_time(points: Sequence[StepPoint], *, keep_points: int = 64) -> StepTime:
    """Non-negative least squares over ``points``; ``relative_error`` is the median |fit/measured - 1|.

    ``keep_points`` of them, evenly chosen, go into the document. Raises ValueError without points.
    """
    usable = [point for point in points if point.measured_ms > 0.0]
    if not usable:
        raise ValueError("no measured step took longer than 0 ms")
    measured = np.array([point.measured_ms for point in usable])
    features = np.array(
        [[1.0, p.prefill_tokens, p.decode_sequences, p.context_tokens] for p in usable], dtype=np.float64
    )
    weighted = features / measured[:, None]
    scale = np.maximum(weighted.max(axis=0), 1e-12)  # columns differ by four orders of magnitude
    solution, _ = nnls(weighted / scale, np.ones_like(measured))
    coefficients = solution / scale
    error = np.abs(features @ coefficients / measured - 1.0)
    chosen = np.unique(np.linspace(0, len(usable) - 1, min(keep_points, len(usable))).round().astype(int))
    return StepTime(
        base_ms=float(coefficients[0]),
        per_prefill_token_ms=float(coefficients[1]),
        per_decode_sequence_ms=float(coefficients[2]),
        per_context_token_ms=float(coefficients[3]),
        relative_error=float(np.median(error)),
        measured_points=len(usable),
        points=tuple(usable[index] for index in chosen),
    )


def step_time_ratio(slowed: Sequence[StepPoint], healthy: Sequence[StepPoint]) -> float:
    """Median over equal steps of slowed / healthy time."""
    before = {_key(point): point.measured_ms for point in healthy}
    ratios = [p.measured_ms / before[_key(p)] for p in slowed if before.get(_key(p), 0.0) > 0.0]
    if not ratios:
        raise ValueError("the two measurements share no kind of step")
    return float(np.median(ratios))


def _key(point: StepPoint) -> tuple[int, int, int]:
    return point.prefill_tokens, point.decode_sequences, point.context_tokens
