"""Certificates: the limit of each clause, and that only the judged policy passes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.documents import MetaContract, PolicyArtifact
from contracts.documents.artifact import Certificate, CertifiedClause
from contracts.errors import DocumentError
from contracts.loading.loader import document_sha256, load_as, load_document
from contracts.loading.shipped import SHIPPED_META
from contracts.loading.uris import resolve_uri
from contracts.rules.policy import certificate_breaches
from policies import registry as baselines
from policies.artefacts import builtin_sha256
from policies.certify.admission import Subject, load_certificate, refuse_unless_certified, rules_sha256
from policies.certify.certificate import CertificationEvidence, ServiceShares, judge_clauses
from policies.registry import configuration_facts
from tests.support.documents.certification_evidence import NOBODY, episode, incident, sound_evidence
from tests.support.documents.policy_documents import ARTIFACT

META = load_as(MetaContract, resolve_uri(SHIPPED_META, "tests"))
ONNX = "1" * 64
RULES = rules_sha256({"reason": 0.5}, {"budget": 0.0})
SUBJECT = Subject(onnx_sha256=ONNX, encoding_version=3, rules_sha256=RULES)
assert META.spec.certification is not None
WORLDS = META.spec.certification.worlds_sha256
PLACE = resolve_uri(SHIPPED_META, "tests")
SUITES = {
    name: document_sha256(load_document(resolve_uri(getattr(META.spec.certification, suite), PLACE)))
    for name, suite in (("suite_sha256", "incidents"), ("quiet_suite_sha256", "quiet"))
}


def judged(evidence: CertificationEvidence) -> dict[str, CertifiedClause]:
    """Clauses by id."""
    return {clause.id: clause for clause in judge_clauses(META, evidence)}


def certificate(evidence: CertificationEvidence | None = None, **changes: Any) -> Certificate:
    """Certificate of ``evidence`` for the ONNX file of these tests."""
    clauses = judge_clauses(META, evidence or sound_evidence())
    fields: dict[str, Any] = {
        "subject": "learned",
        "subject_sha256": SUBJECT.sha256,
        "rules_sha256": RULES,
        "meta_contract_sha256": document_sha256(META),
        **SUITES,
        "command": "selvage policy certify",
        "code_version": "0",
        "seeds": 20,
        "episodes": 200,
        "quiet_slice_days": 125.0,
        "worlds_sha256": WORLDS,
        "passed": all(c.passed for c in clauses),
        "clauses": clauses,
    }
    return Certificate.model_validate(fields | changes)


def manifest(held: Certificate | None) -> PolicyArtifact:
    """The smallest manifest with ``held``; its training section plays no part here."""
    document = PolicyArtifact.model_validate_json(json.dumps(ARTIFACT))
    onnx = document.spec.onnx.model_copy(update={"sha256": ONNX})
    spec = document.spec.model_copy(update={"onnx": onnx, "encoding_version": 3, "certificate": held})
    return document.model_copy(update={"spec": spec})


def test_a_sound_policy_passes_every_offline_clause() -> None:
    """All clauses checked offline are judged, and good evidence passes them."""
    found = judged(sound_evidence())
    assert list(found) == [c.id for c in META.spec.clauses if c.checked != "online"]
    assert all(clause.passed for clause in found.values())
    refuse_unless_certified(manifest(certificate()), META, SUBJECT)


BREAKS: dict[str, tuple[str, dict[str, Any]]] = {
    "M-switch-rate": ("incidents", {"moves": 18}),
    "M-oscillation": ("incidents", {"turns": 11}),
    "M-false-switches": ("quiet", {"false_switches": 1}),
    "M-detection-lag": ("incidents", {"incident": incident(lag_s=121.0)}),
    "M-mttr": ("incidents", {"incident": incident(mttr_s=301.0)}),
    "M-shed": ("incidents", {"shed_requests": 21.0}),
    "M-never-empty": ("incidents", {"empty_ticks": 1}),
    "M-demotions": ("incidents", {"demoted": True}),
    "M-harm": ("incidents", {"service": replace(NOBODY, useful_ratio=0.974)}),
    "M-harm-failed": ("incidents", {"service": replace(NOBODY, failed_or_exposed_ratio=0.004)}),
}


@pytest.mark.parametrize("clause", BREAKS)
def test_each_clause_fails_on_its_own_evidence_alone(clause: str) -> None:
    """Evidence beyond one threshold fails that clause and no other, and the policy is not certified."""
    suite, change = BREAKS[clause]
    evidence = sound_evidence()
    spoiled: Any = tuple(replace(one, **change) for one in evidence.of(suite))
    found = judged(replace(evidence, **{suite: spoiled}))
    assert [name for name, one in found.items() if not one.passed] == [clause]
    bad = certificate(replace(evidence, **{suite: spoiled}))
    with pytest.raises(DocumentError, match=clause):
        refuse_unless_certified(manifest(bad), META, SUBJECT)


def test_harm_in_one_scenario_is_not_offset_by_the_others() -> None:
    """With gains in four scenarios of five, the loss in the fifth is reported by name and in full."""
    evidence = sound_evidence()
    spoiled = tuple(
        replace(one, service=replace(NOBODY, useful_ratio=0.97 if one.scenario == "c" else 0.999))
        for one in evidence.incidents
    )
    found = judged(replace(evidence, incidents=spoiled))["M-harm"]
    assert not found.passed
    assert found.worst == "c"
    assert found.value == pytest.approx(0.01)


def test_harm_is_paired_by_seed() -> None:
    """Differences between seeds alone are no harm, however large."""
    evidence = sound_evidence()
    by_seed = {seed: ServiceShares(useful_ratio=seed / 20, failed_or_exposed_ratio=0.0) for seed in range(20)}
    episodes = tuple(replace(one, service=by_seed[one.seed]) for one in evidence.incidents)
    still = {place: by_seed[place[1]] for place in evidence.still}
    found = judged(replace(evidence, incidents=episodes, still=still))["M-harm"]
    assert (found.value, found.ci_high, found.passed) == (0.0, 0.0, True)


def test_harm_without_a_comparison_does_not_pass() -> None:
    """Without the episodes of the fixed policy neither clause of harm passes."""
    found = judged(replace(sound_evidence(), still={}))
    assert not found["M-harm"].passed
    assert not found["M-harm-failed"].passed


def test_a_certificate_without_a_new_clause_is_refused_by_its_name() -> None:
    """A certificate without M-harm is refused by the name of the clause, not by a hash."""
    old = certificate()
    without = tuple(clause for clause in old.clauses if clause.id != "M-harm")
    stale = old.model_copy(update={"clauses": without, "meta_contract_sha256": "0" * 64})
    with pytest.raises(DocumentError, match=r"clauses\.M-harm: expected useful_loss_ratio within 0\.005"):
        refuse_unless_certified(manifest(stale), META, SUBJECT)


def test_slow_decisions_fail_by_their_percentile() -> None:
    """Two slow decisions in a hundred fail the clause, a single one in 1,200 does not."""
    spent = np.full(1200, 1.0)
    for slow, passed in ((1, True), (24, False)):
        spent[:slow] = 9.0
        assert judged(replace(sound_evidence(), decision_ms=spent))["M-decision-latency"].passed == passed


def test_few_decisions_give_no_limit_of_a_percentile() -> None:
    """A hundred decisions give no confidence limit of the 99th percentile, so the clause does not pass."""
    few = judged(replace(sound_evidence(), decision_ms=np.full(100, 0.1)))["M-decision-latency"]
    assert few.ci_high is None
    assert not few.passed


@given(days=st.floats(1.0, 400.0))
def test_no_false_switch_passes_from_111_slice_days_on(days: float) -> None:
    """With none observed, the exact limit is 3.689 over the slice-months: it takes 30 x 3.689 slice-days."""
    quiet = (episode(incident=None, slice_hours=24.0 * days),)
    found = judged(replace(sound_evidence(), quiet=quiet))["M-false-switches"]
    assert found.ci_high == pytest.approx(30.0 * 3.6889 / days, rel=1e-4)
    assert found.passed == (days >= 30.0 * 3.688879)


@given(
    events=st.lists(st.booleans(), min_size=1, max_size=60), lags=st.lists(st.floats(0.0, 500.0), min_size=4)
)
def test_the_limit_is_never_below_the_value(events: list[bool], lags: list[float]) -> None:
    """An upper confidence limit lies at or above its estimate."""
    episodes = tuple(
        episode(i, demoted=event, moves=int(event), incident=incident(lag_s=lags[i % len(lags)]))
        for i, event in enumerate(events)
    )
    for clause in judge_clauses(META, replace(sound_evidence(), incidents=episodes)):
        if clause.value is not None and clause.ci_high is not None:
            assert clause.ci_high >= clause.value - 1e-9


def test_without_evidence_no_clause_passes() -> None:
    """Without episodes no clause on them passes, and without incidents none on incidents."""
    empty = judged(CertificationEvidence(incidents=(), quiet=(), decision_ms=np.zeros(0), still={}))
    assert not any(clause.passed for clause in empty.values())
    calm = tuple(replace(one, incident=None) for one in sound_evidence().incidents)
    found = judged(replace(sound_evidence(), incidents=calm))
    assert found["M-mttr"].value is None
    assert not found["M-mttr"].passed


def test_mitigated_incidents_have_no_lag() -> None:
    """An incident that affects no traffic is left out of the mean lag."""
    evidence = sound_evidence()
    half = tuple(
        replace(one, incident=incident(lag_s=470.0, mitigated=True)) if one.scenario == "a" else one
        for one in evidence.incidents
    )
    assert judged(replace(evidence, incidents=half))["M-detection-lag"].value == pytest.approx(20.0)


TAMPERED: dict[str, tuple[dict[str, object], str]] = {
    "another ONNX file": (
        {"subject_sha256": replace(SUBJECT, onnx_sha256="3" * 64).sha256},
        "another policy's",
    ),
    "another encoding": ({"subject_sha256": replace(SUBJECT, encoding_version=2).sha256}, "another policy's"),
    "rules that only its subject names": (
        {"subject_sha256": replace(SUBJECT, rules_sha256="6" * 64).sha256},
        "another policy's",
    ),
    "other rules": ({"rules_sha256": "6" * 64}, "certify again: what decides beside the network"),
    "no rules": ({"rules_sha256": None}, "certify again: what decides beside the network"),
    "a built-in policy": ({"subject_sha256": builtin_sha256("sequential")}, "another policy's"),
    "another meta-contract": ({"meta_contract_sha256": "4" * 64}, "another one"),
    "fewer seeds": ({"seeds": 19}, "at least 20"),
    "less quiet": ({"quiet_slice_days": 119.0}, "at least 120"),
    "other worlds": ({"worlds_sha256": "5" * 64}, "are others"),
    "not passed": ({"passed": False}, "a passing certificate"),
    "another suite": ({"suite_sha256": "7" * 64}, "the suite is another one"),
    "another quiet suite": ({"quiet_suite_sha256": "7" * 64}, "the suite is another one"),
    "fewer episodes than seeds": ({"episodes": 1}, "at most 1, the episodes"),
    "more quiet than was": ({"quiet_slice_days": 9000.0}, "of value and n"),
}


def test_every_setting_of_rules_and_detector_counts() -> None:
    """Another value, another name, or a setting on the other side gives another hash."""
    cases = [
        rules_sha256({"reason": 0.5}, {"budget": 0.0}),
        rules_sha256({"reason": 0.3}, {"budget": 0.0}),
        rules_sha256({"own_reason": 0.5}, {"budget": 0.0}),
        rules_sha256({"reason": 0.5}, {"budget": 1.0}),
        rules_sha256({"reason": 0.5, "budget": 0.0}, {}),
    ]
    assert len(set(cases)) == len(cases)


def test_the_calibrated_thresholds_count_where_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another table of traffic thresholds changes the subject only of configurations that read it."""
    configurations = ("learned", "sequential", "sequential:traffic_factor=14", "hysteresis")
    before = [configuration_facts(configuration) for configuration in configurations]
    table = tmp_path / "traffic.json"
    table.write_text("{}")
    monkeypatch.setattr(baselines, "SHIPPED_TRAFFIC", str(table))
    after = [configuration_facts(configuration) for configuration in configurations]
    assert [old != new for old, new in zip(before, after, strict=True)] == [True, True, False, False]


