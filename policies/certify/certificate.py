"""The certificate of a policy: clauses of the meta-contract judged on episodes.

A clause passes if the upper limit of a two-sided 95 % interval lies within its threshold. The intervals are:
exact Poisson for counts over an exposure; exact binomial for shares of episodes; a bootstrap clustered by
seed for means; and an order statistic for a percentile of decisions. Harm is judged by paired differences in
every scenario, with simultaneous limits that gains do not widen
(``contracts.scoring.intervals.capped_limits``; the cap is the clause's threshold). A clause with threshold 0
is only counted: one event fails it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contracts.assess.limits import quantile_place, rate_limits
from contracts.documents import MetaContract
from contracts.documents.artifact import CertifiedClause
from contracts.documents.meta import MetaClause
from contracts.scoring.incident_measures import IncidentMeasures
from contracts.scoring.intervals import (
    Bound,
    capped_limits,
    clustered_mean,
    poisson_rate,
    simultaneous_limits,
)
from contracts.units import CONFIDENCE, SECONDS_PER_MONTH

_TAIL = (1.0 - CONFIDENCE) / 2.0
#: The method for harm, and that of earlier certificates, which counted gains in full and was too wide.
HARM, FORMER_HARM = "capped_hall", "simultaneous_t"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceShares:
    """Service of an episode. useful_ratio: of offered tokens. failed_or_exposed_ratio: of requests."""

    useful_ratio: float
    failed_or_exposed_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeEvidence:
    """Evidence of one episode. Counts of moves and turns exclude what the meta-contract exempts.

    slice_hours: slices times hours. false_switches: by the ground truth, including false quarantines.
    shed_requests: beyond the exemptions. demoted: the supervisor would have taken over.
    """

    scenario: str
    seed: int
    incident: IncidentMeasures | None
    slice_hours: float
    false_switches: int
    moves: int
    turns: int
    shed_requests: float
    offered_requests: float
    empty_ticks: int
    demoted: bool
    service: ServiceShares


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificationEvidence:
    """All evidence of a certificate. decision_ms: float64 [n], duration of a decision, one per tick.

    still: (scenario, seed) of the incidents -> service under a policy that never moves traffic.
    """

    incidents: tuple[EpisodeEvidence, ...]
    quiet: tuple[EpisodeEvidence, ...]
    decision_ms: NDArray[np.float64]  # [n], one per deciding tick
    still: Mapping[tuple[str, int], ServiceShares]

    def of(self, suite: str) -> tuple[EpisodeEvidence, ...]:
        """Episodes of "incidents" or "quiet"."""
        return self.quiet if suite == "quiet" else self.incidents


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    """A value with its upper limit (None: nothing to judge) and the observations behind it."""

    method: str
    value: float | None
    ci_high: float | None
    n: int
    worst: str | None = None  # scenario with the highest limit, if each scenario is judged separately


def judge_clauses(
    meta: MetaContract, evidence: CertificationEvidence, said: Sequence[CertifiedClause] = ()
) -> tuple[CertifiedClause, ...]:
    """Every clause that is checked offline, in the order of the document.

    said: the clauses of a certificate; they are judged again by the methods that they name.
    """
    former = {clause.id for clause in said if clause.method == FORMER_HARM}
    return tuple(
        _certified(clause, _judged(clause, evidence, FORMER_HARM if clause.id in former else HARM))
        for clause in meta.spec.clauses
        if clause.checked != "online"
    )


def _judged(clause: MetaClause, evidence: CertificationEvidence, harm: str) -> _Judged:
    """``clause`` judged on its episodes; harm: the method for harm clauses."""
    episodes, loss = evidence.of(clause.judged_on or ""), _LOSSES.get(clause.metric)
    if loss is None:
        return _METHODS[clause.metric](episodes, evidence)
    losses = _losses(episodes, evidence, loss)
    if harm == FORMER_HARM:
        return _harm(losses, harm, simultaneous_limits(losses.values, upper=True))
    return _harm(losses, harm, capped_limits(losses.values, clause.threshold))


def _certified(clause: MetaClause, judged: _Judged) -> CertifiedClause:
    assert clause.judged_on is not None
    return CertifiedClause.model_validate(
        {
            "id": clause.id,
            "metric": clause.metric,
            "judged_on": clause.judged_on,
            "method": judged.method,
            "threshold": clause.threshold,
            "value": judged.value,
            "ci_high": judged.ci_high,
            "n": judged.n,
            "worst": judged.worst,
            "passed": judged.ci_high is not None and judged.ci_high <= clause.threshold,
        }
    )


def _count(method: str, events: int, exposure: float) -> _Judged:
    if exposure <= 0.0:
        return _Judged(method=method, value=None, ci_high=None, n=0)
    rate = poisson_rate(events, exposure)
    return _Judged(method=method, value=rate.mean, ci_high=rate.ci_high, n=events)


def _moves(episodes: Sequence[EpisodeEvidence], _: CertificationEvidence) -> _Judged:
    return _count("exact_poisson", sum(e.moves for e in episodes), sum(e.slice_hours for e in episodes))


def _turns(episodes: Sequence[EpisodeEvidence], _: CertificationEvidence) -> _Judged:
    return _count("exact_poisson", sum(e.turns for e in episodes), sum(e.slice_hours for e in episodes))


def _false_switches(episodes: Sequence[EpisodeEvidence], _: CertificationEvidence) -> _Judged:
    months = sum(e.slice_hours for e in episodes) / (SECONDS_PER_MONTH / 3600.0)
    return _count("exact_poisson", sum(e.false_switches for e in episodes), months)


def _empty(episodes: Sequence[EpisodeEvidence], _: CertificationEvidence) -> _Judged:
    if not episodes:
        return _Judged(method="count", value=None, ci_high=None, n=0)
    total = sum(e.empty_ticks for e in episodes)
    return _Judged(method="count", value=float(total), ci_high=float(total), n=len(episodes))


def _lag(episodes: Sequence[EpisodeEvidence], _: CertificationEvidence) -> _Judged:
    """Censored at the horizon; incidents that were already mitigated are left out."""
    return _mean(
        "detection_lag_s", episodes, lambda e: _of(e.incident, "detection_lag_s", mitigated=math.nan)
    )


def _mttr(episodes: Sequence[EpisodeEvidence], _: CertificationEvidence) -> _Judged:
    return _mean("mttr_s", episodes, lambda e: _of(e.incident, "mttr_s"))


def _shed(episodes: Sequence[EpisodeEvidence], _: CertificationEvidence) -> _Judged:
    return _mean("shed_ratio", episodes, lambda e: e.shed_requests / max(e.offered_requests, 1.0))


def _of(incident: IncidentMeasures | None, name: str, mitigated: float | None = None) -> float:
    if incident is None:
        return math.nan
    return mitigated if mitigated is not None and incident.mitigated else float(getattr(incident, name))


def _mean(
    name: str, episodes: Sequence[EpisodeEvidence], value: Callable[[EpisodeEvidence], float]
) -> _Judged:
    """Mean over episodes, with a bootstrap clustered by seed; a single seed gives no limit."""
    scenarios = list(dict.fromkeys(e.scenario for e in episodes))
    seeds = sorted({e.seed for e in episodes})
    matrix = np.full((len(seeds), max(len(scenarios), 1)), np.nan)
    for e in episodes:
        matrix[seeds.index(e.seed), scenarios.index(e.scenario)] = value(e)
    found = clustered_mean(matrix, name=name)
    known = found.n > 0 and math.isfinite(found.ci_high)
    return _Judged(
        method="clustered_bootstrap",
        value=found.mean if found.n else None,
        ci_high=found.ci_high if known else None,
        n=found.n,
    )


def _demoted(episodes: Sequence[EpisodeEvidence], _: CertificationEvidence) -> _Judged:
    """Share of episodes, with the exact limit of Clopper and Pearson (1934)."""
    n, events = len(episodes), sum(e.demoted for e in episodes)
    if n == 0:
        return _Judged(method="exact_binomial", value=None, ci_high=None, n=0)
    share = rate_limits(events, n, 1.0 - _TAIL)
    return _Judged(method="exact_binomial", value=share.value, ci_high=share.high, n=n)


def _decision(_: Sequence[EpisodeEvidence], evidence: CertificationEvidence) -> _Judged:
    """99th percentile; its limit is the smallest order statistic that exceeds it with probability 97.5 %."""
    spent = np.sort(evidence.decision_ms)
    n = spent.size
    place = quantile_place(n, 0.99, 1.0 - _TAIL)
    if n == 0:
        return _Judged(method="order_statistic", value=None, ci_high=None, n=0)
    value = float(np.percentile(spent, 99.0))
    high = float(spent[place]) if place < n else None
    return _Judged(method="order_statistic", value=value, ci_high=high, n=n)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Losses:
    """values: loss in excess of a policy that never moves traffic; NaN if unknown."""

    scenarios: tuple[str, ...]
    values: NDArray[np.float64]  # [seeds, scenarios]


def _losses(
    episodes: Sequence[EpisodeEvidence],
    evidence: CertificationEvidence,
    loss: Callable[[ServiceShares, ServiceShares], float],
) -> _Losses:
    """``loss`` of every episode relative to a policy that never moves traffic, paired by seed."""
    scenarios = tuple(dict.fromkeys(e.scenario for e in episodes))
    seeds = sorted({e.seed for e in episodes})
    matrix = np.full((len(seeds), len(scenarios)), np.nan)
    for e in episodes:
        still = evidence.still.get((e.scenario, e.seed))
        if still is not None:
            matrix[seeds.index(e.seed), scenarios.index(e.scenario)] = loss(still, e.service)
    return _Losses(scenarios=scenarios, values=matrix)


def _harm(losses: _Losses, method: str, bounds: Sequence[Bound]) -> _Judged:
    """The worst scenario's mean, with the simultaneous ``bounds`` of all scenarios.

    If no scenario is worse, the value is 0: a gain in one scenario does not offset a loss in another.
    """
    if not bounds or not all(math.isfinite(bound.limit) for bound in bounds):
        return _Judged(method=method, value=None, ci_high=None, n=0)
    worst = max(range(len(bounds)), key=lambda place: bounds[place].limit)
    return _Judged(
        method=method,
        value=max(0.0, *(bound.mean for bound in bounds)),
        ci_high=max(0.0, bounds[worst].limit),
        n=sum(bound.n for bound in bounds),
        worst=losses.scenarios[worst],
    )


#: Missing useful tokens per offered token, and additional failed or exposed requests per offered request.
_LOSSES: dict[str, Callable[[ServiceShares, ServiceShares], float]] = {
    "useful_loss_ratio": lambda still, mine: still.useful_ratio - mine.useful_ratio,
    "failed_excess_ratio": lambda still, mine: mine.failed_or_exposed_ratio - still.failed_or_exposed_ratio,
}

_METHODS: dict[str, Callable[[Sequence[EpisodeEvidence], CertificationEvidence], _Judged]] = {
    "switch_rate_per_slice_hour": _moves,
    "oscillation_sign_changes_per_hour": _turns,
    "false_switches_per_slice_month": _false_switches,
    "detection_lag_s": _lag,
    "mttr_s": _mttr,
    "shed_ratio": _shed,
    "empty_pool_ticks": _empty,
    "decision_ms_p99": _decision,
    "demoted_episode_ratio": _demoted,
}
