"""``selvage contract validate|schema|register`` as a user runs it: output, exit codes, nothing torn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from contracts.errors import DocumentError
from contracts.loader import document_sha256, load_document
from contracts.uris import read_pinned, resolve_uri
from scripts.cmd_contract import content_sha256
from scripts.selvage import app
from tests.synthetic import write_world

FAULT = """faults:
  - {{name: f, kind: requantise, condition: {}, target: {{kernel: bf16}}, onset_s: 1.0}}"""
SUITE = """apiVersion: selvage.dev/v1alpha1
kind: Suite
metadata: {name: suite}
spec:
  description: tests only
  base: scenario.yaml
  scenarios:
    - name: noise
      faults: [{name: f, kind: noise, condition: noise-30, onset_s: 1.0}]
"""
SHIPPED = "package:contracts/library/serving-pool.yaml"


def run(*arguments: str | Path) -> Result:
    """``selvage contract ARGUMENTS``."""
    return CliRunner().invoke(app, ["contract", *map(str, arguments)])


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """A folder with synthetic profiles, contract and scenario."""
    write_world(tmp_path)
    return tmp_path


def test_validate_says_what_is_valid(world: Path) -> None:
    """Sound documents of several kinds: exit 0, one line each with the hash."""
    result = run("validate", SHIPPED, world / "contract.yaml", world / "bf16.yaml", world / "scenario.yaml")
    assert result.exit_code == 0
    assert [line.split(": ")[1].split(" ")[0] for line in result.stdout.splitlines()] == [
        "KernelContract", "KernelContract", "KernelProfile", "Scenario",
    ]  # fmt: skip


def test_validate_json_is_for_machines(world: Path) -> None:
    """--json prints one record per file with its problems, and the exit code still tells."""
    bad = world / "bad.yaml"
    bad.write_text((world / "contract.yaml").read_text(encoding="utf-8") + "spec: {}\n", encoding="utf-8")
    result = run("validate", "--json", world / "contract.yaml", bad)
    good, refused = json.loads(result.stdout)
    assert result.exit_code == 2
    assert good["valid"] is True
    assert len(good["sha256"]) == 64
    assert refused["valid"] is False
    assert refused["problems"][0]["path"] == "spec"
    assert refused["problems"][0]["line"] > 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a: &a [x]\nb: [*a, *a]\n", "bad.yaml:1 a: expected no anchors"),
        (b"kind: KernelContract\nkind: Pod\n", "bad.yaml:2 kind: expected each key once"),
        (b"\x00\xff\x13garbage", "bad.yaml:1: expected UTF-8 text"),
        (b"apiVersion: selvage.dev/v1alpha1\nkind: KernelContract\nmetadata: {name: a}\nspec:\n", "spec"),
        (b"spec: [1, 2\n", "expected YAML"),
    ],
)
def test_bad_input_exits_two_with_file_and_line(content: bytes, said: str, tmp_path: Path) -> None:
    """Hostile or broken files: exit 2, the place on stderr, nothing on stdout, no traceback."""
    path = tmp_path / "bad.yaml"
    path.write_bytes(content)
    result = run("validate", path)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.output


@pytest.mark.parametrize("target", ["", "missing.yaml"])
def test_folders_and_missing_files_exit_two(target: str, tmp_path: Path) -> None:
    """What is no file is bad input."""
    assert run("validate", tmp_path / target).exit_code == 2


def test_cautions_go_to_stderr(world: Path) -> None:
    """A word that kubectl would read otherwise is named, and the document stays valid."""
    path = world / "plain.yaml"
    text = (world / "contract.yaml").read_text(encoding="utf-8")
    path.write_text(text.replace("description: tests only", "description: on"), encoding="utf-8")
    result = run("validate", path)
    assert result.exit_code == 0
    assert "reads as a boolean" in result.stderr


def test_schema_prints_both_forms() -> None:
    """``schema`` lists the kinds; with a kind it prints JSON Schema, or the structural form."""
    assert "KernelProfile" in run("schema").stdout.split()
    plain = json.loads(run("schema", "KernelPool").stdout)
    structural = json.loads(run("schema", "kernelpool", "--structural").stdout)
    assert "$defs" in plain
    assert "$defs" not in structural
    assert run("schema", "Pod").exit_code == 2


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


@pytest.mark.parametrize(
    "uri",
    ["package:contracts", "package:contracts/../../etc/passwd", "package:no_such_package/a", "https://x/y"],
)
def test_uris_that_leave_the_rules_are_refused(uri: str) -> None:
    """Nothing is fetched, and package data stays inside the package."""
    with pytest.raises(DocumentError):
        resolve_uri(uri, "doc.yaml")


def test_uris_are_relative_to_their_document(tmp_path: Path) -> None:
    """A plain URI lies beside the document; file:// and absolute paths are themselves."""
    assert resolve_uri("a/b.npz", tmp_path / "doc.yaml") == tmp_path / "a" / "b.npz"
    assert resolve_uri("/x/y", tmp_path / "doc.yaml") == Path("/x/y")
    assert resolve_uri("file:///x/y%20z", tmp_path / "doc.yaml") == Path("/x/y z")


