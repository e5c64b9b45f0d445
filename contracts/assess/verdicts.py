"""The verdict on one clause's observations: exact limits of shares, corrected limits of means."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from contracts.assess.limits import (
    ConfidenceLimits,
    absolute_mean_limits,
    bootstrap_limits,
    mean_limits,
    observations_needed,
    rate_limits,
)
from contracts.assess.observations import CALIBRATION_COLUMN, JUDGES
from contracts.metrics.columns import domain_of
from contracts.metrics.statistical import ece_gap

Floats = NDArray[np.float64]

_SIGNED = {column for _, column, _ in JUDGES}


class ContractVerdict(StrEnum):
    """Outcome of one clause on one slice, or of the whole evaluation."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    NOT_MEASURED = "not_measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exceedance:
    """Observations beyond the threshold."""

    count: int  # beyond the threshold
    observations: int  # of so many
    rate: ConfidenceLimits  # their share
    tolerated: float | None  # largest share; None where the mean is judged and the count is information


@dataclass(frozen=True, slots=True, kw_only=True)
class ClauseTerms:
    """How one clause judges its observations."""

    column: str  # of the samples: what the observations are
    threshold: float  # in the column's unit
    sense: float  # +1 at most, -1 at least
    tolerated: float | None  # largest share of observations beyond the threshold; None: the mean is judged
    clip: float  # values are clipped here before averaging, inf: not
    confidence: float  # one-sided
    least_observations: int  # fewer say nothing
    indicator: bool = False  # observations are 0 or 1: the mean is a share, with exact limits


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceOutcome:
    """Verdict on one slice, why, and the numbers behind it."""

    verdict: ContractVerdict
    reason: str
    judged: ConfidenceLimits | None = None  # None: not measured
    exceedance: Exceedance | None = None


def judge_observations(values: Floats, terms: ClauseTerms, name: str, unreadable: int = 0) -> SliceOutcome:
    """Verdict on ``values`` [n]; ``name`` names the random stream of a bootstrap, where one is needed.

    unreadable: so many more were looked at and gave no usable number. A verdict stands where it would be the
    same had each of them been the worst that the column can have (for a pass) or the best (for a fail).
    """
    outcome = _judged(values, terms, name)
    if not unreadable or outcome.verdict is ContractVerdict.INCONCLUSIVE:
        return outcome
    count = f"{unreadable} of {values.size + unreadable} values cannot be read"
    filled = np.concatenate([values, np.full(unreadable, _extreme(terms, outcome.verdict))])
    known = terms.column not in _SIGNED and (terms.tolerated is not None or bool(np.isfinite(filled).all()))
    if known and _judged(filled, terms, name).verdict is outcome.verdict:
        return replace(outcome, reason=f"{outcome.reason}, whatever the others are: {count}")
    return replace(
        outcome, verdict=ContractVerdict.INCONCLUSIVE, reason=f"{count}, too many to judge without"
    )


def _extreme(terms: ClauseTerms, verdict: ContractVerdict) -> float:
    """The value most against ``verdict`` that the clause's column can have; infinite if it has no limit."""
    domain = domain_of(terms.column)
    high = (terms.sense > 0.0) == (verdict is ContractVerdict.PASS)
    return (
        min(domain.high, terms.clip) if high and terms.tolerated is None else (domain.low, domain.high)[high]
    )


def _judged(values: Floats, terms: ClauseTerms, name: str) -> SliceOutcome:
    """The verdict on what could be read."""
    if terms.column == CALIBRATION_COLUMN:
        limits = bootstrap_limits(_calibration_gap, values, terms.confidence, name)
        return _by_mean(limits, len(values), None, terms)
    exceedance = _exceedance(values, terms)
    if terms.tolerated is not None:
        return _by_rate(exceedance, terms.tolerated, terms)
    if terms.indicator and np.isin(values, (0.0, 1.0)).all():
        return _by_share(values, exceedance, terms)
    if terms.column in _SIGNED:
        limits = absolute_mean_limits(values, terms.confidence)
    else:
        limits = mean_limits(np.minimum(values, terms.clip), terms.confidence)
    return _by_mean(limits, values.size, exceedance, terms)


