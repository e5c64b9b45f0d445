"""``selvage policy export`` of a training folder: refusals, and their advice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from contracts.errors import DocumentError
from contracts.loading.shipped import SHIPPED_RECIPE
from scripts.train.exported import write_run


def test_a_run_of_another_recipe_is_told_to_name_its_own(tmp_path: Path) -> None:
    """A finished run is refused under another recipe; training again is not the remedy."""
    found = {"recipe_sha256": "0" * 64, "runs": [{"seed": 0, "score": 1.0, "finished": True}]}
    (tmp_path / "training.json").write_text(json.dumps(found))
    with pytest.raises(DocumentError) as refused:
        write_run(tmp_path, tmp_path / "out", "mine", None, SHIPPED_RECIPE)
    (problem,) = refused.value.problems
    assert SHIPPED_RECIPE in problem.expected
    assert "--recipe" in problem.next_step
    assert not (tmp_path / "out").exists()
