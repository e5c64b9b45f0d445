"""The metric registry: which metrics a clause may name, and how each is judged.

A metric is registered by decorating the function that defines it; one function may carry several
metrics (``kl``, ``kl_mean`` and ``kl_p99`` are three judgements of one number). Looking up an unknown
name fails with a list of known names. Must not import anything of a world (engines, HTTP, clocks).
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import TypeVar

from contracts.errors import SelvageError
from contracts.plugins import Registry
from contracts.telemetry import Source

Function = TypeVar("Function", bound=Callable[..., object])


class JudgedBy(StrEnum):
    """How one number per observation becomes a verdict (see ``contracts.compiled.contract``)."""

    MEAN = "mean"  # mean <= threshold
    PERCENTILE = "percentile"  # rate of 1{value > threshold} <= 1 - XX / 100
    PER_OBSERVATION = "per_observation"  # rate of 1{value > threshold} <= rho, or <= null rate when rho = 0


#: Judgement of a mean of observations that are 0 or 1, for which exact limits exist.
SHARE = "share"


class Sense(StrEnum):
    """Which side of the threshold is good."""

    AT_MOST = "at_most"
    AT_LEAST = "at_least"


class Estimator(StrEnum):
    """How a value was computed; a clause is judged only by the estimator its threshold was set for."""

    FULL_VOCAB = "full_vocab"  # exact expectation over the vocabulary
    TOP_K = "top_k"  # returned top-k and a rest bucket: a lower bound
    SAMPLED = "sampled"  # at tokens drawn from the candidate: unbiased, noisy
    NONE = "none"  # not a distance of distributions


class UnknownMetricError(SelvageError, KeyError):
    """A clause named a metric or estimator that is not registered."""

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSpec:
    """One registered metric."""

    name: str  # what a clause writes
    family: str  # N, S, R or O
    unit: str  # of value and threshold
    judgement: JudgedBy  # how observations are judged
    percentile: float | None  # XX of ``pXX``, else None
    sense: Sense  # the good side of the threshold
    estimators: tuple[str, ...]
    columns: tuple[str, ...]  # per estimator, of the samples file; of distances "<column>@<estimator>"
    source: Source  # telemetry that feeds it online; ``OFFLINE``: judged by ``evaluate`` only
    indicator: bool  # an observation is 0 or 1 by definition, so its share has exact limits
    summary: str  # one line of text for people

    def column(self, estimator: str) -> str:
        """Samples column of ``estimator``; UnknownMetricError lists the metric's estimators."""
        if estimator not in self.estimators:
            known = ", ".join(self.estimators)
            raise UnknownMetricError(f"metric {self.name} has no estimator {estimator!r}; it has: {known}")
        return self.columns[self.estimators.index(estimator)]

    @property
    def rate_limit(self) -> float | None:
        """Largest share of observations beyond the threshold, for a percentile metric; None otherwise."""
        return None if self.percentile is None else 1.0 - self.percentile / 100.0


_METRICS: Registry[MetricSpec] = Registry("selvage_fleet.metrics")

#: Registered metrics by name, in the order of registration; plug-ins load when one of theirs is looked up.
METRICS: Mapping[str, MetricSpec] = MappingProxyType(_METRICS)


def register_metric(
    name: str,
    *,
    family: str,
    unit: str,
    columns: Mapping[str, str],
    judgement: str = "mean",
    sense: str = "at_most",
    source: Source = Source.PROBE,
) -> Callable[[Function], Function]:
    """Register the decorated function as the definition of metric ``name``.

    ``judgement`` is ``mean``, ``share`` (a mean of observations that are 0 or 1), ``per_observation`` or
    ``percentile(XX)``; ``columns`` maps estimator to column, and its keys are the estimators. The function's
    first docstring line becomes the summary.
    A name may be registered once; ValueError on a second registration.
    """
    kind, percentile = _parse_judgement(judgement)
    if family not in ("N", "S", "R", "O"):
        raise ValueError(f"metric {name}: family must be N, S, R or O, got {family!r}")

    def keep(function: Function) -> Function:
        spec = MetricSpec(
            name=name,
            family=family,
            unit=unit,
            judgement=kind,
            percentile=percentile,
            sense=Sense(sense),
            estimators=tuple(str(Estimator(estimator)) for estimator in columns),
            columns=tuple(columns.values()),
            source=source,
            indicator=judgement == SHARE,
            summary=(function.__doc__ or "").strip().split("\n")[0],
        )
        _METRICS.register(name, spec)
        return function

    return keep


def _parse_judgement(text: str) -> tuple[JudgedBy, float | None]:
    if text.startswith("percentile(") and text.endswith(")"):
        share = float(text[len("percentile(") : -1])
        if not 0.0 < share < 100.0:
            raise ValueError(f"percentile must lie between 0 and 100, got {share}")
        return JudgedBy.PERCENTILE, share
    return JudgedBy.MEAN if text == SHARE else JudgedBy(text), None


def metric(name: str) -> MetricSpec:
    """The registered metric ``name``; UnknownMetricError lists close names, or all of them."""
    if name in _METRICS:
        return _METRICS[name]
    names = [*_METRICS, *_METRICS.plugins]
    close = difflib.get_close_matches(name, names, n=3)
    hint = f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(names)}"
    raise UnknownMetricError(f"unknown metric {name!r}; {hint}")
