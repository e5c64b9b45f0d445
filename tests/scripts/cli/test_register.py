"""``selvage contract register`` as a user runs it: output, exit codes, no partial files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from scripts.cli.contract import content_sha256
from scripts.cli.main import app
from tests.support.fleets.synthetic import write_world


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


def judged(world: Path, **changes: object) -> str:
    """Write the output of ``evaluate --json`` for the synthetic bf16 build, with changes; the verdict."""
    options: list[str | Path] = [world / "contract.yaml", world / "bf16.yaml"]
    for clause in ("R-fail", "O-print"):
        options += ["--waive", f"{clause}=no server was asked"]
    found: dict[str, object] = json.loads(run("evaluate", "--json", *options).stdout) | changes
    (world / "verdict.json").write_text(json.dumps(found), encoding="utf-8")
    return str(found["verdict"])


def tighten(world: Path, threshold: float) -> None:
    """Let the contract ask for another threshold of mean KL."""
    file = world / "contract.yaml"
    document = yaml.safe_load(file.read_text(encoding="utf-8"))
    document["spec"]["clauses"][0]["threshold"] = threshold
    file.write_text(yaml.safe_dump(document), encoding="utf-8")


@pytest.mark.parametrize(
    ("foreign", "value"),
    [
        ("contract_sha256", "another"),
        ("samples_sha256", "another"),
        ("condition", "requantise-w4"),
        ("split", "probe"),
        ("confidence", 0.501),
        ("least_observations", 2),
    ],
)
def test_evidence_about_something_else_is_refused(foreign: str, value: object, world: Path) -> None:
    """A verdict on another contract, other samples, a kernel under fault, fewer prompts or on easier terms
    is no evidence for this build.
    """
    judged(world, **{foreign: value})
    result = add(world)
    assert result.exit_code == 2
    assert foreign in result.stderr
    assert not (world / "register.jsonl").exists()


def test_the_register_follows_a_build_through_promotion(world: Path) -> None:
    """Fail is refused (exit 1, nothing written), pass and override are kept, the chain verifies."""
    tighten(world, 1e-9)
    assert judged(world) == "fail"
    for more in ([], ["--override-reason", "known flake"]):
        refused = add(world, "--promote", *more)
        assert refused.exit_code == 1
        assert not (world / "register.jsonl").exists()
    answered = ["--override-reason", "known flake", "--override-author", "Ada"]
    assert add(world, "--promote", *answered).exit_code == 0
    tighten(world, 2e-3)
    assert judged(world) == "pass"
    entry = json.loads(add(world, "--promote", "--json").stdout)
    assert (entry["sequence"], entry["verdict"], entry["decision"]) == (2, "pass", "promoted")
    listed = json.loads(run("register", "list", "--json", "-f", world / "register.jsonl").stdout)
    assert [row["override_reason"] for row in listed] == ["known flake", ""]
    assert "known flake" in run("register", "show", "1", "-f", world / "register.jsonl").stdout
    head = listed[1]["entry_sha256"]
    assert run("register", "verify", "--head", head, "-f", world / "register.jsonl").exit_code == 0


def test_a_changed_or_cut_register_exits_two(world: Path) -> None:
    """An edited line and a missing tail are found; a missing entry is bad input."""
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
    assert judged(world) == "pass"
    for changes in ({"verdict": "fail"}, {"condition": "requantise-w4"}):
        judged(world, **changes)
        refused = add(world, "--verdict", "pass", "--promote")
        assert refused.exit_code == 2
        assert f"verdict.json {next(iter(changes))}" in refused.stderr
    assert not (world / "register.jsonl").exists()
    (world / "verdict.json").write_text("a lab's report", encoding="utf-8")
    entry = json.loads(add(world, "--verdict", "pass", "--json").stdout)
    assert (entry["verdict"], entry["verdict_source"]) == ("pass", "claimed")
    promoted = add(world, "--verdict", "pass", "--promote")
    assert promoted.exit_code == 1


def test_a_verdict_that_the_samples_do_not_give_is_refused(world: Path) -> None:
    """Evaluate is repeated: an edited verdict is found, whichever way it was edited."""
    judged(world, verdict="fail")
    assert "as the samples say" in add(world).stderr
    tighten(world, 1e-9)
    judged(world, verdict="pass")
    assert add(world, "--promote").exit_code == 2
    assert not (world / "register.jsonl").exists()


def test_a_register_that_is_not_there_is_not_intact(world: Path) -> None:
    """``verify`` on a missing file exits 2."""
    assert run("register", "verify", "-f", world / "none.jsonl").exit_code == 2


def test_a_verdict_must_come_from_somewhere(world: Path) -> None:
    """Neither an invalid word nor evidence without a verdict is accepted."""
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
