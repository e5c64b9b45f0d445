"""Serving-path terms from recorded runs: those for which the replay has the server's times.

Arrivals and tokens are the same in both worlds, so the comparison needs no model of the load: quantiles of
every time, and medians of groups of consecutive requests. The groups see the replica fuller and emptier,
which separates the cost of a step from the cost of a token. Single requests are not compared: whether one
just catches a step or just misses it is chance, in either world.

Squared logarithms of simulated over live are minimised, from several starts, because replays are not smooth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from contracts.documents.pool import EngineLimits
from contracts.documents.serving_path import ServingHalfWidths, ServingPath
from contracts.documents.step_time import StepTime
from contracts.errors import MeasurementError
from scripts.parity.recording import FIRST, GAP, RecordedRun
from scripts.parity.replaying import RequestLoad, load_of, replay

#: Least number of answered requests for fitting three terms.
LEAST_REQUESTS = 30
_STARTS = ((5.0, 0.5, 0.1), (40.0, 3.0, 0.02), (20.0, 0.1, 0.8))
#: Smallest reported size of a term, ms.
_SCALE = np.array([10.0, 1.0, 0.2])
_QUANTILES = (10, 25, 50, 75, 90)
_GROUP = 15  # requests
_PENALTY = 5.0
_MOST_REPLAYS, _FIRST_STEP = 300, 1.0
_Z = 1.96
#: Searches with losses within this factor are equally good: the terms between them are undetermined.
_ALIKE = 4.0

_Least = tuple[float, NDArray[np.float64]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fit:
    """One run, its known times, bool [n, 3], and the logarithms of its own summary."""

    load: RequestLoad
    known: NDArray[np.bool_]  # [n, 3], which of its times are known
    live: NDArray[np.float64]  # [terms], logarithms of its own summary
    step: StepTime
    limits: EngineLimits

    def residuals(self, terms: NDArray[np.float64]) -> NDArray[np.float64]:
        """Logs of simulated over live values; ``_PENALTY`` if the simulated replica answered none."""
        simulated = replay(self.load, self.step, path_of(terms), self.limits)
        return np.asarray(np.nan_to_num(_summary(simulated, self.known) - self.live, nan=_PENALTY))


def path_of(terms: NDArray[np.float64]) -> ServingPath:
    """Terms [3] as a document's part."""
    request_ms, step_ms, token_ms = (max(0.0, float(value)) for value in terms)
    return ServingPath(request_overhead_ms=request_ms, step_overhead_ms=step_ms, token_overhead_ms=token_ms)


def calibrated(runs: Sequence[RecordedRun], step: StepTime, limits: EngineLimits) -> ServingPath:
    """The terms that fit ``runs``; MeasurementError if too few of their requests were answered."""
    fits = [_fit(run, step, limits) for run in runs]

    def residuals(terms: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.concatenate([fit.residuals(terms) for fit in fits])

    def loss(logs: NDArray[np.float64]) -> float:
        return float(np.mean(residuals(np.exp(logs)) ** 2))

    found = sorted((_least(loss, np.log(start)) for start in _STARTS), key=lambda one: one[0])
    terms = np.exp(_least(loss, found[0][1])[1])
    spread = np.ptp([terms, *(np.exp(logs) for value, logs in found if value < _ALIKE * found[0][0])], axis=0)
    widths = np.maximum(_half_widths(residuals, terms), spread)
    return path_of(terms).model_copy(update={"half_widths": _widths(widths)})


def _fit(run: RecordedRun, step: StepTime, limits: EngineLimits) -> _Fit:
    times = run.times
    known = np.isfinite(times) & (times > 0.0)
    known[:, GAP] &= np.array(run.answer_tokens) > 1
    answered = int(known[:, FIRST].sum())
    if answered < LEAST_REQUESTS:
        raise MeasurementError(
            f"{answered} answered requests at {run.rate_rps:g} requests/s, and {LEAST_REQUESTS} are needed to"
            " calibrate by: run longer, by --seconds"
        )
    return _Fit(load=load_of(run), known=known, live=_summary(times, known), step=step, limits=limits)


def _summary(times_ms: NDArray[np.float64], known: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Logs of quantiles and of the medians of groups, of the times that are ``known``."""
    parts: list[NDArray[np.float64]] = []
    for time in range(times_ms.shape[1]):
        column = np.maximum(np.nan_to_num(times_ms[known[:, time], time], nan=np.inf), 1e-6)
        places = (np.array(_QUANTILES) / 100.0 * (len(column) - 1)).round().astype(np.int64)
        groups = column[: len(column) // _GROUP * _GROUP].reshape(-1, _GROUP)
        parts += [np.sort(column)[places], np.sort(groups, axis=1)[:, _GROUP // 2]]
    logs = np.log(np.concatenate(parts))
    return np.where(np.isfinite(logs), logs, np.nan)


def _least(loss: Callable[[NDArray[np.float64]], float], start: NDArray[np.float64]) -> _Least:
    """Least loss and its terms, searched on the log scale."""
    found = minimize(
        loss,
        start,
        method="Nelder-Mead",
        options={
            "initial_simplex": np.vstack([start, start + _FIRST_STEP * np.eye(len(start))]),
            "xatol": 2e-3,
            "fatol": 1e-9,
            "maxfev": _MOST_REPLAYS,
        },
    )
    return float(found.fun), found.x


def _half_widths(
    residuals: Callable[[NDArray[np.float64]], NDArray[np.float64]], terms: NDArray[np.float64]
) -> NDArray[np.float64]:
    """95 % half-widths [3] by central differences, as if the compared figures were independent."""
    steps = np.maximum(0.05 * terms, 0.01 * _SCALE)
    slopes = [
        (residuals(terms + one) - residuals(np.maximum(terms - one, 0.0))) / (2.0 * size)
        for one, size in zip(np.diag(steps), steps, strict=True)
    ]
    slope, rest = np.stack(slopes, axis=1), residuals(terms)
    scatter = float(rest @ rest) / max(1, len(rest) - len(terms))
    covariance = scatter * np.linalg.pinv(slope.T @ slope)
    return np.asarray(_Z * np.sqrt(np.maximum(np.diag(covariance), 0.0)))


def _widths(widths: NDArray[np.float64]) -> ServingHalfWidths:
    request_ms, step_ms, token_ms = (float(width) for width in widths)
    return ServingHalfWidths(
        request_overhead_ms=request_ms, step_overhead_ms=step_ms, token_overhead_ms=token_ms
    )
