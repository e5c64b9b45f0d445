"""``selvage fleet`` without a fleet: refusals, and cases that are no error."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import cast

import pytest
from typer.testing import CliRunner

from live.errors import LiveError
from live.fleet.state import FleetFolder
from scripts.cli.fleet import _follow
from scripts.cli.main import app


def fleet(*words: str) -> tuple[int, str]:
    """Exit code and all output."""
    done = CliRunner().invoke(app, ["fleet", *words])
    return done.exit_code, done.output


def test_nothing_runs_and_nothing_is_ended(tmp_path: Path) -> None:
    """Without a fleet status reports it with exit code 1, down succeeds, restart is bad input."""
    place = ("--folder", str(tmp_path / "none"))
    code, said = fleet("status", *place)
    assert (code, "no fleet runs" in said) == (1, True)
    code, said = fleet("status", "--json", *place)
    assert (code, json.loads(said)) == (1, {"fleet": None, "up": False})
    assert fleet("down", *place)[0] == 0
    code, said = fleet("restart", "bf16-0", *place)
    assert (code, "no fleet runs there" in said) == (2, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--start", "quickly"), "--start: expected auto, fork, spawn"),
        (("--shadow", "code"), "--shadow: expected SLICE:KERNEL=RATIO"),
        (("--shadow", "code:fp32=2"), "--shadow: expected SLICE:KERNEL=RATIO"),
        (("nowhere.yaml",), "nowhere.yaml"),
    ],
)
def test_bad_options_are_refused_before_anything_starts(
    tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    """Exit code 2, the option and the expected value; no folder is left behind."""
    code, printed = fleet("up", *words, "--folder", str(tmp_path / "none"))
    assert code == 2
    assert said in printed
    assert not (tmp_path / "none").exists()


def test_the_last_words_of_a_fleet_that_did_not_come_up_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its last lines are read, however soon before its end they were written."""
    folder, log = FleetFolder(path=tmp_path), tmp_path / "supervisor.log"
    log.write_text("importing vLLM once\n")

    class Ends:
        """A process that gives its reason and ends when it is polled."""

        pid, returncode = 1, 2

        def poll(self) -> int:
            """Its exit code."""
            log.write_text("importing vLLM once\nport 8000 is taken\n")
            return 2

    with pytest.raises(LiveError, match="exit code 2"):
        _follow(cast("subprocess.Popen[bytes]", Ends()), folder, log, 5.0)
    assert "port 8000 is taken" in capsys.readouterr().err
