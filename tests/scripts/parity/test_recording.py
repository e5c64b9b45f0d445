"""Recordings as files: they are read back unchanged, and invalid ones are refused with their place."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contracts.errors import DocumentError
from live.load import LoadRecord
from scripts.parity.observing import busy_between, cpu_ticks, times_of
from scripts.parity.recording import load_recording
from scripts.parity.replaying import drawn
from tests.support.fleets.parity_recordings import recording


def _written(place: Path, change: dict[str, Any] | None = None) -> Path:
    content = json.loads(recording((3.0,), seconds=20.0).model_dump_json())
    for path, value in (change or {}).items():
        at, *rest = path.split(".")
        target = content["runs"][0] if rest else content
        target[rest[0] if rest else at] = value
    file = place / "recording.json"
    file.write_text(json.dumps(content))
    return file


def test_a_recording_comes_back(tmp_path: Path) -> None:
    """Written and read it is the same, lost requests included."""
    whole = recording((3.0,), seconds=20.0)
    lost = whole.runs[0].model_copy(update={"times_ms": ((None,) * 3, *whole.runs[0].times_ms[1:])})
    whole = whole.model_copy(update={"runs": (lost,)})
    file = tmp_path / "recording.json"
    file.write_text(whole.model_dump_json())
    found = load_recording(file)
    assert found == whole
    assert found.runs[0].unanswered == 1


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"calibrate_rps": 5.0}, "calibrate_rps"),
        ({"runs.at_s": [1.0]}, "columns of one length"),
        ({"runs.rate_rps": -1.0}, "runs.0.rate_rps"),
        ({"extra": 1}, "extra"),
        ({"format": 2}, "format"),
    ],
)
def test_what_is_no_recording_is_refused(tmp_path: Path, change: dict[str, Any], told: str) -> None:
    """The error names the place in the file."""
    with pytest.raises(DocumentError, match=told):
        load_recording(_written(tmp_path, change))


def test_arrivals_that_go_back_are_refused(tmp_path: Path) -> None:
    """Arrival times are in order, as the simulator requires."""
    count = len(recording((3.0,), seconds=20.0).runs[0].at_s)
    with pytest.raises(DocumentError, match="go back"):
        load_recording(_written(tmp_path, {"runs.at_s": list(range(count, 0, -1))}))


def test_no_json_is_refused(tmp_path: Path) -> None:
    """A file in another format is bad input."""
    file = tmp_path / "recording.json"
    file.write_text("nothing")
    with pytest.raises(DocumentError, match=r"recording\.json"):
        load_recording(file)


def test_times_are_those_of_whole_answers() -> None:
    """A gap is the rest over the tokens after the first; an incomplete answer has no times."""
    one = LoadRecord(
        started_at_s=0.0,
        slice="",
        streamed=True,
        status=200,
        complete=True,
        begun=True,
        replica="",
        first_ms=50.0,
        duration_ms=150.0,
        error="",
    )
    found = times_of([one, replace(one, complete=False)], np.array([11, 11]))
    assert found[0] == pytest.approx([50.0, 10.0, 150.0])
    assert np.isnan(found[1]).all()


def test_busy_is_what_was_not_idle(tmp_path: Path) -> None:
    """Shares come from two readings of the machine's clock; without it they are unknown."""
    stat = tmp_path / "stat"
    stat.write_text("cpu  60 0 20 15 5 0 0 0 0 0\ncpu0 1\n")
    assert cpu_ticks(stat) == (20.0, 100.0)
    assert busy_between((20.0, 100.0), (50.0, 200.0)) == pytest.approx(0.7)
    nothing = cpu_ticks(tmp_path / "none")
    assert busy_between(nothing, nothing) is None


def test_lengths_have_their_mean_and_limits() -> None:
    """Drawn lengths scatter around their means and never exceed three times them; sigma 0 draws none."""
    load = drawn(50.0, 100.0, 3, (300, 64, 0.4))
    assert load.prompt_tokens.mean() == pytest.approx(300.0, rel=0.05)
    assert load.answer_tokens.max() <= 192
    assert (np.diff(load.at_s) >= 0.0).all()
    assert len(load.at_s) == pytest.approx(5000, rel=0.1)
    alike = drawn(5.0, 10.0, 3, (300, 64, 0.0))
    assert set(alike.prompt_tokens.tolist()) == {300}
