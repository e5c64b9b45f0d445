"""Samples to clause verdicts, exceedance accounting and contracted convergence.

A clause is judged on each slice it names, by the estimator its threshold was set for and no other:

* *mean*: pass if the upper confidence limit of the (clipped) mean keeps the threshold, fail if the lower
  one breaks it;
* *rate* (percentile and per-observation metrics): the same with the exact limits of the share of observations
  over the threshold; at a tolerated rate of 0 one exceedance fails, and none among enough passes;
* in between, or with too few observations, *inconclusive*; without any of that estimator, *not measured*.

The verdict of the whole is ``contracts.assess.gate``'s: what is hard or of level L3 and was not measured
leaves it inconclusive, unless it is waived by name and reason. A default slice without observations of its
own is judged on those of slices that the contract does not name, which are its traffic; where there are none,
other slices may prove that it fails and never that it passes. Contracted convergence: every hard clause
passes on every slice it names and every soft one keeps its budget; a clause that was not measured leaves it
undetermined, waived or not. Same samples, same bytes.

Nothing is filled in. Where values of a column cannot be read, a verdict stands only where it would be the
same whatever they are; else it is inconclusive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, StrEnum

import numpy as np
from numpy.typing import NDArray

from contracts.assess.gate import GateOutcome, Waiver, outcome_of, overall, refuse_unknown_waivers
from contracts.assess.limits import ConfidenceLimits
from contracts.assess.observations import EvidencePart, Observations, UnreadableValues
from contracts.assess.verdicts import (
    ClauseTerms,
    ContractVerdict,
    Exceedance,
    SliceOutcome,
    judge_observations,
)
from contracts.compiled.build import compile_contract
from contracts.compiled.contract import CompiledContract, FleetLayout
from contracts.documents.contract import Clause, KernelContract
from contracts.metrics import metric
from contracts.units import CONFIDENCE

Floats = NDArray[np.float64]

#: Below this many observations the limits of a mean are not trusted, whatever they are.
LEAST_OBSERVATIONS = 20


class Convergence(StrEnum):
    """Contracted convergence as far as these samples tell."""

    HOLDS = "holds"
    BROKEN = "broken"
    UNDETERMINED = "undetermined"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClauseVerdict:
    """One clause on one slice."""

    clause_id: str
    slice: str
    family: str  # N, S, R or O
    level: int  # severity, 1..3
    hard: bool
    metric: str
    estimator: str
    unit: str  # of the metric and the threshold
    threshold: float
    budget: float  # tolerated share of observations beyond the threshold, 0 for a hard clause
    limit: float  # what the judged number is held against: the threshold, or the tolerated share
    verdict: ContractVerdict
    reason: str
    judged: (
        ConfidenceLimits | None
    )  # clipped mean, or share of observations over the threshold; None: not measured
    exceedance: Exceedance | None
    pooled: bool  # a default slice without observations of its own, judged on those of other names
    waived: str = ""  # why it may stay undecided; empty: it may not, or it is decided


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Every clause on every slice, and what follows."""

    contract: str
    contract_sha256: str
    samples_sha256: str  # of the samples of a profile; of the log, or the logs together, where there is none
    inputs: tuple[EvidencePart, ...]  # every file that was judged
    condition: str
    split: str  # of the prompts that were looked at
    confidence: float  # one-sided
    least_observations: int
    verdict: ContractVerdict
    convergence: Convergence
    waivers: tuple[Waiver, ...]
    clauses: tuple[ClauseVerdict, ...]
    unreadable: tuple[UnreadableValues, ...] = ()  # of the columns that a clause reads

    @property
    def outcome(self) -> GateOutcome:
        """The verdict in the words of rollout tools."""
        return outcome_of(self.verdict)


def evaluate(
    contract: KernelContract,
    observations: Observations,
    *,
    confidence: float = CONFIDENCE,
    least_observations: int = LEAST_OBSERVATIONS,
    waivers: Sequence[Waiver] = (),
) -> Evaluation:
    """Judge ``observations`` against every clause of ``contract``.

    waivers: what may stay undecided. Raises DocumentError for one that names nothing of the contract.
    """
    names = [slice_.name for slice_ in contract.spec.slices]
    refuse_unknown_waivers(waivers, [clause.id for clause in contract.spec.clauses], names)
    compiled = compile_contract(contract, _layout(contract, observations))
    cases = _Cases(
        contract=contract,
        compiled=compiled,
        observations=observations,
        confidence=confidence,
        least_observations=least_observations,
    )
    clauses = tuple(
        _waived(_judge(cases, index, place), waivers)
        for index in range(len(compiled.clause_ids))
        for place in np.flatnonzero(compiled.applies[index]).tolist()
    )
    return Evaluation(
        contract=compiled.name,
        contract_sha256=compiled.sha256,
        samples_sha256=observations.sha256,
        inputs=observations.parts,
        condition=observations.condition,
        split=observations.split,
        confidence=confidence,
        least_observations=least_observations,
        verdict=overall(clauses),
        convergence=_convergence(clauses),
        waivers=tuple(waivers),
        clauses=clauses,
        unreadable=_unreadable(contract, observations),
    )


def _unreadable(contract: KernelContract, observations: Observations) -> tuple[UnreadableValues, ...]:
    read = {metric(clause.metric).column(clause.estimator) for clause in contract.spec.clauses}
    return tuple(each for each in observations.unreadable if each.column in read)


