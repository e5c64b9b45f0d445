"""E5 on a terminal: its expected duration, and its tables."""

from __future__ import annotations

import io
from itertools import count
from pathlib import Path

import pytest
from rich.console import Console

from scripts.e5.run import terminal, trial
from scripts.e5.run.experiment import Options, plan_run
from scripts.e5.run.trial import estimated_s
from scripts.output import TABLE_WIDTH
from tests.support.fleets.e5_world import write_suite


@pytest.mark.slow
def test_the_work_of_all_jobs_is_told_from_short_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a clock on which every trial takes 3 s: their share of the whole, over the processes."""
    options = Options(out=tmp_path / "out", suite=write_suite(tmp_path), jobs=2)
    plan = plan_run(options)
    assert estimated_s(plan.jobs, 1) == 0.0, "a short run is not worth trials"
    monkeypatch.setattr(trial, "WORTH", 0.0)
    ticks = count(0, 3)
    length = sum(job.entry.scenario().spec.horizon_s * len(job.seeds) for job in plan.jobs)
    tried = min(trial.TRIAL_S, plan.entries[0].scenario().spec.horizon_s) * len(plan.seeds)
    found = estimated_s(plan.jobs, 2, lambda: float(next(ticks)))
    assert found == pytest.approx(3.0 * length / tried / 2)
    monkeypatch.setattr(terminal, "estimated_s", lambda jobs, workers: 600.0)
    terminal._say_duration(plan, options)
    assert "this will take about 10 minutes" in capsys.readouterr().err


def test_no_number_of_harm_is_cut_however_long_a_name() -> None:
    """Names are wrapped if the table is wider than the page; points and limits are complete."""
    row = {"scenario": "blue-requantise-w3-one-replica", "mean": -71.43, "limit": -35.92}
    harm = {
        "to": "fixed-bare",
        "note": "",
        "policies": {"learned:artefact=a-policy-of-our-own.yaml": {"worst": {"useful": row, "failed": row}}},
    }
    page = io.StringIO()
    terminal._print_harm(Console(width=TABLE_WIDTH, file=page), harm)
    printed = page.getvalue()
    assert printed.count("-71.43") == printed.count("-35.92") == 2
    assert "…" not in printed
