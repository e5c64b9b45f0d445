"""Fit the step-time model to measured steps, and say how sure it is.

time_ms = base * steps + a * prefill tokens + b * decoding sequences + c * context tokens, and for requests
that were timed from outside + d + e * sequences for what is no step. All coefficients are >= 0, weighted so
that relative errors count alike: a step of 2 ms matters as much as one of 50 ms.

Of requests that were timed in several blocks the median of every kind counts. The half-widths (95 %) are
the larger of two: what the residuals say, lack of fit included, and what repeating the measurement would
change (``step_spread``). The first does not know that a server drifts, the second does not know that the
model is not quite right. A coefficient at 0 is known from one side: its half-width is an upper limit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls
from scipy.stats import t as student_t

from contracts.documents.step_time import StepHalfWidths, StepPoint, StepPrediction, StepTime
from contracts.errors import MeasurementError
from contracts.units import CONFIDENCE
from live.measure.steps.spread import Spread, spread_of

#: (prefilled tokens, decoding sequences, context per sequence) of the steps with a stated predicted time;
#: only those with no more sequences than were timed at once.
OPERATING_POINTS = ((0, 1, 128), (0, 4, 128), (128, 8, 128))
_NAMES = (
    "base_ms",
    "per_prefill_token_ms",
    "per_decode_sequence_ms",
    "per_context_token_ms",
    "per_request_ms",
    "per_sequence_ms",
)
_STEP = 4
#: A direction of the coefficients that moves no prediction by more than this share of the largest one.
_SINGULAR = 1e-6

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fitted:
    """coefficients [P]; by_residuals: covariance [P, P] with so many degrees of freedom."""

    coefficients: Floats  # [P]
    by_residuals: Floats  # [P, P], covariance with ``freedom`` degrees of freedom
    freedom: int
    spread: Spread | None

    def half_width(self, direction: Floats) -> float:
        """95 % half-width of the coefficients' product with ``direction`` [P]."""
        share = 0.5 + CONFIDENCE / 2.0
        residual = float(student_t.ppf(share, self.freedom)) * _deviation(direction, self.by_residuals)
        if self.spread is None:
            return residual
        quantile = float(student_t.ppf(share, self.spread.stretches - 1))
        return max(residual, quantile * _deviation(direction, self.spread.covariance))


def fit_step_time(points: Sequence[StepPoint], *, keep_points: int = 64) -> StepTime:
    """Non-negative least squares over ``points``; ``relative_error`` is the median |fit/measured - 1|.

    The n-th point of one kind of work belongs to block n. ``keep_points``, evenly chosen of the typical
    ones, go into the document. Raises MeasurementError where the points do not determine every coefficient.
    """
    usable = [point for point in points if point.measured_ms > 0.0]
    if not usable:
        raise MeasurementError("no measured step took longer than 0 ms")
    kinds, blocks = _by_kind(usable)
    features = np.array([_work(point) for point in kinds])
    measured = np.array([point.measured_ms for point in kinds])
    asked = np.flatnonzero(features.any(axis=0) | (np.arange(len(_NAMES)) < _STEP))
    _refuse_undetermined(features[:, asked], measured, asked)
    fitted = _fit(features[:, asked], measured, blocks)
    chosen = np.unique(np.linspace(0, len(kinds) - 1, min(keep_points, len(kinds))).round().astype(int))
    return StepTime(
        **dict(zip([_NAMES[one] for one in asked], map(float, fitted.coefficients), strict=True)),
        relative_error=_relative_error(fitted, asked, usable),
        measured_points=len(usable),
        points=tuple(kinds[index] for index in chosen),
        half_widths=_half_widths(fitted),
        predictions=tuple(_prediction(fitted, point) for point in _operating(usable)),
        dropped_points=len(points) - len(usable),
    )


def widest_point(model: StepTime) -> StepPrediction | None:
    """The operating point with the least certain predicted step time; None if none is stated."""
    known = [one for one in model.predictions or () if one.predicted_ms > 0.0]
    return max(known, key=lambda one: one.half_width_ms / one.predicted_ms, default=None)


def widest_prediction(model: StepTime) -> float:
    """The largest relative half-width of a predicted step time; 0 if none is stated."""
    widest = widest_point(model)
    return 0.0 if widest is None else widest.half_width_ms / widest.predicted_ms


def step_time_ratio(slowed: Sequence[StepPoint], healthy: Sequence[StepPoint]) -> float:
    """Median over equal work of slowed / healthy time; ValueError if they have no work in common."""
    before, after = _least_by_kind(healthy), _least_by_kind(slowed)
    ratios = [after[kind] / before[kind] for kind in after if before.get(kind, 0.0) > 0.0]
    if not ratios:
        raise ValueError("the two measurements share no kind of step")
    return float(np.median(ratios))


def _least_by_kind(points: Sequence[StepPoint]) -> dict[tuple[int, ...], float]:
    """Least time of each kind of work, because other load only adds time."""
    least: dict[tuple[int, ...], float] = {}
    for point in points:
        kind = _kind(point)
        least[kind] = min(point.measured_ms, least.get(kind, point.measured_ms))
    return least