def _layout(contract: KernelContract, observations: Observations) -> FleetLayout:
    """Axes on which every clause compiles: the contract's slices, then those of the samples."""
    slices = tuple(dict.fromkeys([*(each.name for each in contract.spec.slices), *observations.slices]))
    columns = [metric(clause.metric).column(clause.estimator) for clause in contract.spec.clauses]
    return FleetLayout(
        kernels=("judged",),
        slices=slices,
        replicas=(),
        replica_kernel=np.zeros(0, dtype=np.int64),
        probe_metrics=tuple(dict.fromkeys([*columns, *observations.column_names])),
        known_good=0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cases:
    """The inputs by which every clause is judged."""

    contract: KernelContract
    compiled: CompiledContract
    observations: Observations
    confidence: float
    least_observations: int


def _judge(cases: _Cases, index: int, place: int) -> ClauseVerdict:
    clause, compiled = cases.contract.spec.clauses[index], cases.compiled
    name, terms = compiled.slices[place], _terms(cases, index)
    values, unreadable, seen_as = _values(cases, terms.column, name)
    if values is None:
        outcome = _absent(clause, cases.observations, unreadable)
    else:
        outcome = judge_observations(values, terms, f"{clause.id}/{name}", unreadable)
    if seen_as is _SeenAs.OTHERS and outcome.verdict is ContractVerdict.PASS:
        reason = f"no observations of {name} itself: {outcome.reason} on slices of other names"
        outcome = replace(outcome, verdict=ContractVerdict.INCONCLUSIVE, reason=reason)
    return ClauseVerdict(
        clause_id=clause.id,
        slice=name,
        family=clause.family,
        level=int(compiled.level[index]),
        hard=bool(compiled.hard[index]),
        metric=clause.metric,
        estimator=clause.estimator,
        unit=metric(clause.metric).unit,
        threshold=clause.threshold,
        budget=clause.budget,
        limit=clause.threshold if terms.tolerated is None else terms.tolerated,
        verdict=outcome.verdict,
        reason=outcome.reason,
        judged=outcome.judged,
        exceedance=outcome.exceedance,
        pooled=seen_as is not _SeenAs.ITSELF,
    )


def _terms(cases: _Cases, index: int) -> ClauseTerms:
    clause, compiled = cases.contract.spec.clauses[index], cases.compiled
    return ClauseTerms(
        column=metric(clause.metric).column(clause.estimator),
        threshold=clause.threshold,
        sense=float(compiled.sense[index]),
        tolerated=float(compiled.rate_limit[index]) if compiled.is_rate[index] else None,
        clip=float(compiled.clip[index]),
        confidence=cases.confidence,
        least_observations=cases.least_observations,
        indicator=metric(clause.metric).indicator,
    )


class _SeenAs(Enum):
    """Which observations count for a slice: its own; of a default slice, those of slices that the contract
    does not name, which are its traffic; or those of others, which can prove a violation and nothing else.
    """

    ITSELF = 0
    UNNAMED = 1
    OTHERS = 2


def _values(cases: _Cases, column: str, name: str) -> tuple[Floats | None, int, _SeenAs]:
    """Observations of ``column`` for slice ``name``, None where there are none, and how many more
    could not be read.
    """
    seen, slices = cases.observations, cases.contract.spec.slices
    default = any(each.default and each.name == name for each in slices)
    if name in seen.slices or not default:
        return seen.values(column, name), seen.unreadable_in(column, (name,)), _SeenAs.ITSELF
    named = {each.name for each in slices}
    if unnamed := [each for each in seen.slices if each not in named]:
        found = [values for each in unnamed if (values := seen.values(column, each)) is not None]
        lost = seen.unreadable_in(column, unnamed)
        return np.concatenate(found) if found else None, lost, _SeenAs.UNNAMED
    return seen.values(column, None), seen.unreadable_in(column, None), _SeenAs.OTHERS


def _absent(clause: Clause, observations: Observations, unreadable: int) -> SliceOutcome:
    spec = metric(clause.metric)
    if unreadable:
        reason = f"none of {unreadable} values of {spec.column(clause.estimator)} can be read"
        return SliceOutcome(verdict=ContractVerdict.INCONCLUSIVE, reason=reason)
    others = [
        estimator
        for estimator in spec.estimators
        if estimator != clause.estimator and spec.column(estimator) in observations.column_names
    ]
    reason = f"no observations of {spec.column(clause.estimator)}"
    if others:
        reason += f"; {', '.join(others)} was measured, but the threshold was set for {clause.estimator}"
    return SliceOutcome(verdict=ContractVerdict.NOT_MEASURED, reason=reason)


def _waived(judged: ClauseVerdict, waivers: Sequence[Waiver]) -> ClauseVerdict:
    """``judged`` with the reason of the waiver that covers it, where it is undecided."""
    if judged.verdict in (ContractVerdict.PASS, ContractVerdict.FAIL):
        return judged
    reasons = [each.reason for each in waivers if each.covers(judged.clause_id, judged.slice)]
    return replace(judged, waived=reasons[0]) if reasons else judged


def _convergence(clauses: tuple[ClauseVerdict, ...]) -> Convergence:
    found = {clause.verdict for clause in clauses}
    if ContractVerdict.FAIL in found:
        return Convergence.BROKEN
    return Convergence.HOLDS if found == {ContractVerdict.PASS} else Convergence.UNDETERMINED
