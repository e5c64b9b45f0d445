"""Certification suites for a user's own fleet: generated incidents, and omissions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from contracts.documents import MetaContract, Suite
from contracts.errors import DocumentError
from contracts.loading.loader import load_as, read_text
from scripts.train.own_suites import SuiteRequest, WrittenSuites, write_suites
from tests.support.documents.documents_written import write_yaml
from tests.support.documents.own_fleet import KERNELS, write_own_fleet
from tests.support.documents.references import reference_problems

SINGLE = tuple(replace(kernel, replicas=1) for kernel in KERNELS)


def made(folder: Path, **changes: Any) -> WrittenSuites:
    """Suites for the fleet in ``folder``, in a folder beside it."""
    request = SuiteRequest(scenario=str(folder / "scenario.yaml"), out=folder / "certify", **changes)
    return write_suites(request)


def test_the_documents_fit_each_other(tmp_path: Path) -> None:
    """Every document loads and refers to existing files and doses, and the worlds are pinned."""
    write_own_fleet(tmp_path)
    found = made(tmp_path, seeds=3, quiet_days=0.5)
    meta = load_as(MetaContract, found.meta)
    assert meta.spec.certification is not None
    assert meta.spec.certification.inputs_sha256 is not None
    assert (meta.spec.suite_seeds, meta.spec.certification.quiet_slice_days) == (3, 0.5)
    for path in sorted((tmp_path / "certify").glob("*.yaml")):
        document = load_as(Suite, path) if path.stem in ("incidents", "quiet") else None
        if document is not None:
            assert reference_problems(document, read_text(path), str(path)) == []
    assert found.left_out == ()


def test_incidents_break_the_home_kernel_and_leave_somewhere_to_go(tmp_path: Path) -> None:
    """Measured conditions of the home kernel alone, mildest and most severe, a lost replica, a busy day."""
    write_own_fleet(tmp_path)
    found = made(tmp_path)
    assert {"fast-regression", "fast-requantise-w3", "fast-crash", "fast-hang", "busy-day"} <= set(
        found.incidents
    )
    suite = load_as(Suite, tmp_path / "certify" / "incidents.yaml")
    faults = [fault for row in suite.spec.scenarios for fault in row.faults]
    assert {fault.target.kernel for fault in faults} == {"fast"}
    assert len({fault.onset_s for fault in faults}) == len(faults)


@pytest.mark.parametrize("folder", ["my certify_Suites", "\u00dcbung", "\u4e2d", "-"])
def test_any_folder_may_hold_suites(folder: str, tmp_path: Path) -> None:
    """A folder's name need not be a valid document name: blanks, underscores, other scripts are accepted."""
    write_own_fleet(tmp_path)
    request = SuiteRequest(scenario=str(tmp_path / "scenario.yaml"), out=tmp_path / folder, seeds=2)
    assert load_as(MetaContract, write_suites(request).meta).metadata.name.startswith("routing-policy")


def test_long_names_of_kernels_stay_apart(tmp_path: Path) -> None:
    """Incidents of a kernel with a very long name still have distinct names."""
    long = (replace(KERNELS[0], name="fast-" + "x" * 57), KERNELS[1])
    write_own_fleet(tmp_path, kernels=long)
    found = made(tmp_path, seeds=2)
    assert len(set(found.incidents)) == len(found.incidents) >= 6
    assert max(map(len, found.incidents)) <= 63


def test_what_no_policy_can_mitigate_is_left_out(tmp_path: Path) -> None:
    """If the other kernel breaks the contract at rest, and no replica is spare, no incident is made."""
    bad = (SINGLE[0], replace(SINGLE[1], drift_kl=0.05))
    write_own_fleet(tmp_path, kernels=bad)
    with pytest.raises(DocumentError, match="no other kernel keeps the contract"):
        made(tmp_path)
    write_own_fleet(tmp_path, kernels=SINGLE)
    found = made(tmp_path)
    assert found.left_out == ("a lost replica of fast: it has no other",)
    assert "fast-crash" not in found.incidents


def test_errors_are_no_incident_under_a_contract_that_promises_nothing_of_failures(tmp_path: Path) -> None:
    """No clause of such a contract detects errors, so they are left out, and the command says so."""
    write_own_fleet(tmp_path)
    path = tmp_path / "contract.yaml"
    document = yaml.safe_load(path.read_text())
    clauses = document["spec"]["clauses"]
    document["spec"]["clauses"] = [one for one in clauses if one["metric"] != "failure_rate"]
    write_yaml(path, document)
    found = made(tmp_path)
    assert "fast-hang" in found.incidents
    assert not [name for name in found.incidents if "errors" in name]
    assert [reason.partition(":")[0] for reason in found.left_out] == ["errors of fast"]


def test_the_folder_can_be_moved_with_its_fleet(tmp_path: Path) -> None:
    """Paths are relative, so the pin holds elsewhere."""
    write_own_fleet(tmp_path / "a")
    first = load_as(MetaContract, made(tmp_path / "a").meta)
    write_own_fleet(tmp_path / "b")
    assert load_as(MetaContract, made(tmp_path / "b").meta) == first
