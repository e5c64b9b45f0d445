"""``selvage parity``: a recording judged again; invalid requests are refused before anything starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from scripts.cli.main import app
from scripts.parity.recording import MeasuredCapacity, RequestObjectives
from tests.support.fleets.parity_recordings import SERVED, recording

RUN = CliRunner()


def _recording(place: Path, busy_ratio: float = 0.5) -> Path:
    capacity = MeasuredCapacity(
        objectives=RequestObjectives(gap_ms=30.0),
        seconds=20.0,
        tried_rps=(9.0,),
        kept=(0.97,),
        carried_rps=9.0,
    )
    whole = recording(seconds=30.0).model_copy(update={"serving": SERVED, "capacity": capacity})
    runs = tuple(run.model_copy(update={"busy_ratio": busy_ratio}) for run in whole.runs)
    whole = whole.model_copy(update={"runs": runs})
    file = place / "recording.json"
    file.write_text(whole.model_dump_json())
    return file


def test_a_recording_is_judged_again(tmp_path: Path) -> None:
    """Figures, page and JSON of a recording are made without a server, at the requested rate."""
    words = ["parity", "--from", str(_recording(tmp_path)), "--out", str(tmp_path / "out"), "--json"]
    done = RUN.invoke(app, [*words, "--calibrate-at", "9"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found == json.loads((tmp_path / "out" / "parity.json").read_text())
    assert found["judged"] == {"steps alone": 12, "measured": 12, "calibrated": 12}
    assert found["misses"]["measured"] == 0
    assert found["misses"]["steps alone"] >= 10
    assert found["unanswered"] == [0] * 6
    assert found["quiet_enough"] is True
    capacities = found["capacities"]
    assert capacities["calibrated"]["simulated_rps"] < capacities["steps alone"]["simulated_rps"]
    assert found["calibrate_rps"] == 9.0
    page = (tmp_path / "out" / "parity.md").read_text()
    assert "| 9 (calibrated) | first token | 50 |" in page
    assert "no comparison" not in page
    assert "live 9.00 requests/s" in page


def test_a_busy_machine_is_no_comparison(tmp_path: Path) -> None:
    """If the machine was busier than 70 % the page says that nothing was compared."""
    done = RUN.invoke(app, ["parity", "--from", str(_recording(tmp_path, 0.95)), "--calibrate-at", "3"])
    assert done.exit_code == 0, done.output
    assert "This is no comparison" in done.stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--rates", "3,none"], "--rates"),
        (["--rates", "3,6", "--calibrate-at", "5"], "--calibrate-at"),
        (["--load-cores", "a"], "--load-cores"),
        (["--server-cores", "a"], "--server-cores"),
        (["--max-batch-tokens", "8"], "--max-batch-tokens"),
        (["--from", "nowhere.json"], "nowhere.json"),
    ],
)
def test_bad_options_are_refused_first(words: list[str], told: str) -> None:
    """Exit code 2 and the option's name, before a server is started."""
    done = RUN.invoke(app, ["parity", *words])
    assert done.exit_code == 2
    assert told in done.output
