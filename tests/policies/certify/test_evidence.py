"""The episodes stored with a certificate prove its clauses, and other episodes do not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contracts.documents.artifact import Certificate
from contracts.errors import DocumentError
from contracts.loading.shipped import LIBRARY
from contracts.loading.uris import resolve_uri
from policies.certify.admission import refuse_unless_certified
from policies.certify.certificate import CertificationEvidence, judge_clauses
from policies.certify.evidence import (
    evidence_file,
    evidence_text,
    parse_evidence,
    refuse_other_episodes,
    text_sha256,
)
from tests.policies.certify.test_certificate import META, SUBJECT, certificate, manifest
from tests.support.documents.certification_evidence import NOBODY, episode, sound_evidence


def kept(folder: Path, evidence: CertificationEvidence, **changes: Any) -> tuple[Certificate, Path]:
    """A certificate of ``evidence`` with its episodes in a file."""
    text = evidence_text(evidence)
    file = folder / "c-episodes.json"
    file.write_text(text, encoding="utf-8")
    return certificate(evidence, evidence_sha256=text_sha256(text), **changes), file


def test_the_episodes_reproduce_the_certificate(tmp_path: Path) -> None:
    """The stored episodes prove each clause of the certificate, unknown numbers included."""
    evidence = sound_evidence()
    assert evidence.incidents[0].incident is not None
    unknown = replace(evidence.incidents[0].incident, lower_bound_s=float("nan"), excess_s=float("nan"))
    first = replace(evidence.incidents[0], incident=unknown)
    held, file = kept(tmp_path, replace(evidence, incidents=(first, *evidence.incidents[1:])))
    refuse_other_episodes(held, META, file)
    assert evidence_file(tmp_path / "c.json") == file


def test_changed_episodes_are_refused(tmp_path: Path) -> None:
    """An altered byte is detected by the hash in the certificate."""
    held, file = kept(tmp_path, sound_evidence())
    file.write_text(file.read_text().replace('"moves": 2', '"moves": 1', 1))
    with pytest.raises(DocumentError, match="sha256"):
        refuse_other_episodes(held, META, file)


def test_a_clause_that_differs_from_the_episodes_is_refused(tmp_path: Path) -> None:
    """Better numbers in the certificate than in its own episodes are detected, even if every hash fits."""
    evidence = sound_evidence()
    worse = replace(evidence, incidents=(episode(0, "a", turns=9), *evidence.incidents[1:]))
    held, file = kept(tmp_path, worse)
    with pytest.raises(DocumentError, match="as these episodes give it"):
        refuse_other_episodes(held.model_copy(update={"clauses": certificate().clauses}), META, file)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"incidents": [3], "quiet": [], "decision_ms": []}'])
def test_files_that_are_no_episodes_are_refused(text: str, tmp_path: Path) -> None:
    """A file of another form is refused by name, even if its hash fits."""
    file = tmp_path / "c-episodes.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(DocumentError, match="c-episodes"):
        refuse_other_episodes(certificate(evidence_sha256=text_sha256(text)), META, file)


def test_a_certificate_is_judged_again_by_the_method_it_names(tmp_path: Path) -> None:
    """One from before gains were capped is proved by its episodes as well, and only by its own limit."""
    evidence = sound_evidence()
    gained = replace(evidence.incidents[0], service=replace(NOBODY, useful_ratio=0.9801))
    evidence = replace(evidence, incidents=(gained, *evidence.incidents[1:]))
    held, file = kept(tmp_path, evidence)
    former = tuple(
        c.model_copy(update={"method": "simultaneous_t"}) if c.id.startswith("M-harm") else c
        for c in held.clauses
    )
    again = judge_clauses(META, evidence, former)
    before, now = ({c.id: c for c in clauses}["M-harm"] for clauses in (again, held.clauses))
    assert (before.method, now.method) == ("simultaneous_t", "capped_hall")
    assert before.ci_high != now.ci_high
    refuse_other_episodes(held.model_copy(update={"clauses": again}), META, file)
    refuse_unless_certified(manifest(held.model_copy(update={"clauses": again})), META, SUBJECT)
    with pytest.raises(DocumentError, match="M-harm as these episodes give it"):
        refuse_other_episodes(held.model_copy(update={"clauses": former}), META, file)


@pytest.mark.parametrize("name", ["hysteresis-certificate.json", "routing.yaml"])
def test_shipped_certificates_pass_by_either_method(name: str) -> None:
    """The shipped certificates were judged by Student's t; with gains capped their episodes pass too."""
    file = resolve_uri(f"{LIBRARY}policies/{name}", "tests")
    place = evidence_file(file)
    assert all(c.passed for c in judge_clauses(META, parse_evidence(place.read_bytes(), place)))
