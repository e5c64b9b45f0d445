"""Rules of a ``KernelContract`` that no single field can state."""

from __future__ import annotations

from collections.abc import Iterator

from contracts.documents.contract import Clause, ContractSpec
from contracts.errors import KeyPath
from contracts.metrics import METRICS, PASSIVE_COLUMNS, JudgedBy, MetricSpec, UnknownMetricError, metric
from contracts.rules.breach import Breach, repeated_names, unknown_name
from contracts.telemetry import HISTOGRAM_EDGES_MS, Source

#: Metrics with thresholds of at least 1: a multiplicative error is at least 1 by definition, and a step time
#: ratio of 1 is the certified speed. Thresholds of every other ratio are at most 1.
_AT_LEAST_ONE = ("token_prob_error", "step_time_ratio")
_INDICATORS = (Source.FINGERPRINT, Source.TRACE_FIELDS)


def contract_breaches(spec: ContractSpec) -> Iterator[Breach]:
    """Broken rules of one contract, paths from its spec."""
    yield from repeated_names([slice_.name for slice_ in spec.slices], ("slices",), "name")
    yield from _defaults(spec)
    yield from repeated_names([clause.id for clause in spec.clauses], ("clauses",), "id")
    known = [slice_.name for slice_ in spec.slices]
    for index, clause in enumerate(spec.clauses):
        path: KeyPath = ("clauses", index)
        yield from _scope(clause, known, path)
        yield from _judgement(clause, path)
    yield from _escalation(spec)
    yield from _assumptions(spec)


def _defaults(spec: ContractSpec) -> Iterator[Breach]:
    defaults = [slice_.name for slice_ in spec.slices if slice_.default]
    if len(defaults) != 1:
        yield Breach(
            path=("slices",),
            expected="exactly one slice with default: true",
            actual=", ".join(defaults) or "none",
            next_step="requests with a missing or unknown header go there; mark one",
        )


def _scope(clause: Clause, known: list[str], path: KeyPath) -> Iterator[Breach]:
    names = clause.slices or ()
    for index, name in enumerate(names):
        yield from unknown_name(name, known, (*path, "slices", index), "contract's slices")
    yield from repeated_names(names, (*path, "slices"), None)


def _judgement(clause: Clause, path: KeyPath) -> Iterator[Breach]:
    if clause.metric not in METRICS:
        yield _unknown_metric(clause, path)
        return
    spec = METRICS[clause.metric]
    if clause.estimator not in spec.estimators:
        known = " or ".join(spec.estimators)
        yield Breach(
            path=(*path, "estimator"),
            expected=f"{known} for {clause.metric}",
            actual=clause.estimator,
            next_step="a clause is judged only by the estimator its threshold was set for",
        )
    if clause.unit is not None and clause.unit != spec.unit:
        hint = "convert the threshold to that unit"
        yield Breach(path=(*path, "unit"), expected=spec.unit, actual=clause.unit, next_step=hint)
    yield from _threshold(clause, spec, path)
    yield from _rates(clause, spec, path)
    yield from _passive(clause, spec, path)
    yield from _clip(clause, spec, path)


def _unknown_metric(clause: Clause, path: KeyPath) -> Breach:
    try:
        metric(clause.metric)
        hint = "name a registered metric"
    except UnknownMetricError as error:
        hint = str(error).partition("; ")[2] or "name a registered metric"
    return Breach(
        path=(*path, "metric"), expected="a registered metric", actual=repr(clause.metric), next_step=hint
    )


def threshold_limits(spec: MetricSpec) -> tuple[float, float]:
    """Smallest and largest meaningful threshold of ``spec``."""
    if spec.name in _AT_LEAST_ONE:
        return 1.0, float("inf")
    if spec.source is Source.LATENCY:
        return 0.0, HISTOGRAM_EDGES_MS[-1]
    return 0.0, 1.0 if spec.unit in ("ratio", "probability") else float("inf")


def _threshold(clause: Clause, spec: MetricSpec, path: KeyPath) -> Iterator[Breach]:
    low, high = threshold_limits(spec)
    vacuous = spec.source in _INDICATORS and clause.threshold >= 1.0
    if low <= clause.threshold <= high and not vacuous:
        return
    if vacuous:
        expected, hint = "a value < 1", "it counts mismatches, one per observation; write 0"
    else:
        expected = f"a value from {low:g} to {high:g} {spec.unit}"
        hint = f"{spec.name} lies in this range; correct the value or its unit"
    yield Breach(path=(*path, "threshold"), expected=expected, actual=f"{clause.threshold:g}", next_step=hint)


