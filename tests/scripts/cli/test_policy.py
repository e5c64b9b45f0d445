"""``selvage policy certify`` and ``show`` on a small suite over synthetic kernels."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from contracts.documents import MetaContract
from contracts.documents.artifact import Certificate, Training
from contracts.errors import DocumentError
from contracts.loading.loader import load_as, read_text
from contracts.loading.shipped import SHIPPED_META
from contracts.loading.uris import resolve_uri
from policies.artefacts import network_subject
from policies.certify.admission import load_certificate
from policies.certify.artifact_files import write_artefact
from scripts.cli.main import app
from scripts.cli.policy import print_certificate, subject_of
from scripts.partial_results import KeptResults
from scripts.train import certify as certify_module
from scripts.train import certify_parts
from scripts.train.certify import (
    CertificationPlan,
    CertificationRequest,
    certificate_of,
    plan_certification,
    run_suites,
    worlds_sha256,
)
from scripts.train.certify_parts import CertificationPart, PartResult
from tests.policies.certify.test_certificate import certificate
from tests.support.documents.documents_written import write_yaml
from tests.support.fleets.e5_world import suite_document, write_suite

pytestmark = pytest.mark.slow


def write_meta(folder: Path) -> Path:
    """The shipped clauses with thresholds that two seeds can prove in three minutes, over a small suite."""
    write_suite(folder, 180.0)
    calm = suite_document(scenarios=[{"name": "calm", "control": True}], sweep=[], sweep_scenarios=[])
    write_yaml(folder / "quiet.yaml", calm)
    shipped = load_as(MetaContract, resolve_uri(SHIPPED_META, "tests"))
    document = yaml.safe_load(read_text(resolve_uri(SHIPPED_META, "tests")))
    document["spec"]["suite_seeds"] = 2
    document["spec"]["certification"] = {
        "incidents": "suite.yaml",
        "quiet": "quiet.yaml",
        "quiet_slice_days": 0.02,
    }
    changed = {"M-false-switches": 1e6, "M-demotions": 1.0, "M-switch-rate": 100.0, "M-oscillation": 100.0}
    changed |= {"M-decision-latency": 1000.0, "M-detection-lag": 60.0}
    for clause in document["spec"]["clauses"]:
        clause["threshold"] = changed.get(clause["id"], clause["threshold"])
    assert len(document["spec"]["clauses"]) == len(shipped.spec.clauses)
    return write_yaml(folder / "meta.yaml", document)


@pytest.fixture(scope="module")
def plan(meta: Path) -> CertificationPlan:
    """A certification of ``hysteresis`` in one process."""
    return plan_certification(request("hysteresis", meta))


@pytest.fixture(scope="module")
def whole(plan: CertificationPlan) -> Certificate:
    """The certificate of that process in one go."""
    return certificate_of(plan, run_suites(plan))


@pytest.fixture(scope="module")
def meta(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A meta-contract with a certification of a few seconds."""
    return write_meta(tmp_path_factory.mktemp("certify"))


def request(spec: str, meta: Path) -> CertificationRequest:
    """Certify ``spec`` on as much as the meta-contract requires."""
    return CertificationRequest(
        spec=spec, subject=spec, subject_sha256="0" * 64, command="tests", meta_uri=str(meta)
    )


def but_for_time(found: Certificate) -> dict[str, object]:
    """All fields that must not depend on the clock."""
    plain = found.model_dump()
    del plain["evidence_sha256"]  # the times of decisions are part of the evidence
    plain["clauses"] = [clause for clause in plain["clauses"] if clause["metric"] != "decision_ms_p99"]
    return plain


