"""Two one-sided tests of MTTR in two worlds, on made-up drills."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from typer import Exit

from contracts.errors import DocumentError
from contracts.rng import stream
from scripts.parity.equivalence import ALPHA, equivalence, lines_of, main, tost_power


def made(place: Path, ratio: float, drills: int = 12, runs: int = 5, spread: float = 0.1) -> Path:
    """Drills with an MTTR ``ratio`` times as long in the simulator, runs scattered by ``spread``."""
    draws = stream(3, "drills")
    for drill in range(drills):
        for world, factor in (("local", 1.0), ("sim", ratio)):
            for run in range(runs):
                mttr_s = 20.0 * (1 + drill) * factor * math.exp(spread * float(draws.normal()))
                write(place / f"{drill}-{world}-{run}", f"drill-{drill}", world, mttr_s)
    return place


def write(folder: Path, drill: str, world: str, mttr_s: float, unrecovered: float = 0.0) -> None:
    """One judged run."""
    measures = {"mttr_s": mttr_s, "unrecovered": unrecovered}
    content = {"drill": drill, "target": world, "verdict": "passed", "measures": measures}
    folder.mkdir(parents=True)
    (folder / "drill.json").write_text(json.dumps(content))


def test_worlds_alike_are_shown_to_be(tmp_path: Path) -> None:
    """A ratio near 1 passes, its limits lie within the margin, and the power is sufficient."""
    found = equivalence([made(tmp_path, 1.02)], 0.2)
    assert found.equivalent
    assert 1.0 / 1.2 < found.ratio_low < found.ratio < found.ratio_high < 1.2
    assert found.power > 0.99
    assert "equivalent." in "\n".join(lines_of(found))


def test_a_ratio_beyond_the_margin_and_too_few_runs_are_not(tmp_path: Path) -> None:
    """Not shown if worlds differ; nor if it cannot be shown, and then more drills are requested."""
    assert not equivalence([made(tmp_path / "far", 1.3)], 0.2).equivalent
    found = equivalence([made(tmp_path / "few", 1.0, drills=4, runs=2, spread=0.5)], 0.2)
    assert not found.equivalent
    assert found.power < 0.2
    assert found.drills_needed is not None
    assert found.drills_needed > 4


def test_at_the_margin_the_claim_is_made_at_most_at_its_level() -> None:
    """At the boundary of the null 5 % are called equivalent; the stated power is that of draws at 1."""
    draws = stream(5, "boundary").normal(size=(4000, 12)) * 0.1
    bound = math.log(1.2)

    def shown(values: np.ndarray) -> float:
        error = values.std(axis=1, ddof=1) / math.sqrt(12)
        half = 1.7958848 * error  # the 95th percentile of t with 11 degrees of freedom
        mean = values.mean(axis=1)
        return float(np.mean((mean - half > -bound) & (mean + half < bound)))

    assert shown(draws + bound) < ALPHA + 0.015
    wide = draws * 2.5
    assert shown(wide) == pytest.approx(tost_power(0.25, 12, bound), abs=0.05)


def test_a_drill_that_recovers_in_one_world_alone_contradicts(tmp_path: Path) -> None:
    """A censored time is neither averaged nor ignored."""
    place = made(tmp_path, 1.0)
    write(place / "a", "stuck", "local", 90.0, unrecovered=1.0)
    write(place / "b", "stuck", "sim", 10.0)
    write(place / "c", "hopeless", "local", 90.0, unrecovered=1.0)
    write(place / "d", "hopeless", "sim", 90.0, unrecovered=1.0)
    found = equivalence([place], 0.2)
    assert not found.equivalent
    assert (found.contradicting, found.left_out) == (("stuck",), ("hopeless",))
    assert len(found.drills) == 12


def test_the_command_prints_and_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """JSON on request, exit code 0 for equivalence; one world alone is bad input."""
    with pytest.raises(Exit) as ended:
        main([made(tmp_path / "both", 1.0)], out=tmp_path / "found.json", as_json=True)
    assert ended.value.exit_code == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((tmp_path / "found.json").read_text())
    assert printed["equivalent"] is True
    write(tmp_path / "one" / "a", "crash", "sim", 5.0)
    with pytest.raises(DocumentError, match="both worlds"):
        equivalence([tmp_path / "one"], 0.2)
