"""Rules of the documents about policies: meta-contract, route, artefact, suite."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from contracts.documents.artifact import ArtifactSpec, Certificate, CertifiedClause
from contracts.documents.meta import MetaClause, MetaSpec
from contracts.documents.route import Freeze, RoutePolicySpec
from contracts.documents.suite import SuiteScenario, SuiteSpec
from contracts.errors import KeyPath
from contracts.rules.breach import Breach, prefixed, repeated_names
from contracts.rules.scenario import fault_breaches

_LOWER_LIMITS = ("dwell_s",)
#: Prefix of the name of the configuration that a RoutePolicy defines.
_ROUTE = "route-policy-"
#: Online remedies of the controller by metric; metrics known only from ground truth have none.
_REMEDIES: dict[str, tuple[str, ...]] = {
    "switch_rate_per_slice_hour": ("demote",),
    "weight_move_per_tick": ("clamp",),
    "dwell_s": ("hold",),
    "oscillation_sign_changes_per_hour": ("demote",),
    "shed_ratio": ("demote",),
    "empty_pool_ticks": ("clamp",),
    "ejected_ratio": ("clamp",),
    "fleet_ejected_ratio": ("demote",),
    "decision_ms_p99": ("demote",),
    "telemetry_age_s": ("hold",),
    "telemetry_age_before_fallback_s": ("demote",),
    "new_kernel_traffic_ratio": ("clamp",),
    "useful_loss_ratio": ("demote",),
}


def meta_breaches(spec: MetaSpec) -> Iterator[Breach]:
    """Broken rules of one meta-contract, paths from its spec."""
    yield from repeated_names([clause.id for clause in spec.clauses], ("clauses",), "id")
    yield from repeated_names([clause.metric for clause in spec.clauses], ("clauses",), "metric")
    for index, clause in enumerate(spec.clauses):
        yield from _meta_clause(clause, ("clauses", index))
        yield from _judgeable(clause, ("clauses", index))


def _meta_clause(clause: MetaClause, path: KeyPath) -> Iterator[Breach]:
    if clause.metric.endswith("_ratio") and clause.threshold > 1.0:
        actual = f"{clause.threshold:g}"
        hint = "a ratio is a share of one; write 0.05 for 5 %"
        yield Breach(path=(*path, "threshold"), expected="at most 1", actual=actual, next_step=hint)
    wanted = "at_least" if clause.metric in _LOWER_LIMITS else "at_most"
    if clause.sense != wanted:
        hint = f"{clause.metric} is good on the other side"
        yield Breach(path=(*path, "sense"), expected=wanted, actual=clause.sense, next_step=hint)
    if clause.checked == "online" and clause.on_violation == "refuse_artifact":
        hint = "an artefact is refused offline; say what the supervisor does"
        place = (*path, "on_violation")
        expected = "clamp, hold or demote for an online clause"
        yield Breach(path=place, expected=expected, actual=clause.on_violation, next_step=hint)


def _judgeable(clause: MetaClause, path: KeyPath) -> Iterator[Breach]:
    """Breaches where a clause's suite or remedy does not fit the way its metric is checked."""
    offline, named = clause.checked != "online", clause.judged_on is not None
    if offline != named:
        expected = "incidents or quiet" if offline else "nothing"
        hint = "an offline value needs a suite; an online one has none"
        actual = clause.judged_on or "nothing"
        yield Breach(path=(*path, "judged_on"), expected=expected, actual=actual, next_step=hint)
    remedies = _REMEDIES.get(clause.metric, ())
    if clause.checked != "offline" and clause.on_violation not in remedies:
        expected = " or ".join(remedies) or "checked: offline"
        hint = "the controller can do nothing else about it" if remedies else "only the truth knows it"
        place = (*path, "on_violation")
        yield Breach(path=place, expected=expected, actual=clause.on_violation, next_step=hint)


def artifact_breaches(spec: ArtifactSpec) -> Iterator[Breach]:
    """Broken rules of one artefact. An artefact without a certificate is valid, but no route accepts it."""
    if spec.certificate is not None:
        yield from prefixed(("certificate",), certificate_breaches(spec.certificate))


def certificate_breaches(certificate: Certificate) -> Iterator[Breach]:
    """Breaches of a certificate that fails, or whose verdicts contradict its numbers."""
    for index, clause in enumerate(certificate.clauses):
        kept = clause.ci_high is not None and clause.ci_high <= clause.threshold
        if clause.passed and not kept:
            yield Breach(
                path=("clauses", index, "passed"),
                expected=f"false: the limit {clause.ci_high} is not within {clause.threshold:g}",
                actual="true",
                next_step="certify again; a certificate is not edited",
            )
    failed = [clause for clause in certificate.clauses if not clause.passed]
    if failed or not certificate.passed:
        yield Breach(
            path=("passed",),
            expected="a passing certificate",
            actual=f"failed: {', '.join(clause.id for clause in failed) or 'the suite as a whole'}",
            next_step=_until_it_passes(failed),
        )


