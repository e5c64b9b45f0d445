"""Which sources could explain a violation? The bounds of ``contracts.sources`` against failed clauses.

The chain of ``contracts.bounds`` turns each source's logit distance into a bound on the clause's metric. A
source whose bound lies below the violation cannot explain it alone: that is the strong statement here;
that a source *could* explain it is no proof that it did. Where none can, the violation is no numerics of
these builds: look for corrupted weights, a wrong checkpoint or a fault.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from contracts.bounds import kl_bound, tv_bound
from contracts.evaluate import ClauseVerdict, Evaluation
from contracts.metrics import metric
from contracts.sources import CERTIFIED, SourceBound
from contracts.verdicts import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A source and the largest value of the clause's metric that its bound allows."""

    source: SourceBound
    metric_bound: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """Sources that could explain one failed clause, most plausible first; ``excluded`` could not alone.

    observed: for a mean its lower confidence limit, for a rate the threshold that units exceed.
    jointly: bound of all sources together. explained: some source, or all together, could.
    """

    clause_id: str
    slice: str
    observed: float
    candidates: tuple[Candidate, ...]
    excluded: tuple[Candidate, ...]
    jointly: float
    explained: bool
    reason: str


def metric_bound(column: str, distance: float, temperature: float = 1.0) -> float | None:
    """Largest value of a samples column that a logit distance allows; None where the chain says nothing."""
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
    evaluation: Evaluation, sources: tuple[SourceBound, ...], temperature: float = 1.0
) -> tuple[Attribution, ...]:
    """One attribution per failed clause and slice on whose metric the chain has something to say."""
    found = [
        _attribute(clause, sources, temperature)
        for clause in evaluation.clauses
        if clause.verdict is Verdict.FAIL
    ]
    return tuple(each for each in found if each is not None)


def _attribute(
    clause: ClauseVerdict, sources: tuple[SourceBound, ...], temperature: float
) -> Attribution | None:
    column = metric(clause.metric).column(clause.estimator)
    if clause.judged is None or metric_bound(column, 0.0, temperature) is None:
        return None
    by_rate = clause.exceedance is not None and clause.exceedance.tolerated is not None
    observed = clause.threshold if by_rate else clause.judged.low
    bounded = [
        Candidate(source=source, metric_bound=metric_bound(column, source.distance, temperature) or 0.0)
        for source in sources
    ]
    ranked = sorted(bounded, key=lambda c: (not c.source.visible, -c.source.distance, c.source.source))
    able = tuple(each for each in ranked if each.metric_bound >= observed)
    jointly = metric_bound(column, sum(source.distance for source in sources), temperature) or 0.0
    return Attribution(
        clause_id=clause.clause_id,
        slice=clause.slice,
        observed=observed,
        candidates=able,
        excluded=tuple(each for each in ranked if each.metric_bound < observed),
        jointly=jointly,
        explained=bool(able) or jointly >= observed,
        reason=_reason(able, ranked, jointly >= observed),
    )


def _reason(able: tuple[Candidate, ...], ranked: list[Candidate], together: bool) -> str:
    certified = any(each.source.source == CERTIFIED for each in ranked)
    beyond = certified and all(each.source.source != CERTIFIED for each in able)
    prefix = "beyond the drift this build was certified with; " if beyond else ""
    if able:
        return f"{prefix}{able[0].source.source} alone could explain it: {able[0].source.detail}"
    if together:
        return f"{prefix}no source alone could explain it; all together could"
    return f"{prefix}no known source could: suspect corrupted weights, a wrong checkpoint or a fault"
