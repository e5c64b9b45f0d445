"""Confidence intervals of E5: bootstrap clustered by seed for means, exact Poisson for counts, Student's t
for limits that hold together, and one for harm that gains do not widen.

A matrix of values has one row per seed and one column per scenario; a NaN entry is not applicable and is left
out. All policies see the same seeds, so differences between policies are taken entry by entry
(common random numbers) before they are resampled. Seeds are the clusters: whole rows are drawn.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2, t

from contracts.rng import stream
from contracts.units import CONFIDENCE

RESAMPLES = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A point estimate with its two-sided confidence limits."""

    mean: float
    ci_low: float  # NaN with fewer than two seeds
    ci_high: float
    n: int  # observations behind it; of a rate, the count


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A mean with one of its confidence limits, which holds together with those beside it."""

    mean: float  # NaN without an observation
    limit: float  # NaN with fewer than two
    n: int  # observations behind it


def simultaneous_limits(values: NDArray[np.float64], *, upper: bool = False) -> tuple[Bound, ...]:
    """One-sided limits of the mean of each column of ``values`` [seeds, scenarios], true of all at once.

    limit = mean ± t(1 - tail / columns; n - 1) * s / sqrt(n): Student's t, Bonferroni over the columns.
    """
    tail = _shared_tail(values)
    return tuple(_bound(column[np.isfinite(column)], tail, 1.0 if upper else -1.0) for column in values.T)


def capped_limits(losses: NDArray[np.float64], cap: float) -> tuple[Bound, ...]:
    """Upper limits of the mean of each column of ``losses`` [seeds, scenarios], true of all at once, that
    gains (losses below 0) do not widen.

    A gain counts up to ``cap`` > 0, fixed before anything is seen: max(d, -cap) >= d, so an upper limit of
    the capped mean is one of the mean. Its t statistic is corrected for skewness by Hall's monotone cubic
    ("On the removal of skewness by transformation", J. R. Statist. Soc. B 54, 1992, 221-228): with
    T = (mean - mu) / s and skewness g, g(T) = T + g T^2 / 3 + g^2 T^3 / 27 + g / (6 n) is nearly symmetric,
    so limit = mean - s * g^-1(-t(1 - tail / columns; n - 1) / sqrt(n)). Bonferroni over the columns.

    ``mean`` counts every gain in full. A harm that no seed shows is in no limit of this kind: one that
    strikes one episode in ten is missed by twenty seeds once in eight.
    """
    tail = _shared_tail(losses)
    return tuple(_capped(column[np.isfinite(column)], tail, cap) for column in losses.T)


def _shared_tail(values: NDArray[np.float64]) -> float:
    """What each column of ``values`` may err, so that all err together in 1 - CONFIDENCE."""
    return (1.0 - CONFIDENCE) / max(1, int(values.shape[1]))


def _capped(known: NDArray[np.float64], tail: float, cap: float) -> Bound:
    """Mean of the losses ``known`` [n], and the limit with gains up to ``cap``."""
    n, capped = known.size, np.maximum(known, -cap)
    if n < 2:
        return Bound(mean=float(known.mean()) if n else math.nan, limit=math.nan, n=n)
    spread = float(capped.std(ddof=1))
    reach = _symmetric(-_student(tail, n - 1) / math.sqrt(n), _skewness(capped, spread), n)
    return Bound(mean=float(known.mean()), limit=float(capped.mean()) - spread * reach, n=n)


def _symmetric(quantile: float, skewness: float, n: int) -> float:
    """The T that Hall's cubic of ``n`` observations maps to ``quantile``; never above 0 for one below."""
    if abs(skewness) < 1e-6:
        return quantile
    inner = 1.0 + skewness * (quantile - skewness / (6.0 * n))
    return 3.0 * (math.cbrt(inner) - 1.0) / skewness


def _skewness(values: NDArray[np.float64], spread: float) -> float:
    """Unbiased third moment of ``values`` [n] over ``spread`` cubed; 0 where they do not differ."""
    n = values.size
    if n < 3 or not spread > 0.0:
        return 0.0
    scaled = (values - values.mean()) / spread
    return float((scaled**3).sum()) * n / ((n - 1.0) * (n - 2.0))


