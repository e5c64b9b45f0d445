"""``selvage e5`` on the command line: exit codes and messages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from scripts.cli.main import app
from scripts.e5.run.experiment import Options
from scripts.e5.run.terminal import configurations_of
from tests.support.fleets.e5_world import write_suite


@pytest.mark.parametrize(
    "words, message",
    [
        (["--suite", "absent.yaml"], "absent.yaml"),
        (["--suite", "package:contracts/library/suites/absent.yaml"], "absent.yaml"),
        (["--policies", "magic"], "magic"),
        (["--seeds", "0"], "--seeds"),
        (["--jobs", "-1"], "--jobs"),
        (["--trace", "absent.csv"], "absent.csv"),
    ],
)
def test_bad_input_exits_2_and_writes_nothing(tmp_path: Path, words: list[str], message: str) -> None:
    """Every refused input ends with code 2, names the wrong word, and leaves no folder behind."""
    known = [] if "--suite" in words else ["--suite", str(write_suite(tmp_path))]
    out = tmp_path / "out"
    result = CliRunner().invoke(app, ["e5", *known, *words, "--out", str(out)])
    assert result.exit_code == 2
    assert message in result.output
    assert not out.exists()


def test_an_unusable_out_is_refused_before_any_work(tmp_path: Path) -> None:
    """A result folder that cannot be made ends with code 2 before the first episode runs."""
    occupied = tmp_path / "file"
    occupied.write_text("", encoding="utf-8")
    suite = str(write_suite(tmp_path))
    result = CliRunner().invoke(app, ["e5", "--suite", suite, "--out", str(occupied / "out")])
    assert result.exit_code == 2
    assert "folder" in result.output


@pytest.mark.slow
def test_json_on_stdout_is_the_file(tmp_path: Path) -> None:
    """With --json the standard output is one object, equal to e5.json."""
    suite = write_suite(tmp_path, 120.0, sweep=[])
    words = ["e5", "--suite", str(suite), "--policies", "fixed", "--seeds", "2", "--jobs", "1", "--json"]
    result = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "out")])
    assert result.exit_code == 0
    printed = json.loads(result.stdout)
    assert printed == json.loads((tmp_path / "out" / "e5.json").read_text(encoding="utf-8"))
    assert printed["header"]["policies"] == ["fixed-bare", "fixed"]


@pytest.mark.parametrize(
    "words, stress_seeds",
    [
        ([], 2),
        (["--seeds", "1"], 1),
        (["--stress-seeds", "3"], 3),
        (["--stress-seeds", "0"], None),
        (["--suite", "SUITE"], None),
        (["--trace", "trace.csv"], None),
    ],
)
def test_the_stress_part_follows_the_shipped_suite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], stress_seeds: int | None
) -> None:
    """It has its own folder and fewer seeds, and follows nothing else."""
    runs: list[Options] = []
    monkeypatch.setattr("scripts.cli.e5.run_and_show", lambda options, **_: runs.append(options))
    words = [str(write_suite(tmp_path)) if one == "SUITE" else one for one in words]
    out = tmp_path / "out"
    result = CliRunner().invoke(app, ["e5", *words, "--policies", "sequential", "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert runs[0].out == out
    after = [(one.out, one.suite and one.suite.name, one.seeds, one.policies) for one in runs[1:]]
    expected = (out / "stress", "e5-stress.yaml", stress_seeds, ("sequential",))
    assert after == ([] if stress_seeds is None else [expected])


def test_a_comma_may_belong_to_a_setting() -> None:
    """Settings of one policy are separated by commas, and so are policies."""
    assert configurations_of("fixed,hysteresis:dwell_s=60,step_s=10@0.99,threshold") == (
        "fixed",
        "hysteresis:dwell_s=60,step_s=10@0.99",
        "threshold",
    )
