"""Which sources could explain a violation? The bounds of ``contracts.assess.sources`` against failed clauses.

The chain of ``contracts.assess.bounds`` turns each source's logit distance into a bound on the clause's
metric. A source whose bound lies below the violation cannot explain it alone: that is the strong statement
here; that a source *could* explain it is no proof that it did. Where none can, the violation is no numerics
of these builds: look for corrupted weights, a wrong checkpoint or a fault.

Worst-case bounds are wide, so a sharper question is asked first: is this beyond what the build itself was
certified with? Then it is a change, and only sources that change under one fingerprint can explain it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from contracts.assess.bounds import kl_bound, tv_bound
from contracts.assess.evaluate import ClauseVerdict, Evaluation
from contracts.assess.limits import mean_limits
from contracts.assess.observations import Observations
from contracts.assess.sources import SourceBound
from contracts.assess.verdicts import ContractVerdict
from contracts.metrics import metric


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateSource:
    """A source, the largest value of the clause's metric that its bound allows, and a likelier one.

    The likelier one is an estimate, not a bound: the certified value times the ratio of the source's distance
    to that of the build's own sources (squared for KL).
    """

    source: SourceBound
    metric_bound: float  # in the metric's unit
    scaled: float | None  # the estimate; None where the certified value is not at hand


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """Sources that could explain one failed clause on one slice. Numbers are in the metric's unit.

    ``certified`` is None where the build's healthy certify prompts of the slice are not at hand.
    """

    clause_id: str
    slice: str
    observed: float  # a mean's lower confidence limit; for a rate the threshold that observations exceed
    certified: float | None  # upper limit of the mean, or largest value, on healthy certify prompts
    beyond_certified: bool  # observed is more than certified
    candidates: tuple[CandidateSource, ...]  # those that could, widest bound first
    excluded: tuple[CandidateSource, ...]  # those that could not
    jointly: float  # bound of all sources together that can have changed
    explained: bool  # some source, or all together, could
    plausible: bool  # and not only by bounds that the certified drift shows to be far too wide
    reason: str


def metric_bound(column: str, distance: float, temperature: float = 1.0) -> float | None:
    """Largest value of a samples column that a logit distance allows; None where the chain gives no bound."""
    base = column.partition("@")[0]
    reach = 2.0 * distance / temperature  # |log w| is at most the full range of the difference
    if base in ("kl_mean", "kl_max", "w_log_w"):
        return float(kl_bound(distance, temperature))
    if base in ("tv_mean", "tv_max"):
        return float(tv_bound(distance, temperature))
    if base in ("linf_mean", "linf_max"):
        return distance
    if base == "abs_log_w":
        return reach
    return math.exp(min(reach, 700.0)) if base == "token_prob_error" else None


def attribute(
    evaluation: Evaluation,
    sources: tuple[SourceBound, ...],
    temperature: float = 1.0,
    certified: Observations | None = None,
) -> tuple[Attribution, ...]:
    """One attribution per failed clause and slice for whose metric the chain gives a bound.

    certified: healthy certify observations of the same build, to tell its own drift from new damage.
    """
    found = [
        _attribute(clause, sources, temperature, certified, evaluation.confidence)
        for clause in evaluation.clauses
        if clause.verdict is ContractVerdict.FAIL
    ]
    return tuple(each for each in found if each is not None)


def _attribute(
    clause: ClauseVerdict,
    sources: tuple[SourceBound, ...],
    temperature: float,
    certified: Observations | None,
    confidence: float,
) -> Attribution | None:
    column = metric(clause.metric).column(clause.estimator)
    if clause.judged is None or metric_bound(column, 0.0, temperature) is None:
        return None
    by_rate = clause.exceedance is not None and clause.exceedance.tolerated is not None
    observed = clause.threshold if by_rate else clause.judged.low
    own = _certified(certified, column, None if clause.pooled else clause.slice, by_rate, confidence)
    beyond = own is not None and observed > own
    ranked = _ranked(sources, column, temperature, own)
    eligible = tuple(source for source in sources if source.changing or not beyond)
    able = tuple(each for each in ranked if each.metric_bound >= observed and each.source in eligible)
    jointly = metric_bound(column, sum(source.distance for source in eligible), temperature) or 0.0
    return Attribution(
        clause_id=clause.clause_id,
        slice=clause.slice,
        observed=observed,
        certified=own,
        beyond_certified=beyond,
        candidates=able,
        excluded=tuple(each for each in ranked if each not in able),
        jointly=jointly,
        explained=bool(able) or jointly >= observed,
        plausible=_plausible(able, observed, beyond),
        reason=_reason(able, observed, beyond, jointly >= observed),
    )


def _ranked(
    sources: tuple[SourceBound, ...], column: str, temperature: float, certified: float | None
) -> list[CandidateSource]:
    own = sum(source.distance for source in sources if not source.changing)
    bounded = [
        CandidateSource(
            source=source,
            metric_bound=metric_bound(column, source.distance, temperature) or 0.0,
            scaled=_scaled(column, certified, source.distance, own),
        )
        for source in sources
    ]
    return sorted(bounded, key=lambda c: (not c.source.visible, -c.source.distance, c.source.source))


def _scaled(column: str, certified: float | None, distance: float, own: float) -> float | None:
    if certified is None or not (0.0 < own < math.inf and distance < math.inf):
        return None
    ratio, base = distance / own, column.partition("@")[0]
    if base == "token_prob_error":
        return 1.0 + ratio * (certified - 1.0)
    return certified * (ratio**2 if base in ("kl_mean", "kl_max", "w_log_w") else ratio)


def _plausible(able: tuple[CandidateSource, ...], observed: float, beyond: bool) -> bool:
    return any(not beyond or each.scaled is None or each.scaled >= observed for each in able)


def _certified(
    certified: Observations | None, column: str, slice_name: str | None, by_rate: bool, confidence: float
) -> float | None:
    values = None if certified is None else certified.values(column, slice_name)
    if values is None or values.size < 2:
        return None
    return float(values.max()) if by_rate else mean_limits(values, confidence).high


def _reason(able: tuple[CandidateSource, ...], observed: float, beyond: bool, together: bool) -> str:
    prefix = "beyond the drift this build was certified with, so something changed; " if beyond else ""
    advice = "suspect corrupted weights, a wrong checkpoint or a fault"
    unknown = [each.source.source for each in able if each.source.unknown]
    if unknown:
        message = ", ".join(unknown)
        return f"{prefix}unknown: the fingerprint does not say enough to blame or exclude {message}"
    if _plausible(able, observed, beyond):
        return f"{prefix}{able[0].source.source} alone could explain it: {able[0].source.detail}"
    if able:
        likely = max(each.scaled or 0.0 for each in able)
        name = able[0].source.source
        message = f"the bound of {name} allows it, but at the certified scale it gives {likely:.2g}"
        return f"{prefix}{message}: {advice}"
    if together:
        return f"{prefix}no source alone could explain it; all together could"
    return f"{prefix}no known source could explain it: {advice}"
