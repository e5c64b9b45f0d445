"""The ``selvage simulate`` command: same bytes, exit codes, files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from scripts.cli.main import app
from tests.support.fleets.synthetic import scenario_document, write_world

FAULT = {
    "name": "bad",
    "kind": "requantise",
    "condition": "requantise-w4",
    "onset_s": 10.0,
    "target": {"kernel": "bf16"},
}


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    """A short scenario with a silent fault."""
    return write_world(tmp_path, scenario_document(faults=[FAULT], horizon_s=30.0))


def test_same_arguments_give_same_bytes(scenario: Path) -> None:
    """Two runs print the same JSON, with sorted keys and a header that names the run."""
    arguments = ["simulate", str(scenario), "--policy", "threshold", "--seeds", "2", "--json"]
    one, other = (CliRunner().invoke(app, arguments) for _ in range(2))
    assert one.exit_code == 0, one.output
    assert one.stdout == other.stdout
    content = json.loads(one.stdout)
    assert list(content) == sorted(content)
    assert content["policy"] == "threshold"
    assert content["seeds"] == [0, 1]
    low, high = content["limits"]["answered_requests"]
    assert low < content["mean"]["answered_requests"] < high
    assert len(content["episodes"]) == 2


def test_out_holds_summary_and_decisions(scenario: Path, tmp_path: Path) -> None:
    """With --out the folder holds the printed summary and one decision per tick and seed, no more."""
    out = tmp_path / "out"
    arguments = ["simulate", str(scenario), "--seeds", "2", "--json", "--out", str(out)]
    result = CliRunner().invoke(app, arguments)
    assert json.loads((out / "summary.json").read_text()) == json.loads(result.stdout)
    decisions = [json.loads(line) for line in (out / "decisions.jsonl").read_text().splitlines()]
    assert [(line["tick"], line["seed"]) for line in decisions[:3]] == [(1, 0), (1, 1), (2, 0)]
    assert len(decisions) == 60
    assert sorted(path.name for path in out.iterdir()) == ["decisions.jsonl", "summary.json"]


def test_people_get_a_table(scenario: Path) -> None:
    """Without --json a table of the means is printed."""
    result = CliRunner().invoke(app, ["simulate", str(scenario)])
    assert result.exit_code == 0
    assert "quality preserved" in result.stdout


@pytest.mark.parametrize(
    "arguments",
    [["nowhere.yaml"], ["SCENARIO", "--policy", "nope"], ["SCENARIO", "--seeds", "0"], ["CONTRACT"]],
)
def test_bad_input_exits_2(scenario: Path, arguments: list[str]) -> None:
    """A missing file, an unknown policy, no seeds, and another kind of document end with exit code 2."""
    places = {"SCENARIO": str(scenario), "CONTRACT": str(scenario.parent / "contract.yaml")}
    result = CliRunner().invoke(app, ["simulate", *(places.get(word, word) for word in arguments)])
    assert result.exit_code == 2
    assert result.stdout == ""


TRACE = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
    f"2023-11-16 18:17:{second:02d}.5000000,{100 + second},{10 + second}\n" for second in range(60)
)


def test_a_trace_replaces_the_arrivals(scenario: Path, tmp_path: Path) -> None:
    """With --trace the requests are the recorded ones, at the scenario's mean rate."""
    trace = tmp_path / "trace.csv"
    trace.write_text(TRACE)
    arguments = ["simulate", str(scenario), "--seeds", "2", "--json"]
    own, replayed = (CliRunner().invoke(app, [*arguments, *more]) for more in ([], ["--trace", str(trace)]))
    offered = [
        [each["offered_requests"] for each in json.loads(done.stdout)["episodes"]] for done in (own, replayed)
    ]
    assert offered[0][0] != offered[0][1]
    assert offered[1][0] == pytest.approx(offered[0][0], rel=0.3)


def test_a_bad_trace_is_refused_with_its_line(scenario: Path, tmp_path: Path) -> None:
    """A hole in the trace ends with exit code 2, file and line; the results folder is not made."""
    trace, out = tmp_path / "trace.csv", tmp_path / "out"
    trace.write_text(TRACE + "2023-11-16 20:00:00,5,5\n")
    result = CliRunner().invoke(app, ["simulate", str(scenario), "--trace", str(trace), "--out", str(out)])
    assert result.exit_code == 2
    assert f"{trace}:62 TIMESTAMP" in result.stderr
    assert not out.exists()


def test_an_unusable_results_folder_is_refused_before_the_run(scenario: Path, tmp_path: Path) -> None:
    """A file in place of the results folder ends with exit code 2."""
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(app, ["simulate", str(scenario), "--out", str(tmp_path / "file")])
    assert result.exit_code == 2
    assert "a folder that can be written" in result.stderr
