"""Drills of both worlds side by side, from the files of drills."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from contracts.errors import DocumentError
from scripts.parity.drills import drill_lines, drill_parity


def _drill(place: Path, name: str, **more: Any) -> None:
    measures = {"detection_lag_s": 2.0, "mttr_s": 10.0, "false_switches": 0.0} | more.pop("measures", {})
    content = {"drill": "crash", "target": "sim", "verdict": "passed", "measures": measures} | more
    (place / name).mkdir(parents=True)
    (place / name / "drill.json").write_text(json.dumps(content))


def test_measures_stand_side_by_side(tmp_path: Path) -> None:
    """Means over the runs of each world, without unknown ones, other drills and invalid runs."""
    _drill(tmp_path, "sim-1")
    _drill(tmp_path, "sim-2", measures={"mttr_s": 14.0, "detection_lag_s": None})
    _drill(tmp_path, "live-1", target="local", measures={"mttr_s": 8.0})
    _drill(tmp_path, "live-2", target="local", verdict="invalid", measures={"mttr_s": 800.0})
    _drill(tmp_path, "other", drill="hang")
    found = {one.measure: one for one in drill_parity([tmp_path])}
    assert set(found) == {"detection_lag_s", "mttr_s", "false_switches"}
    assert (found["mttr_s"].live, found["mttr_s"].simulated) == (8.0, 12.0)
    assert found["mttr_s"].ratio == pytest.approx(1.5)
    assert found["detection_lag_s"].simulated_runs == 1
    assert math.isnan(found["false_switches"].ratio)
    assert "| crash | mttr_s | 8.00 | 1 | 12.00 | 2 | 1.50 |" in drill_lines(list(found.values()))


def test_a_folder_without_drills_is_refused(tmp_path: Path) -> None:
    """An empty folder is an error, not a table without rows."""
    with pytest.raises(DocumentError, match=r"drill\.json"):
        drill_parity([tmp_path])


@pytest.mark.parametrize("text", ["nothing", "[]", '{"drill": "a", "target": "sim", "verdict": "passed"}'])
def test_what_no_drill_wrote_is_refused(tmp_path: Path, text: str) -> None:
    """The error names the file."""
    (tmp_path / "drill.json").write_text(text)
    with pytest.raises(DocumentError, match=r"drill\.json"):
        drill_parity([tmp_path])
