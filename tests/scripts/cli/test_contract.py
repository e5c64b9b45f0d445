"""``selvage contract validate|schema`` as a user runs it: output, exit codes, no partial files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from scripts.cli.main import app
from tests.support.fleets.synthetic import write_world

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
    """Valid documents of several kinds: exit 0, one line each with the hash."""
    result = run("validate", SHIPPED, world / "contract.yaml", world / "bf16.yaml", world / "scenario.yaml")
    assert result.exit_code == 0
    assert [line.split(": ")[1].split(" ")[0] for line in result.stdout.splitlines()] == [
        "KernelContract",
        "KernelContract",
        "KernelProfile",
        "Scenario",
    ]


def test_validate_json_is_for_machines(world: Path) -> None:
    """--json prints one record per file with its problems, and the exit code is the same."""
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
    """A path that is not a file is bad input."""
    assert run("validate", tmp_path / target).exit_code == 2


def test_cautions_go_to_stderr(world: Path) -> None:
    """A word that kubectl would read differently is named, and the document stays valid."""
    path = world / "plain.yaml"
    text = (world / "contract.yaml").read_text(encoding="utf-8")
    path.write_text(text.replace("description: tests only", "description: on"), encoding="utf-8")
    result = run("validate", path)
    assert result.exit_code == 0
    assert "reads as a boolean" in result.stderr


def test_promises_that_nothing_keeps_are_notes(world: Path) -> None:
    """A contract with unenforced parts is valid; they are noted on stderr and in the JSON."""
    result = run("validate", "--json", world / "contract.yaml")
    (found,) = json.loads(result.stdout)
    assert result.exit_code == 0
    assert found["valid"] is True
    assert "spec.on_controller_loss" in [note["path"] for note in found["notes"]]
    assert result.stderr.count("not enforced yet") == len(found["notes"])


def test_schema_prints_both_forms() -> None:
    """``schema`` lists the kinds; with a kind it prints JSON Schema, or the structural form."""
    assert "KernelProfile" in run("schema").stdout.split()
    plain = json.loads(run("schema", "KernelPool").stdout)
    structural = json.loads(run("schema", "kernelpool", "--structural").stdout)
    assert "$defs" in plain
    assert "$defs" not in structural
    assert run("schema", "Pod").exit_code == 2


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
    """A scenario with unfit files, kinds or measured doses is refused at the place that names them."""
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
    """A fault with a condition in its kernel's profile is accepted, in a scenario and in a suite over it."""
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
    """A profile with samples other than the pinned ones is not valid."""
    with (world / "bf16.npz").open("ab") as stream:
        stream.write(b"x")
    result = run("validate", world / "bf16.yaml")
    assert result.exit_code == 2
    assert "pins another content" in result.stderr
