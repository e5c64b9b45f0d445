"""The verdict on one clause's units: exact limits of shares, corrected limits of means."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from contracts.limits import (
    Limits,
    absolute_mean_limits,
    bootstrap_limits,
    mean_limits,
    rate_limits,
    units_needed,
)
from contracts.metrics.statistical import ece_gap
from contracts.observations import CALIBRATION_COLUMN, JUDGES

Floats = NDArray[np.float64]

_SIGNED = {column for _, column, _ in JUDGES}


class Verdict(StrEnum):
    """Outcome of one clause on one slice, or of the whole evaluation."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    NOT_MEASURED = "not_measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exceedance:
    """Units beyond the threshold: count of n, share with exact limits, and the tolerated share.

    ``tolerated`` is None where the clause is judged by its mean; the count is then information.
    """

    count: int
    units: int
    rate: Limits
    tolerated: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How one clause judges its units.

    column: what the units are. sense: +1 at most, -1 at least. tolerated: largest share of units beyond
    the threshold, None where the mean is judged. clip: values are clipped here before averaging.
    """

    column: str
    threshold: float
    sense: float
    tolerated: float | None
    clip: float
    confidence: float
    least_units: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Verdict on one slice, why, and the numbers behind it (None where there are none)."""

    verdict: Verdict
    reason: str
    judged: Limits | None = None
    exceedance: Exceedance | None = None


def judge_units(units: Floats, terms: Terms, name: str) -> Outcome:
    """Verdict on ``units`` [n]; ``name`` names the random stream of a bootstrap, where one is needed."""
    if terms.column == CALIBRATION_COLUMN:
        limits = bootstrap_limits(_calibration_gap, units, terms.confidence, name)
        return _by_mean(limits, len(units), None, terms)
    exceedance = _exceedance(units, terms)
    if terms.tolerated is not None:
        return _by_rate(exceedance, terms.tolerated, terms)
    if terms.column in _SIGNED:
        limits = absolute_mean_limits(units, terms.confidence)
    else:
        limits = mean_limits(np.minimum(units, terms.clip), terms.confidence)
    return _by_mean(limits, units.size, exceedance, terms)


def _calibration_gap(rows: Floats) -> float:
    return ece_gap(rows[:, 0], rows[:, 2], rows[:, 1] > 0.5, rows[:, 3] > 0.5)


def _exceedance(units: Floats, terms: Terms) -> Exceedance:
    beyond = int((terms.sense * units > terms.sense * terms.threshold).sum())
    rate = rate_limits(beyond, units.size, terms.confidence)
    return Exceedance(count=beyond, units=int(units.size), rate=rate, tolerated=terms.tolerated)


def _by_mean(limits: Limits, count: int, exceedance: Exceedance | None, terms: Terms) -> Outcome:
    threshold = terms.sense * terms.threshold
    best, worst = sorted((terms.sense * limits.low, terms.sense * limits.high))
    if count < terms.least_units:
        verdict, reason = Verdict.INCONCLUSIVE, f"{count} units; at least {terms.least_units} are needed"
    elif worst <= threshold:
        verdict, reason = Verdict.PASS, "the confidence limit keeps the threshold"
    elif best > threshold:
        verdict, reason = Verdict.FAIL, "the confidence limit breaks the threshold"
    else:
        verdict, reason = Verdict.INCONCLUSIVE, "the threshold lies between the confidence limits"
    return Outcome(verdict=verdict, reason=reason, judged=limits, exceedance=exceedance)


def _by_rate(exceedance: Exceedance, tolerated: float, terms: Terms) -> Outcome:
    verdict, reason = _rate_verdict(exceedance, tolerated, terms)
    return Outcome(verdict=verdict, reason=reason, judged=exceedance.rate, exceedance=exceedance)


def _rate_verdict(exceedance: Exceedance, tolerated: float, terms: Terms) -> tuple[Verdict, str]:
    if exceedance.rate.low > tolerated:
        return Verdict.FAIL, "the confidence limit of the share exceeds the tolerated one"
    if exceedance.rate.high <= tolerated:
        return Verdict.PASS, "the confidence limit of the share keeps the tolerated one"
    if tolerated == 0.0:
        enough = exceedance.units >= terms.least_units
        if enough:
            return Verdict.PASS, f"none of {exceedance.units} units exceeds"
        return Verdict.INCONCLUSIVE, f"{exceedance.units} units; at least {terms.least_units} are needed"
    needed = units_needed(tolerated, terms.confidence)
    if exceedance.units < needed:
        return (
            Verdict.INCONCLUSIVE,
            f"{exceedance.units} units; at least {needed} show a share of {tolerated:g}",
        )
    return Verdict.INCONCLUSIVE, "the tolerated share lies between the confidence limits"