def test_certificates_do_not_depend_on_the_batch(
    plan: CertificationPlan, whole: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fleets in lock-step or one by one give the same certificate."""
    monkeypatch.setattr(certify_module, "BATCH", 1)
    assert but_for_time(certificate_of(plan, run_suites(plan))) == but_for_time(whole)
    assert whole.worlds_sha256 == worlds_sha256(plan)
    assert whole.quiet_slice_days >= 0.02


def test_a_stopped_certification_goes_on(
    plan: CertificationPlan, whole: Certificate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a stop two finished parts are not run again, the rest may run in two processes; the certificate
    is that of one process in one go, except for the latency of decisions.
    """
    folder = tmp_path / "parts"

    def stop(share: float) -> None:
        if len(list(folder.iterdir())) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_suites(plan, stop, KeptResults(folder))
    ran: list[CertificationPart] = []
    run_part = certify_parts.run_part

    def counted(part: CertificationPart) -> PartResult:
        ran.append(part)
        return run_part(part)

    with monkeypatch.context() as patch:
        patch.setattr(certify_parts, "run_part", counted)
        again = certificate_of(plan, run_suites(plan, kept=KeptResults(folder)))
    assert but_for_time(again) == but_for_time(whole)
    assert len(ran) == len(list(folder.iterdir())) - 2
    next(iter(folder.iterdir())).write_text("{}")
    together = replace(plan, request=replace(plan.request, jobs=2))
    assert but_for_time(certificate_of(together, run_suites(together, kept=KeptResults(folder)))) == (
        but_for_time(whole)
    )


@pytest.mark.needs("ray")
def test_a_local_ray_gives_the_same_certificate(
    plan: CertificationPlan, whole: Certificate, tmp_path: Path
) -> None:
    """Parts on a Ray cluster give the certificate of one process except for the latency of decisions, and are
    kept, so that a stopped run resumes from them.
    """
    folder = tmp_path / "parts"
    beside = replace(plan, request=replace(plan.request, jobs=2, backend="ray"))
    found = certificate_of(beside, run_suites(beside, kept=KeptResults(folder)))
    assert but_for_time(found) == but_for_time(whole)
    assert list(folder.iterdir())


def test_the_command_certifies_and_shows(meta: Path, tmp_path: Path) -> None:
    """A policy that keeps the clauses passes; its certificate is accepted under this meta-contract,
    refused under another, and refused once the policy's settings differ from the certified ones.
    """
    out = tmp_path / "new" / "certificate.json"
    run = CliRunner().invoke
    done = run(app, ["policy", "certify", "hysteresis", "--meta", str(meta), "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert load_certificate(read_text(out), str(out)).passed
    assert not (out.parent / "certificate-parts").exists()
    shown = run(app, ["policy", "show", str(out), "--meta", str(meta)])
    assert shown.exit_code == 0
    assert "accepted" in shown.output
    other = run(app, ["policy", "show", str(out)])
    assert other.exit_code == 1
    assert "meta_contract_sha256" in other.output
    out.write_text(read_text(out).replace('"subject": "hysteresis"', '"subject": "hysteresis:dwell_s=121"'))
    changed = run(app, ["policy", "show", str(out), "--meta", str(meta)])
    assert changed.exit_code == 1
    assert "one of other settings" in changed.output.replace("\n", " ")


def test_a_policy_that_never_moves_fails(meta: Path, tmp_path: Path) -> None:
    """The fixed kernel never acts on wrong numbers: the mean lag breaks its clause, exit code 1."""
    out = tmp_path / "certificate.json"
    done = CliRunner().invoke(
        app, ["policy", "certify", "fixed-bare", "--meta", str(meta), "--out", str(out)]
    )
    assert done.exit_code == 1
    found = {clause.id: clause for clause in load_certificate(read_text(out), str(out)).clauses}
    assert not found["M-detection-lag"].passed
    assert found["M-switch-rate"].value == 0.0


def test_a_limit_that_more_episodes_may_narrow_is_not_called_broken(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A clause with a value within the threshold, or without anything to judge, differs from a clause with a
    value does not.
    """
    whole = certificate()
    lag = next(clause for clause in whole.clauses if clause.id == "M-detection-lag")
    cases = ((lag.threshold / 2, "not shown"), (None, "not shown"), (lag.threshold * 1.5, "broken"))
    for value, told in cases:
        wide = lag.model_copy(update={"value": value, "ci_high": 2 * lag.threshold, "passed": False})
        print_certificate(whole.model_copy(update={"clauses": (wide,)}))
        out = " ".join(capsys.readouterr().out.split())
        assert told in out
        assert ("more --seeds (incidents)" in out) == (told == "not shown")


def test_unknown_policies_are_refused_before_anything_runs(meta: Path) -> None:
    """The message names the valid choices."""
    with pytest.raises(DocumentError, match="unknown policy"):
        plan_certification(request("wishful", meta))


def test_a_learned_policy_is_known_by_its_file_and_encoding(tmp_path: Path) -> None:
    """The subject follows the content of the ONNX file, not its name; other settings are refused."""
    one, other, same = (tmp_path / name for name in ("a.onnx", "b.onnx", "c.onnx"))
    for file, content in ((one, b"1"), (other, b"2"), (same, b"1")):
        file.write_bytes(content)
    assert subject_of(f"learned:onnx={one}") == subject_of(f"learned:onnx={same}")
    assert subject_of(f"learned:onnx={one}") != subject_of(f"learned:onnx={other}")
    digest = hashlib.sha256(b"1").hexdigest()
    found = network_subject(digest)
    assert subject_of(f"learned:onnx={one}") == (found.sha256, found.rules_sha256)
    assert subject_of("sequential")[1] is None
    for wrong in (f"learned:onnx={one},budget=9", "learned", f"learned:onnx={tmp_path / 'none'}"):
        with pytest.raises(DocumentError):
            subject_of(wrong)


def test_the_shipped_suites_are_the_pinned_ones() -> None:
    """The shipped meta-contract pins every scenario, contract and profile that its suites lead to."""
    shipped = load_as(MetaContract, resolve_uri(SHIPPED_META, "tests")).spec.certification
    assert shipped is not None
    plan = plan_certification(
        CertificationRequest(spec="fixed", subject="", subject_sha256="0" * 64, command="")
    )
    assert worlds_sha256(plan) == shipped.worlds_sha256
    assert sum(len(course.seeds) for course in (plan.incidents, plan.quiet)) > 20


def test_show_reads_manifests(tmp_path: Path) -> None:
    """A manifest is shown with its training; without a certificate it is refused, with one accepted."""
    content = b"weights"
    training = Training(command="selvage train", seeds=(3,))
    subject = network_subject(hashlib.sha256(content).hexdigest())
    held = certificate(subject_sha256=subject.sha256, rules_sha256=subject.rules_sha256)
    bare = write_artefact(tmp_path / "bare", "routing", content, "d", training)
    eligible = write_artefact(tmp_path / "sound", "routing", content, "d", training, held)
    shown = CliRunner().invoke(app, ["policy", "show", str(bare)])
    assert shown.exit_code == 1
    assert "selvage train" in shown.output
    assert CliRunner().invoke(app, ["policy", "show", str(eligible)]).output.rstrip().endswith("accepted")