def _until_it_passes(failed: Sequence[CertifiedClause]) -> str:
    """Next step for failed clauses: more seeds if only their upper limits exceed the thresholds."""
    within = [clause.value is not None and clause.value <= clause.threshold for clause in failed]
    if failed and all(within):
        return "certify with more seeds: every value keeps its threshold, only its upper limit does not yet"
    return "train or tune until the meta-contract's suite passes"


def suite_breaches(spec: SuiteSpec) -> Iterator[Breach]:
    """Broken rules of one suite, paths from its spec."""
    yield from repeated_names([scenario.name for scenario in spec.scenarios], ("scenarios",), "name")
    yield from repeated_names(spec.policies, ("policies",), None)
    yield from _fewer_seeds(spec)
    for index, scenario in enumerate(spec.scenarios):
        path: KeyPath = ("scenarios", index)
        yield from _suite_scenario(scenario, path, spec)
        for place, fault in enumerate(scenario.faults):
            yield from fault_breaches(fault, (*path, "faults", place), None, None)


def _fewer_seeds(spec: SuiteSpec) -> Iterator[Breach]:
    """Breaches where ``fewer_seeds`` names a policy that the suite does not run.

    Policies of a RoutePolicy are not checked: their names are known only after that document is read.
    """
    for index, name in enumerate(() if spec.fewer_seeds is None else spec.fewer_seeds.policies):
        if name not in spec.policies and (spec.route_policy is None or not name.startswith(_ROUTE)):
            yield Breach(
                path=("fewer_seeds", "policies", index),
                expected=f"one of policies, or {_ROUTE}NAME",
                actual=name,
                next_step="correct the spelling, or add it to policies",
            )


def _suite_scenario(scenario: SuiteScenario, path: KeyPath, spec: SuiteSpec) -> Iterator[Breach]:
    if scenario.uri is None and scenario.base is None and spec.base is None:
        hint = "name its file, or give the suite a base"
        yield Breach(path=(*path, "uri"), expected="a uri or a base", actual="neither", next_step=hint)
    instead = (scenario.base, scenario.rate_rps, scenario.scrape_loss_ratio)
    overrides = scenario.faults or scenario.changes or scenario.rate_factor != 1.0
    if scenario.uri is not None and (overrides or any(given is not None for given in instead)):
        hint = "overrides change the base; put them into the file, or drop uri"
        yield Breach(path=(*path, "uri"), expected="no overrides", actual="uri and overrides", next_step=hint)
    if scenario.rate_rps is not None and scenario.rate_factor != 1.0:
        hint = "drop one of them"
        yield Breach(
            path=(*path, "rate_rps"), expected="no rate_rps beside rate_factor", actual="both", next_step=hint
        )
    if scenario.control and scenario.faults:
        hint = "a control has ordinary change only; drop the faults or control"
        yield Breach(path=(*path, "faults"), expected="none", actual="a fault in a control", next_step=hint)


#: Tolerance of the sum of a row's weights around 1.
SUM_TOLERANCE = 1e-6


def route_breaches(spec: RoutePolicySpec) -> Iterator[Breach]:
    """Broken rules of one route policy, paths from its spec."""
    if spec.freeze is not None:
        yield from prefixed(("freeze",), _freeze(spec.freeze))


def _freeze(freeze: Freeze) -> Iterator[Breach]:
    try:
        datetime.strptime(freeze.until, "%Y-%m-%dT%H:%M:%S%z")
    except ValueError:
        hint = "write it as 2030-01-31T18:00:00Z"
        yield Breach(path=("until",), expected="an instant in UTC", actual=freeze.until, next_step=hint)
    rows = freeze.table or ()
    yield from repeated_names([row.slice for row in rows], ("table",), "slice")
    for index, row in enumerate(rows):
        yield from repeated_names([one.kernel for one in row.weights], ("table", index, "weights"), "kernel")
        total = sum(one.weight for one in row.weights)
        if abs(total - 1.0) > SUM_TOLERANCE:
            yield Breach(
                path=("table", index, "weights"),
                expected="weights that add up to 1",
                actual=f"{total:g}",
                next_step="give the rest to the kernel that shall carry it",
            )
