"""``selvage drill`` on the simulated fleet: codes, files, and refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from faults.catalogue import CATALOGUE
from scripts.cli.main import app


def drill(*words: str) -> tuple[int, str]:
    """Exit code and all output."""
    done = CliRunner().invoke(app, ["drill", *words])
    return done.exit_code, done.output


def test_a_run_leaves_a_result_and_a_page(tmp_path: Path) -> None:
    """The exit code is the verdict's, the file has the same, and the page loads nothing."""
    code, said = drill("run", "three-bits", "--policy", "none", "--out", str(tmp_path / "out"))
    found = json.loads((tmp_path / "out" / "drill.json").read_text())
    assert (code, found["exit_code"], found["verdict"]) == (1, 1, "failed")
    assert "three-bits on sim under none: failed" in said
    page = (tmp_path / "out" / "report.html").read_text()
    assert "three-bits" in page
    assert not any(word in page for word in ("<script", "<link", 'src="http'))


def test_the_same_drill_gives_the_same_bytes() -> None:
    """Seed, drill and policy decide everything."""
    first = CliRunner().invoke(app, ["drill", "run", "crash", "--json"])
    second = CliRunner().invoke(app, ["drill", "run", "crash", "--json"])
    assert first.stdout == second.stdout
    assert json.loads(first.stdout)["verdict"] == "passed"


def test_kinds_shows_every_fault_and_one_in_full() -> None:
    """All kinds have a line; one kind shows dose, injection, form on Kubernetes, proof and undo."""
    code, said = drill("kinds")
    assert code == 0
    assert [line.split()[0] for line in said.splitlines()] == CATALOGUE.known()
    code, said = drill("kinds", "latency", "--json")
    assert code == 0
    [found] = json.loads(said)["kinds"]
    assert found["dose"] == "ms, 0 to 600000; 0 changes nothing"
    code, said = drill("kinds", "latency")
    assert code == 0
    texts = [str(value) for key, value in found.items() if key != "name"]
    assert all(text in said for text in texts)


def test_list_and_validate_say_where_drills_run() -> None:
    """A live-only drill says why the simulator refuses it, and is valid all the same."""
    code, said = drill("list", "--json")
    assert code == 0
    assert len(json.loads(said)["drills"]) >= 12
    code, said = drill("validate", "four-bits", "stuck-token")
    assert code == 0
    assert "four-bits: sim: can run" in said
    assert "a kind of fault that can be simulated" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "no-such-drill"), "no-such-drill"),
        (("run", "crash", "--target", "moon"), "--target: expected sim or local"),
        (("run", "crash", "--policy", "nobody-knows-it"), "--policy"),
        (("run", "stuck-token"), "a kind of fault that can be simulated"),
        (("validate", "no-such-drill"), "no-such-drill"),
        (("kinds", "no-such-kind"), "NAME: expected a kind of fault"),
    ],
)
def test_bad_input_is_refused_with_code_2(words: tuple[str, ...], said: str) -> None:
    """Nothing runs, and the error names the place."""
    code, printed = drill(*words)
    assert (code, said in printed) == (2, True)


def test_nothing_to_undo_is_no_error(tmp_path: Path) -> None:
    """A folder without a fleet has nothing in force."""
    assert drill("undo", "--folder", str(tmp_path)) == (0, "nothing is in force\n")