def _calibration_gap(rows: Floats) -> float:
    return ece_gap(rows[:, 0], rows[:, 2], rows[:, 1] > 0.5, rows[:, 3] > 0.5)


def _exceedance(values: Floats, terms: ClauseTerms) -> Exceedance:
    beyond = int((terms.sense * values > terms.sense * terms.threshold).sum())
    rate = rate_limits(beyond, values.size, terms.confidence)
    return Exceedance(count=beyond, observations=int(values.size), rate=rate, tolerated=terms.tolerated)


def _by_mean(
    limits: ConfidenceLimits, count: int, exceedance: Exceedance | None, terms: ClauseTerms
) -> SliceOutcome:
    threshold = terms.sense * terms.threshold
    best, worst = sorted((terms.sense * limits.low, terms.sense * limits.high))
    if count < terms.least_observations:
        verdict, reason = ContractVerdict.INCONCLUSIVE, _too_few(count, terms.least_observations)
    elif worst <= threshold:
        verdict, reason = ContractVerdict.PASS, "the confidence limit keeps the threshold"
    elif best > threshold:
        verdict, reason = ContractVerdict.FAIL, "the confidence limit breaks the threshold"
    else:
        verdict, reason = ContractVerdict.INCONCLUSIVE, "the threshold lies between the confidence limits"
    return SliceOutcome(verdict=verdict, reason=reason, judged=limits, exceedance=exceedance)


def _by_share(values: Floats, exceedance: Exceedance, terms: ClauseTerms) -> SliceOutcome:
    """The mean of 0/1 observations is a share, whose limits are exact for any number of observations."""
    ones, count, most = int(values.sum()), int(values.size), min(1.0, terms.clip)
    share, at_most = terms.threshold / most, terms.sense > 0.0
    bad, tolerated = (ones, share) if at_most else (count - ones, 1.0 - share)
    worse = Exceedance(
        count=bad,
        observations=count,
        rate=rate_limits(bad, count, terms.confidence),
        tolerated=tolerated,
    )
    verdict, reason = _rate_verdict(worse, tolerated, terms)
    found = rate_limits(ones, count, terms.confidence)
    limits = ConfidenceLimits(value=most * found.value, low=most * found.low, high=most * found.high)
    return SliceOutcome(verdict=verdict, reason=reason, judged=limits, exceedance=exceedance)


def _by_rate(exceedance: Exceedance, tolerated: float, terms: ClauseTerms) -> SliceOutcome:
    verdict, reason = _rate_verdict(exceedance, tolerated, terms)
    return SliceOutcome(verdict=verdict, reason=reason, judged=exceedance.rate, exceedance=exceedance)


def _rate_verdict(
    exceedance: Exceedance, tolerated: float, terms: ClauseTerms
) -> tuple[ContractVerdict, str]:
    if exceedance.rate.low > tolerated:
        return ContractVerdict.FAIL, "the confidence limit of the share exceeds the tolerated one"
    if exceedance.rate.high <= tolerated:
        return ContractVerdict.PASS, "the confidence limit of the share keeps the tolerated one"
    if tolerated == 0.0:
        enough = exceedance.observations >= terms.least_observations
        if enough:
            return ContractVerdict.PASS, f"none of {exceedance.observations} observations exceeds"
        return ContractVerdict.INCONCLUSIVE, _too_few(exceedance.observations, terms.least_observations)
    needed = observations_needed(tolerated, terms.confidence)
    if exceedance.observations < needed:
        return ContractVerdict.INCONCLUSIVE, _too_few_for(exceedance.observations, needed, tolerated)
    return ContractVerdict.INCONCLUSIVE, "the tolerated share lies between the confidence limits"


def _too_few(count: int, least: int) -> str:
    return f"{count} observations; at least {least} are needed"


def _too_few_for(count: int, needed: int, share: float) -> str:
    return f"{count} observations; at least {needed} show a share of {share:g}"
