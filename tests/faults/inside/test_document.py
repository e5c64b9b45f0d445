"""The wire form of a fault, and the checks on its sender."""

from __future__ import annotations

import ast
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.documents.scenario import ScheduledFault
from contracts.documents.trigger import Trigger
from faults.client.launch import drill_arguments
from faults.client.replica import wire_form
from faults.inside.document import ENGINE_KINDS, HTTP_CONDITIONS, HTTP_KINDS, fault_of
from faults.inside.gate import (
    FLAG,
    FOLDER,
    TOKEN_FILE,
    TOKEN_HEADER,
    CallRefusedError,
    DrillGate,
    gate,
    refusal,
)
from faults.inside.lease import Lease, lease_for, read_lease, write_lease
from tests.support.paths import ROOT

CONDITIONS: dict[str, object] = {
    "min_generated_tokens": 64,
    "min_batch_size": 4,
    "slice": "code",
    "prompt_residue": {"block_tokens": 128, "lowest": 0, "highest": 8},
    "prefix_hit": True,
    "after_cancel": True,
    "after_structured_output": True,
}


def scheduled(kind: str, **more: object) -> ScheduledFault:
    """A fault in the form of a scenario or a drill."""
    plain = {"name": "f", "kind": kind, "onset_s": 0.0, **more}
    return ScheduledFault.model_validate_json(json.dumps(plain))


def test_the_conditions_of_documents_are_those_that_are_tested_here() -> None:
    """Every condition of the document is tested here."""
    assert set(CONDITIONS) == set(Trigger.model_fields)


@given(
    st.sets(st.sampled_from(sorted(CONDITIONS))), st.sampled_from(["noise", "slow", "hang", "logit_noise"])
)
def test_a_trigger_means_the_same_on_both_sides(chosen: set[str], kind: str) -> None:
    """Exactly the conditions set in the document are set where the fault is injected."""
    fault = scheduled(kind, trigger={name: CONDITIONS[name] for name in chosen})
    assert set(fault_of(wire_form(fault)).trigger.conditions) == chosen
    assert fault.trigger is not None
    assert set(fault.trigger.conditions) == chosen


@pytest.mark.parametrize("kind", HTTP_KINDS)
@pytest.mark.parametrize("condition", sorted(CONDITIONS))
def test_http_faults_refuse_what_http_cannot_see(kind: str, condition: str) -> None:
    """A condition that only the engine knows is refused by name, the others are accepted."""
    plain = wire_form(scheduled(kind, trigger={condition: CONDITIONS[condition]}))
    if condition in HTTP_CONDITIONS:
        assert fault_of(plain).trigger.conditions == (condition,)
    else:
        with pytest.raises(CallRefusedError, match=condition):
            fault_of(plain)


@given(
    st.recursive(st.none() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x))
)
def test_whatever_is_sent_is_a_fault_or_refused(plain: object) -> None:
    """Any other input raises the refusal and nothing else."""
    with pytest.raises(CallRefusedError):
        fault_of(plain)


def test_a_kind_that_strikes_once_takes_no_trigger() -> None:
    """Holding KV blocks does not concern single requests."""
    with pytest.raises(CallRefusedError, match="strikes once"):
        fault_of(wire_form(scheduled("kv_pressure", dose=0.5, trigger={"prefix_hit": True})))


@pytest.mark.parametrize("missing", [FLAG, TOKEN_FILE, FOLDER])
def test_the_gate_is_shut_unless_all_of_it_is_there(tmp_path: Path, missing: str) -> None:
    """Without flag, token or folder every call is refused, whatever else is right."""
    started = drill_arguments(tmp_path / "replica")
    environment = dict(started.environment)
    assert gate(environment).enabled
    del environment[missing]
    shut = gate(environment)
    token = started.token_file.read_text()
    assert not shut.enabled
    assert refusal(shut, "127.0.0.1", [(TOKEN_HEADER.encode(), token.encode())])


@given(
    st.sampled_from(["127.0.0.1", "::1", "10.0.0.7", "8.8.8.8", "nonsense", None]),
    st.booleans(),
    st.booleans(),
)
def test_only_the_loopback_with_the_token_and_no_proxy_is_let_in(
    host: str | None, proxied: bool, right: bool
) -> None:
    """Any one of the three missing is refused."""
    headers = [(TOKEN_HEADER.encode(), b"t" * 20 if right else b"wrong")]
    headers += [(b"x-forwarded-for", b"10.0.0.7")] if proxied else []
    allowed = not refusal(DrillGate(enabled=True, token="t" * 20), host, headers)
    assert allowed == (host in ("127.0.0.1", "::1", None) and right and not proxied)


def test_the_token_is_private_and_new_for_every_start(tmp_path: Path) -> None:
    """Only its owner can read it, and an old client cannot control a new server."""
    first = drill_arguments(tmp_path / "replica")
    token = first.token_file.read_text()
    assert first.token_file.stat().st_mode & 0o077 == 0
    assert first.folder.stat().st_mode & 0o077 == 0
    assert drill_arguments(tmp_path / "replica").token_file.read_text() != token
    assert token not in " ".join([*first.arguments, *first.environment.values()])


def test_a_lease_ends_by_itself_and_at_once_for_what_is_called_back(tmp_path: Path) -> None:
    """No file, a broken file and a past time are ended leases; a name that was undone may not act."""
    assert not read_lease(tmp_path).allows("f")
    write_lease(tmp_path, lease_for(60.0, ("g",)))
    assert read_lease(tmp_path).allows("f")
    assert not read_lease(tmp_path).allows("g")
    write_lease(tmp_path, Lease(ends_at_s=1e-9))
    assert not read_lease(tmp_path).allows("f")
    (tmp_path / "lease.json").write_text("{")
    assert not read_lease(tmp_path).allows("f")


def test_what_is_staged_imports_only_what_a_server_of_vllm_has(tmp_path: Path) -> None:
    """A server's image holds none of our packages; uvicorn is part of vLLM."""
    import sys

    started = drill_arguments(tmp_path / "replica")
    staged = Path(started.environment["PYTHONPATH"].split(os.pathsep)[0])
    files = sorted(staged.rglob("*.py"))
    assert len(files) >= len(list((ROOT / "faults" / "inside").glob("*.py")))
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names.append(node.module or "")
            roots = {name.partition(".")[0] for name in names}
            assert roots <= {*sys.stdlib_module_names, "torch", "uvicorn", "vllm"}, (path.name, roots)


def test_every_kind_is_known_to_the_injector_by_its_wire_form() -> None:
    """Each kind that can be injected is accepted in the form that the client sends."""
    for kind in (*ENGINE_KINDS, *HTTP_KINDS):
        assert fault_of(wire_form(scheduled(kind))).kind == kind