def _passive(clause: Clause, spec: MetricSpec, path: KeyPath) -> Iterator[Breach]:
    """Breaches if a clause on answers to users is hard or above L1.

    User traffic changes as well as kernels, and a kernel without traffic yields no sample to clear an alarm.
    """
    if not set(spec.columns) & set(PASSIVE_COLUMNS):
        return
    hint = "users' own answers inform; let a probe that knows what is right move traffic"
    if clause.level != "L1":
        expected = f"L1 for {spec.name}"
        yield Breach(path=(*path, "level"), expected=expected, actual=clause.level, next_step=hint)
    if clause.budget == 0.0:
        expected = f"a budget above 0 for {spec.name}"
        yield Breach(path=(*path, "budget"), expected=expected, actual="0", next_step=hint)


def _rates(clause: Clause, spec: MetricSpec, path: KeyPath) -> Iterator[Breach]:
    needs_null_rate = spec.judgement is JudgedBy.PER_OBSERVATION and clause.budget == 0.0
    if needs_null_rate and clause.null_rate is None:
        yield Breach(
            path=(*path, "null_rate"),
            expected="null_rate for a hard clause on single observations",
            actual="nothing",
            next_step="write its certified upper limit; 0.0 alarms at the first observation beyond it",
        )
    if not needs_null_rate and clause.null_rate is not None:
        hint = "leave it out: the budget, the percentile or the mean says how much is tolerated"
        actual = f"{clause.null_rate:g}"
        yield Breach(path=(*path, "null_rate"), expected="no null_rate here", actual=actual, next_step=hint)
    if spec.rate_limit is not None and clause.budget > spec.rate_limit + 1e-9:
        yield Breach(
            path=(*path, "budget"),
            expected=f"at most {spec.rate_limit:g}, the share that {spec.name} leaves",
            actual=f"{clause.budget:g}",
            next_step="lower it, or name a lower percentile",
        )


def _clip(clause: Clause, spec: MetricSpec, path: KeyPath) -> Iterator[Breach]:
    if clause.clip is None:
        return
    place = (*path, "clip")
    if spec.judgement is not JudgedBy.MEAN:
        hint = f"{spec.name} is judged by a rate; remove it"
        yield Breach(
            path=place, expected="clip on mean metrics only", actual=f"{clause.clip:g}", next_step=hint
        )
    elif clause.clip <= clause.threshold:
        hint = "a clipped mean could never pass the threshold; write a larger bound"
        expected = f"a value > the threshold {clause.threshold:g}"
        yield Breach(path=place, expected=expected, actual=f"{clause.clip:g}", next_step=hint)


def _escalation(spec: ContractSpec) -> Iterator[Breach]:
    escalation = spec.escalation
    if escalation.guard_threshold >= escalation.fallback_threshold:
        yield Breach(
            path=("escalation", "fallback_threshold"),
            expected=f"a value > guard_threshold {escalation.guard_threshold:g}",
            actual=f"{escalation.fallback_threshold:g}",
            next_step="guard comes before fallback; swap or raise it",
        )
    keys = [f"{item.family} {item.level}" for item in escalation.refinements]
    yield from repeated_names(keys, ("escalation", "refinements"), None)


def _assumptions(spec: ContractSpec) -> Iterator[Breach]:
    given = spec.assumptions
    if given is None:
        return
    if given.reward_min >= given.reward_max:
        expected = f"a value > reward_min {given.reward_min:g}"
        hint = "swap them, or state the reward's true range"
        path: KeyPath = ("assumptions", "reward_max")
        yield Breach(path=path, expected=expected, actual=f"{given.reward_max:g}", next_step=hint)
    if given.temperature != spec.temperature:
        expected = f"the contract's temperature {spec.temperature:g}"
        hint = "the bounds hold at one temperature; make the two equal"
        path = ("assumptions", "temperature")
        yield Breach(path=path, expected=expected, actual=f"{given.temperature:g}", next_step=hint)