def _work(point: StepPoint) -> list[float]:
    """The work of a point, in the order of ``_NAMES``."""
    outside = (0.0, 0.0) if point.sequences is None else (1.0, float(point.sequences))
    steps = (point.steps or 1, point.prefill_tokens, point.decode_sequences, point.context_tokens)
    return [*map(float, steps), *outside]


def _kind(point: StepPoint) -> tuple[int, ...]:
    return tuple(int(part) for part in _work(point))


def _by_kind(points: Sequence[StepPoint]) -> tuple[list[StepPoint], Floats]:
    """Every kind of work with its typical time, and the times of the blocks that contain all kinds."""
    times: dict[tuple[int, ...], list[float]] = {}
    firsts: dict[tuple[int, ...], StepPoint] = {}
    for point in points:
        times.setdefault(_kind(point), []).append(point.measured_ms)
        firsts.setdefault(_kind(point), point)
    typical = [
        first.model_copy(update={"measured_ms": float(np.median(times[kind]))})
        for kind, first in firsts.items()
    ]
    whole = min(map(len, times.values()))
    return typical, np.array([took[:whole] for took in times.values()]).T


def _refuse_undetermined(features: Floats, measured: Floats, asked: NDArray[np.int64]) -> None:
    """MeasurementError with the names of coefficients that the points do not determine."""
    weighted = features / measured[:, None]
    scaled = weighted / np.maximum(np.linalg.norm(weighted, axis=0), 1e-300)
    _, sizes, rows = np.linalg.svd(scaled, full_matrices=True)
    padded = np.concatenate([sizes, np.zeros(len(asked) - len(sizes))])
    open_rows = np.abs(rows[padded < _SINGULAR * padded.max()])
    if open_rows.size:
        names = [
            _NAMES[one] for one, loose in zip(asked, (open_rows > 0.1).any(axis=0), strict=True) if loose
        ]
        message = ", ".join(names)
        raise MeasurementError(
            f"the {len(measured)} timed steps do not determine {message}: time more batch sizes and contexts"
        )
    if len(measured) <= len(asked):
        raise MeasurementError(
            f"{len(measured)} timed steps for {len(asked)} coefficients leave nothing to judge the fit by"
        )


def _fit(features: Floats, measured: Floats, blocks: Floats) -> _Fitted:
    weighted = features / measured[:, None]
    coefficients = _non_negative(weighted)
    freedom = len(measured) - features.shape[1]
    scale = np.linalg.norm(weighted, axis=0)
    inverse = np.linalg.inv((weighted / scale).T @ (weighted / scale)) / np.outer(scale, scale)
    misfit = float(((1.0 - weighted @ coefficients) ** 2).sum()) / freedom
    return _Fitted(
        coefficients=coefficients,
        by_residuals=misfit * inverse,
        freedom=freedom,
        spread=spread_of(blocks, coefficients, lambda typical: _of_any_sign(features, typical)),
    )


def _relative_error(fitted: _Fitted, asked: NDArray[np.int64], points: Sequence[StepPoint]) -> float:
    predicted = np.array([_work(point) for point in points])[:, asked] @ fitted.coefficients
    measured = np.array([point.measured_ms for point in points])
    return float(np.median(np.abs(predicted / measured - 1.0)))


def _of_any_sign(features: Floats, measured: Floats) -> Floats:
    """Coefficients [n, P], unlike ``_non_negative`` of any sign, for each of ``measured`` [n, kinds]."""
    weighted = features / measured[:, :, None]
    scale = np.maximum(np.abs(weighted).max(axis=1, keepdims=True), 1e-300)
    return np.asarray(np.linalg.pinv(weighted / scale).sum(axis=2) / scale[:, 0, :])


def _non_negative(weighted: Floats) -> Floats:
    """Coefficients [P] >= 0 whose products with the rows of ``weighted`` [n, P] are closest to 1."""
    scale = np.maximum(np.abs(weighted).max(axis=0), 1e-300)  # columns differ by four orders of magnitude
    solution, _ = nnls(weighted / scale, np.ones(len(weighted)))
    return np.asarray(solution / scale)


def _deviation(direction: Floats, covariance: Floats) -> float:
    return math.sqrt(max(float(direction @ covariance @ direction), 0.0))


def _half_widths(fitted: _Fitted) -> StepHalfWidths:
    unit = np.eye(fitted.coefficients.size)
    return StepHalfWidths(**{_NAMES[one]: fitted.half_width(unit[one]) for one in range(_STEP)})


def _operating(points: Sequence[StepPoint]) -> list[tuple[int, int, int]]:
    """The operating points within what was timed: prefilled tokens, sequences, context tokens in all."""
    most = max(one.sequences or one.decode_sequences for one in points)
    return [
        (prefill, min(sequences, most), min(sequences, most) * context)
        for prefill, sequences, context in OPERATING_POINTS
    ]


def _prediction(fitted: _Fitted, point: tuple[int, int, int]) -> StepPrediction:
    direction = np.zeros(fitted.coefficients.size)
    direction[:_STEP] = (1.0, *point)
    prefill, decode, context = point
    return StepPrediction(
        prefill_tokens=prefill,
        decode_sequences=decode,
        context_tokens=context,
        predicted_ms=float(direction @ fitted.coefficients),
        half_width_ms=fitted.half_width(direction),
    )
