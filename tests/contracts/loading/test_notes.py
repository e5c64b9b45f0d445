"""Promises of documents that are not enforced are reported, and only those."""

from __future__ import annotations

from typing import Any

import pytest

from contracts.documents import Document
from contracts.loading.loader import load_text
from contracts.loading.notes import NOT_ENFORCED, notes
from tests.support.documents.documents_written import envelope
from tests.support.documents.rule_cases import dump, fault
from tests.support.fleets.synthetic import contract_document, scenario_document

REFINED = {"family": "N", "level": "L2", "action": "guard", "reason": "numbers drift"}


def told(tree: dict[str, Any]) -> dict[str, int]:
    """Path -> line of every note on the document ``tree``."""
    text = dump(tree)
    document: Document = load_text(text, "made.yaml")
    found = notes(document, text, "made.yaml")
    assert all(note.text.startswith(NOT_ENFORCED) for note in found)
    assert all(str(note) == f"made.yaml:{note.line} {note.path}: {note.text}" for note in found)
    lines = text.splitlines()
    assert all(note.path.rpartition(".")[2] in lines[note.line - 1] for note in found)
    return {note.path: note.line for note in found}


def contract(**changes: Any) -> dict[str, Any]:
    """The synthetic contract, its spec changed."""
    made: dict[str, Any] = contract_document()
    made["spec"] = {key: value for key, value in (made["spec"] | changes).items() if value is not None}
    return made


@pytest.mark.parametrize("value", ["hold", "fail_open", "fail_closed"])
def test_the_rule_for_a_lost_controller_is_not_enforced(value: str) -> None:
    """Any value for the loss of the controller is reported as inert; without one nothing is reported."""
    assert "spec.on_controller_loss" in told(contract(on_controller_loss=value))
    assert "spec.on_controller_loss" not in told(contract(on_controller_loss=None))


def test_refinements_are_reported_where_there_are_any() -> None:
    """Refinements of the escalation have no effect; a contract without any gets no note on them."""
    escalation = contract()["spec"]["escalation"]
    assert "spec.escalation.refinements" not in told(contract())
    refined = contract(escalation=escalation | {"refinements": [REFINED]})
    assert "spec.escalation.refinements" in told(refined)


def test_remediation_is_reported_once() -> None:
    """A contract with many clauses is told once that remediation is for people."""
    assert [path for path in told(contract()) if "remediation" in path] == ["spec.clauses[0].remediation"]


def test_a_drill_is_reported_and_a_scenario_is_not() -> None:
    """A drill's undo is not enforced; a drill without one, and a scenario, get no note."""
    guard = {"name": "failures", "metric": "failure_rate", "threshold": 0.1}
    spec = {
        "description": "tests only",
        "pool": "made",
        "faults": [fault()],
        "steady_state": [guard],
        "time_to_live_s": 60.0,
    }
    assert told(envelope("FaultDrill", "made", spec)) == {}
    kept = spec | {"undo": {"reset_caches": False, "readmit_over_s": 5.0}}
    assert list(told(envelope("FaultDrill", "made", kept))) == ["spec.undo.reset_caches"]
    assert told(scenario_document()) == {}


@pytest.mark.parametrize(
    ("capacity", "word"),
    [(5.0, "carries 10 requests/s with all 2 replicas, which is 80%"), (None, "state its")],
)
def test_a_declared_headroom_is_explained(capacity: float | None, word: str) -> None:
    """A pool that declares headroom gets a note on the load for which it is kept; others get none."""
    kernel = {"name": "bf16", "profile": "none.yaml", "replicas": 2, "role": "known_good"}
    kernel |= {} if capacity is None else {"capacity_rps": capacity}
    spec: dict[str, Any] = {"kernels": [kernel], "home": [{"slice": "prose", "kernel": "bf16"}]}
    plain, declared = (
        dump(envelope("KernelPool", "made", one)) for one in (spec, spec | {"known_good_headroom_ratio": 0.8})
    )
    assert notes(load_text(plain, "made.yaml"), plain, "made.yaml") == []
    (found,) = notes(load_text(declared, "made.yaml"), declared, "made.yaml")
    assert found.path == "spec.known_good_headroom_ratio"
    assert word in found.text