@lru_cache(maxsize=256)
def _student(tail: float, freedom: int) -> float:
    """Upper quantile of Student's t; looked up often with equal arguments."""
    return float(t.ppf(1.0 - tail, freedom))


def _bound(known: NDArray[np.float64], tail: float, sign: float) -> Bound:
    """Mean and limit of the observations ``known`` [n]."""
    n = known.size
    mean = float(known.mean()) if n else math.nan
    if n < 2:
        return Bound(mean=mean, limit=math.nan, n=n)
    reach = _student(tail, n - 1) * float(known.std(ddof=1)) / math.sqrt(n)
    return Bound(mean=mean, limit=mean + sign * reach, n=n)


def clustered_mean(values: NDArray[np.float64], *, name: str, resamples: int = RESAMPLES) -> Interval:
    """Mean of ``values`` [seeds, scenarios] with a percentile bootstrap over seeds.

    The estimate is sum / count over the known entries. The resampling depends on ``name`` and the
    number of seeds alone: equal arguments give equal limits. With one seed there is no interval (NaN).
    """
    known = np.isfinite(values)
    sums, counts = np.where(known, values, 0.0).sum(axis=1), known.sum(axis=1)
    return _ratio_of_sums(sums, counts, int(counts.sum()), name, resamples)


def paired_difference(
    values: NDArray[np.float64], baseline: NDArray[np.float64], *, name: str, resamples: int = RESAMPLES
) -> Interval:
    """Interval of mean(values - baseline), paired by seed and scenario; both [seeds, scenarios]."""
    return clustered_mean(values - baseline, name=name, resamples=resamples)


def paired_ratio(
    values: NDArray[np.float64], baseline: NDArray[np.float64], *, name: str, resamples: int = RESAMPLES
) -> Interval:
    """Interval of sum(values) / sum(baseline), paired by seed and scenario; both [seeds, scenarios].

    Entries unknown on either side are left out of both. A baseline that sums to 0 or less gives NaN.
    """
    known = np.isfinite(values) & np.isfinite(baseline)
    top, base = (np.where(known, side, 0.0).sum(axis=1) for side in (values, baseline))
    return _ratio_of_sums(top, base, int(known.sum()), name, resamples)


def _ratio_of_sums(
    top: NDArray[np.float64], base: NDArray[np.generic], n: int, name: str, resamples: int
) -> Interval:
    """Interval of sum(top) / sum(base), both [seeds]; NaN where ``base`` sums to 0 or less."""
    if n == 0 or not base.sum() > 0:
        return Interval(mean=math.nan, ci_low=math.nan, ci_high=math.nan, n=n)
    mean = float(top.sum() / base.sum())
    if len(top) < 2:
        return Interval(mean=mean, ci_low=math.nan, ci_high=math.nan, n=n)
    picks = stream(0, "bootstrap", name).integers(0, len(top), size=(resamples, len(top)))
    drawn, weight = top[picks].sum(axis=1), base[picks].sum(axis=1)
    ratios = drawn[weight > 0] / weight[weight > 0]
    tail = (1.0 - CONFIDENCE) / 2.0
    low, high = np.quantile(ratios, [tail, 1.0 - tail])
    return Interval(mean=mean, ci_low=float(low), ci_high=float(high), n=n)


def poisson_rate(count: int, exposure: float) -> Interval:
    """Rate ``count / exposure`` with exact (Garwood 1936) limits; ``n`` is the count.

    low = chi2(tail; 2 count) / 2, high = chi2(1 - tail; 2 count + 2) / 2, both over the exposure.
    """
    if exposure <= 0:
        return Interval(mean=math.nan, ci_low=math.nan, ci_high=math.nan, n=count)
    tail = (1.0 - CONFIDENCE) / 2.0
    low = 0.0 if count == 0 else float(chi2.ppf(tail, 2 * count)) / 2.0
    high = float(chi2.ppf(1.0 - tail, 2 * count + 2)) / 2.0
    return Interval(mean=count / exposure, ci_low=low / exposure, ci_high=high / exposure, n=count)
