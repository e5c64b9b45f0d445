"""``selvage contract register`` as a user runs it: output, exit codes, nothing torn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from contracts.loading.loader import document_sha256, load_document
from scripts.cli.contract import content_sha256
from scripts.cli.main import app
from tests.support.synthetic import write_world


def run(*arguments: str | Path) -> Result:
    """``selvage contract ARGUMENTS``."""
    return CliRunner().invoke(app, ["contract", *map(str, arguments)])


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """A folder with synthetic profiles, contract and scenario."""
    write_world(tmp_path)
    return tmp_path


def add(world: Path, *more: str | Path) -> Result:
    """``register add`` of the synthetic bf16 build."""
    build: list[str | Path] = ["--checkpoint", world / "bf16.npz", "--kernel", world / "bf16.yaml"]
    judged: list[str | Path] = ["--contract", world / "contract.yaml", "--evidence", world / "verdict.json"]
    return run("register", "add", *build, *judged, "--file", world / "register.jsonl", *more)


def judged(world: Path, **changes: object) -> None:
    """Write what ``evaluate --json`` says of the synthetic bf16 build, with changes."""
    found: dict[str, object] = {
        "verdict": "pass",
        "condition": "healthy",
        "contract_sha256": document_sha256(load_document(world / "contract.yaml")),
        "samples_sha256": content_sha256(str(world / "bf16.npz")),
    }
    (world / "verdict.json").write_text(json.dumps(found | changes), encoding="utf-8")


@pytest.mark.parametrize("foreign", ["contract_sha256", "samples_sha256", "condition"])
def test_evidence_about_something_else_is_refused(foreign: str, world: Path) -> None:
    """A verdict on another contract, other samples or a kernel under fault says nothing of this build."""
    judged(world, **{foreign: "another"})
    result = add(world)
    assert result.exit_code == 2
    assert foreign in result.stderr
    assert not (world / "register.jsonl").exists()


def test_the_register_follows_a_build_through_promotion(world: Path) -> None:
    """Fail is refused (exit 1, nothing written), pass and override are kept, the chain verifies."""
    judged(world, verdict="fail")
    refused = add(world, "--promote")
    assert refused.exit_code == 1
    assert not (world / "register.jsonl").exists()
    assert add(world, "--promote", "--override-reason", "known flake").exit_code == 0
    judged(world, verdict="pass")
    entry = json.loads(add(world, "--promote", "--json").stdout)
    assert (entry["sequence"], entry["verdict"], entry["decision"]) == (2, "pass", "promoted")
    listed = json.loads(run("register", "list", "--json", "-f", world / "register.jsonl").stdout)
    assert [row["override_reason"] for row in listed] == ["known flake", ""]
    assert "known flake" in run("register", "show", "1", "-f", world / "register.jsonl").stdout
    head = listed[1]["entry_sha256"]
    assert run("register", "verify", "--head", head, "-f", world / "register.jsonl").exit_code == 0


def test_a_changed_or_cut_register_exits_two(world: Path) -> None:
    """An edited line and a missing tail are found; an entry that is not there is bad input."""
    path = world / "register.jsonl"
    missing = add(world, "--verdict", "pass")
    assert (missing.exit_code, path.exists()) == (2, False)
    (world / "verdict.json").write_text("{}", encoding="utf-8")
    heads = [json.loads(add(world, "--verdict", "pass", "--json").stdout)["entry_sha256"] for _ in range(2)]
    whole = path.read_text(encoding="utf-8")
    path.write_text(whole.splitlines(keepends=True)[0], encoding="utf-8")
    assert run("register", "verify", "-f", path).exit_code == 0
    cut = run("register", "verify", "--head", heads[1], "-f", path)
    assert cut.exit_code == 2
    assert "no such entry" in cut.stderr
    path.write_text(whole.replace('"bf16"', '"fp32"'), encoding="utf-8")
    assert run("register", "list", "-f", path).exit_code == 2
    assert run("register", "show", "9", "-f", world / "none.jsonl").exit_code == 2


def test_a_claimed_verdict_does_not_overrule_the_evidence(world: Path) -> None:
    """Evidence that says ``fail``, or is about a kernel under fault, is not entered as ``pass``."""
    for changes in ({"verdict": "fail"}, {"condition": "requantise-w4"}):
        judged(world, **changes)
        refused = add(world, "--verdict", "pass", "--promote")
        assert refused.exit_code == 2
        assert f"verdict.json {next(iter(changes))}" in refused.stderr
    assert not (world / "register.jsonl").exists()
    (world / "verdict.json").write_text("a lab's report", encoding="utf-8")
    assert add(world, "--verdict", "pass").exit_code == 0


def test_a_verdict_must_come_from_somewhere(world: Path) -> None:
    """Neither a bad word nor evidence without a verdict is taken."""
    (world / "verdict.json").write_text("[]", encoding="utf-8")
    assert add(world).exit_code == 2
    assert add(world, "--verdict", "fine").exit_code == 2
    (world / "verdict.json").write_text("not JSON", encoding="utf-8")
    assert "JSON" in add(world).stderr


def test_a_checkpoint_is_a_file_a_folder_or_a_hash(tmp_path: Path) -> None:
    """Folders hash by names and contents; a hash stands for itself."""
    (tmp_path / "a").write_bytes(b"1")
    first = content_sha256(str(tmp_path))
    (tmp_path / "b").write_bytes(b"2")
    assert content_sha256(str(tmp_path)) != first
    assert content_sha256("f" * 64) == "f" * 64


def test_the_output_of_evaluate_is_evidence(world: Path) -> None:
    """What ``evaluate --json`` prints for a profile and a contract can be entered for that pair."""
    evaluated = run("evaluate", "--json", world / "contract.yaml", world / "bf16.yaml")
    (world / "verdict.json").write_text(evaluated.stdout, encoding="utf-8")
    entry = json.loads(add(world, "--json").stdout)
    assert entry["verdict"] == json.loads(evaluated.stdout)["verdict"]
    assert entry["decision"] == "recorded"