def test_pinned_files_must_match(world: Path) -> None:
    """A file with another content than the document pins is refused with both hashes."""
    from contracts.documents import FileRef

    good = FileRef(uri="bf16.npz", sha256=content_sha256(str(world / "bf16.npz")))
    assert read_pinned(good, world / "bf16.yaml") == (world / "bf16.npz").read_bytes()
    with pytest.raises(DocumentError, match="pins another content"):
        read_pinned(FileRef(uri="bf16.npz", sha256="0" * 64), world / "bf16.yaml")
    with pytest.raises(DocumentError, match="readable file"):
        read_pinned(FileRef(uri="gone.npz", sha256="0" * 64), world / "bf16.yaml")


REFERENCES = {
    "lost profile": (
        ("profile: int8.yaml", "profile: gone.yaml"),
        "spec.pool.kernels[2].profile",
        "gone.yaml",
    ),
    "lost contract": (("contract: contract.yaml", "contract: gone.yaml"), "spec.contract", "gone.yaml"),
    "profile for a contract": (
        ("contract: contract.yaml", "contract: bf16.yaml"),
        "spec.contract",
        "KernelProfile",
    ),
    "unmeasured dose": (
        ("faults: []", FAULT.format("requantise-w2")),
        "spec.faults[0].condition",
        "requantise-w3",
    ),
}


@pytest.mark.parametrize("case", REFERENCES)
def test_validate_follows_references(case: str, world: Path) -> None:
    """A scenario whose files, kinds or measured doses do not fit is refused where it names them."""
    (old, new), path, said = REFERENCES[case]
    scenario = world / "scenario.yaml"
    text = scenario.read_text(encoding="utf-8")
    assert old in text
    scenario.write_text(text.replace(old, new), encoding="utf-8")
    result = run("validate", scenario)
    assert result.exit_code == 2
    assert path in result.stderr
    assert said in result.stderr
    assert run("validate", "--no-references", scenario).exit_code == 0


def test_a_trace_with_a_gap_is_refused_at_its_line(world: Path) -> None:
    """``validate`` reads the trace that a scenario replays."""
    rows = ("2023-11-16 18:17:03,5,5", "2023-11-16 18:17:04,5,5", "2023-11-16 20:17:04,5,5")
    (world / "trace.csv").write_text("\n".join(("TIMESTAMP,ContextTokens,GeneratedTokens", *rows)))
    scenario = world / "scenario.yaml"
    text = scenario.read_text(encoding="utf-8")
    replay = "arrivals: trace\n    trace_uri: trace.csv"
    assert "arrivals: poisson" in text
    scenario.write_text(text.replace("arrivals: poisson", replay), encoding="utf-8")
    result = run("validate", scenario)
    assert result.exit_code == 2
    assert "spec.workload.trace_uri: expected a gap of at most 600 s" in result.stderr
    assert "trace.csv:4 TIMESTAMP" in result.stderr


def test_measured_doses_are_accepted(world: Path) -> None:
    """A fault whose condition its kernel's profile holds is fine, in a scenario and in a suite over it."""
    scenario, suite = world / "scenario.yaml", world / "suite.yaml"
    text = scenario.read_text(encoding="utf-8")
    scenario.write_text(text.replace("faults: []", FAULT.format("requantise-w4")), encoding="utf-8")
    suite.write_text(SUITE, encoding="utf-8")
    assert run("validate", scenario, suite).exit_code == 0
    suite.write_text(SUITE.replace("noise-30", "noise-99"), encoding="utf-8")
    result = run("validate", suite)
    assert result.exit_code == 2
    assert "suite.yaml:9 spec.scenarios[0].faults[0].condition" in result.stderr


def test_samples_that_changed_are_refused(world: Path) -> None:
    """A profile whose samples are not the pinned ones is not valid."""
    with (world / "bf16.npz").open("ab") as stream:
        stream.write(b"x")
    result = run("validate", world / "bf16.yaml")
    assert result.exit_code == 2
    assert "pins another content" in result.stderr


def test_the_output_of_evaluate_is_evidence(world: Path) -> None:
    """What ``evaluate --json`` prints for a profile and a contract can be entered for that pair."""
    evaluated = run("evaluate", "--json", world / "contract.yaml", world / "bf16.yaml")
    (world / "verdict.json").write_text(evaluated.stdout, encoding="utf-8")
    entry = json.loads(add(world, "--json").stdout)
    assert entry["verdict"] == json.loads(evaluated.stdout)["verdict"]
    assert entry["decision"] == "recorded"