@pytest.mark.parametrize("how", TAMPERED)
def test_a_certificate_of_another_subject_is_refused(how: str) -> None:
    """Every field that binds the certificate to policy, meta-contract and amount of evidence is checked."""
    change, said = TAMPERED[how]
    with pytest.raises(DocumentError, match=said):
        refuse_unless_certified(manifest(certificate().model_copy(update=change)), META, SUBJECT)


@pytest.mark.parametrize(("value", "step"), [(0.5, "certify with more seeds"), (1.5, "train or tune")])
def test_a_failed_certificate_says_what_would_make_it_pass(value: float, step: str) -> None:
    """More seeds if every value keeps its threshold and a limit does not, another policy otherwise."""
    failed = {"threshold": 1.0, "value": value, "ci_high": 2.0, "passed": False}
    clauses = (certificate().clauses[0].model_copy(update=failed),)
    assert step in next(certificate_breaches(certificate(clauses=clauses, passed=False))).next_step


def test_no_certificate_is_refused() -> None:
    """A manifest without a certificate may not drive."""
    with pytest.raises(DocumentError, match="got none"):
        refuse_unless_certified(manifest(None), META, SUBJECT)


@pytest.mark.parametrize("change", ["dropped", "laxer", "beyond"])
def test_an_edited_clause_is_refused(change: str) -> None:
    """A clause left out, with a laxer threshold, or passed beyond its limit is refused."""
    clauses = list(certificate().clauses)
    if change == "dropped":
        clauses.pop(3)
    elif change == "laxer":
        clauses[3] = clauses[3].model_copy(update={"threshold": 200.0})
    else:
        clauses[3] = clauses[3].model_copy(update={"ci_high": 130.0})
    with pytest.raises(DocumentError, match="certificate"):
        refuse_unless_certified(manifest(certificate(clauses=tuple(clauses))), META, SUBJECT)


def test_certificates_survive_their_file() -> None:
    """Written as JSON and read again a certificate is the same; anything else is refused with a reason."""
    held = certificate()
    assert load_certificate(held.model_dump_json(), "cert.json") == held
    with pytest.raises(DocumentError, match="write it with"):
        load_certificate("{}", "cert.json")
