"""A certificate that contradicts its own numbers is refused, even if every hash in it fits."""

from __future__ import annotations

import pytest

from contracts.errors import DocumentError
from policies.certify.admission import refuse_unless_certified
from policies.certify.consistency import METHODS
from tests.policies.certify.test_certificate import META, SUBJECT, certificate, manifest

#: Fields of one clause of an otherwise valid certificate, and the message.
FORGED: dict[str, tuple[str, dict[str, object], str]] = {
    "nothing judged, with a value": ("M-mttr", {"n": 0}, "exactly where something was judged"),
    "judged, without a value": ("M-shed", {"value": None}, "exactly where something was judged"),
    "a value above its limit": ("M-mttr", {"value": 250.0}, "at least the value"),
    "a rate's limit of zero": ("M-false-switches", {"ci_high": 0.0}, "of value and n"),
    "a zero over another time": ("M-oscillation", {"ci_high": 0.0}, "of value and n"),
    "a closer limit of a rate": ("M-switch-rate", {"ci_high": 0.81}, "of value and n"),
    "a rate over another time": ("M-switch-rate", {"value": 0.4, "n": 100}, "of value and n"),
    "a closer limit of a share": ("M-demotions", {"ci_high": 0.01}, "of value and n"),
    "more episodes than there were": ("M-demotions", {"n": 100_000}, "at most 200, the episodes"),
    "a count with a fraction": ("M-never-empty", {"value": 0.0, "n": 300}, "at most 200, the episodes"),
    "a percentile of few decisions": ("M-decision-latency", {"n": 10}, "of value and n"),
    "a rate as a law": ("M-false-switches", {"method": "count", "ci_high": 0.0, "n": 1}, "exact_poisson"),
}


@pytest.mark.parametrize("how", FORGED)
def test_a_certificate_that_contradicts_itself_is_refused(how: str) -> None:
    """Limits are recomputed from values and counts wherever these determine them."""
    name, change, said = FORGED[how]
    clauses = tuple(c.model_copy(update=change) if c.id == name else c for c in certificate().clauses)
    with pytest.raises(DocumentError, match=said):
        refuse_unless_certified(manifest(certificate(clauses=clauses)), META, SUBJECT)


def test_a_clause_is_listed_once() -> None:
    """A second clause of the same name is refused, even if it is equal."""
    clauses = certificate().clauses
    with pytest.raises(DocumentError, match="each clause once"):
        refuse_unless_certified(manifest(certificate(clauses=(*clauses, clauses[0]))), META, SUBJECT)


def test_every_clause_has_the_method_that_judges_it() -> None:
    """The list of methods that certificates are checked against is that of the judges."""
    assert {c.metric: c.method for c in certificate().clauses} == METHODS
