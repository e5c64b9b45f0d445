"""Finds contradictions within a certificate: limits that do not follow from values, impossible counts.

Everything that can be recomputed from the certificate alone is recomputed. Bootstraps and order statistics
need the episodes, which ``policies.certify.evidence`` keeps next to it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from contracts.assess.limits import quantile_place, rate_limits
from contracts.documents.artifact import Certificate, CertifiedClause
from contracts.errors import KeyPath
from contracts.rules.breach import Breach
from contracts.scoring.intervals import poisson_rate
from contracts.units import CONFIDENCE, SECONDS_PER_DAY, SECONDS_PER_MONTH

#: Method of each clause; ``policies.certify.certificate`` uses them, and a test compares the two.
METHODS: dict[str, str] = {
    "switch_rate_per_slice_hour": "exact_poisson",
    "oscillation_sign_changes_per_hour": "exact_poisson",
    "false_switches_per_slice_month": "exact_poisson",
    "detection_lag_s": "clustered_bootstrap",
    "mttr_s": "clustered_bootstrap",
    "shed_ratio": "clustered_bootstrap",
    "empty_pool_ticks": "count",
    "decision_ms_p99": "order_statistic",
    "demoted_episode_ratio": "exact_binomial",
    "useful_loss_ratio": "capped_hall",
    "failed_excess_ratio": "capped_hall",
}
#: Methods of earlier certificates, which remain valid: their limits are mostly wider.
FORMER_METHODS: dict[str, str] = {
    "useful_loss_ratio": "simultaneous_t",
    "failed_excess_ratio": "simultaneous_t",
}
_UPPER = 1.0 - (1.0 - CONFIDENCE) / 2.0
_HINT = "certify again; a certificate is not edited"


def inconsistencies(certificate: Certificate) -> Iterator[Breach]:
    """Contradictions in ``certificate``, with paths from it."""
    names = [clause.id for clause in certificate.clauses]
    for index, clause in enumerate(certificate.clauses):
        place: KeyPath = ("clauses", index)
        if clause.id in names[:index]:
            yield _breach((*place, "id"), "each clause once", clause.id)
        expected = METHODS.get(clause.metric)
        if clause.method not in (expected, FORMER_METHODS.get(clause.metric)):
            yield _breach((*place, "method"), expected or "a clause judged on suites", clause.method)
            continue
        for what, wanted, found in _clause(clause, certificate):
            yield _breach((*place, what), wanted, found)
    if certificate.episodes < certificate.seeds:
        yield _breach(("episodes",), f"at least one for each of {certificate.seeds} seeds", "fewer")
    yield from _exposures(certificate)


def _clause(clause: CertifiedClause, certificate: Certificate) -> Iterator[tuple[str, str, str]]:
    """(field, expected, found) for one clause."""
    nothing = clause.n == 0 and clause.method != "exact_poisson"  # no event is a rate of 0
    if (clause.value is None and clause.n > 0) or (clause.value is not None and nothing):
        yield "value", "a value exactly where something was judged", f"{clause.value} of n {clause.n}"
        return
    if clause.value is None or clause.ci_high is None:
        if clause.ci_high is not None:
            yield "ci_high", "none where nothing was judged", f"{clause.ci_high:g}"
        return
    if clause.ci_high < clause.value:
        yield "ci_high", f"at least the value {clause.value:g}", f"{clause.ci_high:g}"
    if (
        clause.method in ("exact_binomial", "count", "clustered_bootstrap")
        and clause.n > certificate.episodes
    ):
        yield "n", f"at most {certificate.episodes}, the episodes", f"{clause.n}"
    limit = _limit(clause, certificate)
    if limit is not None and not math.isclose(limit, clause.ci_high, rel_tol=1e-6, abs_tol=1e-12):
        yield "ci_high", f"{limit:.6g}, of value and n", f"{clause.ci_high:.6g}"


def _limit(clause: CertifiedClause, certificate: Certificate) -> float | None:
    """The upper limit that follows from value and n; None if more data is needed, NaN if no limit follows."""
    assert clause.value is not None
    match clause.method:
        case "count":
            return clause.value if clause.value == round(clause.value) else math.nan
        case "exact_binomial":
            count = round(clause.value * clause.n)
            fits = math.isclose(count, clause.value * clause.n, abs_tol=1e-6) and 0 <= count <= clause.n
            return rate_limits(count, clause.n, _UPPER).high if fits else math.nan
        case "order_statistic":
            return None if quantile_place(clause.n, 0.99, _UPPER) < clause.n else math.nan
        case "exact_poisson":
            exposure = _exposure(clause, certificate)
            return None if exposure is None else poisson_rate(clause.n, exposure).ci_high
        case _:
            return None


def _exposure(clause: CertifiedClause, certificate: Certificate) -> float | None:
    """Exposure of a rate: from events and value, or, on quiet fleets, from their time."""
    if (clause.n == 0) != (clause.value == 0.0):
        return math.inf  # gives a limit of zero, which is invalid
    if clause.n > 0:
        assert clause.value is not None
        return clause.n / clause.value
    if clause.metric == "false_switches_per_slice_month":
        return certificate.quiet_slice_days * SECONDS_PER_DAY / SECONDS_PER_MONTH
    return 0.0 if clause.ci_high == 0.0 else None


def _exposures(certificate: Certificate) -> Iterator[Breach]:
    """Check that rates on one suite have the same exposure, and that of the quiet suite is the stated one."""
    hours = {
        index: _exposure(clause, certificate)
        for index, clause in enumerate(certificate.clauses)
        if clause.metric in ("switch_rate_per_slice_hour", "oscillation_sign_changes_per_hour")
        and clause.judged_on == "incidents"
        and clause.n > 0
    }
    known = [value for value in hours.values() if value is not None]
    for index, value in hours.items():
        if value is not None and not math.isclose(value, known[0], rel_tol=1e-6):
            yield _breach(("clauses", index, "value"), f"a rate over {known[0]:g} slice-hours", f"{value:g}")
    months = certificate.quiet_slice_days * SECONDS_PER_DAY / SECONDS_PER_MONTH
    for index, clause in enumerate(certificate.clauses):
        counted = clause.metric == "false_switches_per_slice_month" and clause.n > 0 and clause.value
        if (
            counted
            and clause.judged_on == "quiet"
            and not math.isclose(clause.n / counted, months, rel_tol=1e-6)
        ):
            expected = f"a rate over {months:g} slice-months"
            yield _breach(("clauses", index, "value"), expected, f"{clause.n / counted:g}")


def _breach(path: KeyPath, expected: str, actual: str) -> Breach:
    return Breach(path=path, expected=expected, actual=actual, next_step=_HINT)
