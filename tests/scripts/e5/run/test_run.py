"""The experiment end to end on the synthetic world: same results however it is run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contracts.scoring.intervals import poisson_rate
from contracts.units import SECONDS_PER_MONTH
from scripts.e5.run import experiment as e5
from scripts.e5.run import jobs
from scripts.e5.run.experiment import Options, plan_run, run, write_results
from scripts.e5.run.jobs import JobResult
from scripts.e5.scores.results import front
from tests.support.fleets.e5_world import CONFIGURATIONS, write_suite

pytestmark = pytest.mark.slow


def run_small(folder: Path, **options: Any) -> tuple[dict[str, Any], str]:
    """Run the small suite into ``folder``."""
    chosen = replace(Options(out=folder / "out", suite=write_suite(folder)), **options)
    content, page = run(plan_run(chosen), chosen, lambda _: None)
    write_results(chosen.out, content, page)
    return content, page


def test_processes_and_batches_change_no_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One process with all seeds in lock-step and two with one seed at a time give equal bytes."""
    monkeypatch.setattr(e5, "git_sha", lambda: "0" * 40)
    run_small(tmp_path)
    run_small(tmp_path, jobs=2, batch=1, out=tmp_path / "other")
    for name in ("e5.json", "report.html"):
        assert (tmp_path / "other" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()


@pytest.mark.needs("ray")
def test_a_local_ray_changes_no_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs on a Ray cluster give the bytes of one process."""
    monkeypatch.setattr(e5, "git_sha", lambda: "0" * 40)
    run_small(tmp_path)
    run_small(tmp_path, jobs=2, backend="ray", out=tmp_path / "other")
    for name in ("e5.json", "report.html"):
        assert (tmp_path / "other" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()


def test_a_stopped_run_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same command takes finished jobs from the folder, byte for byte; another command takes none."""
    monkeypatch.setattr(e5, "git_sha", lambda: "0" * 40)
    run_small(tmp_path)
    whole = {path.relative_to(tmp_path): path.read_bytes() for path in (tmp_path / "out").rglob("*.*")}
    ran: list[str] = []
    run_job = jobs.run_job

    def counted(job: jobs.Job) -> JobResult:
        ran.append(job.configuration.name)
        return run_job(job)

    monkeypatch.setattr(jobs, "run_job", counted)
    (tmp_path / "out" / "e5.json").unlink()
    for file in sorted((tmp_path / "out" / "jobs").iterdir())[:2]:
        file.write_text("{}")
    run_small(tmp_path)
    examples = sum(
        job.keep_example for job in plan_run(Options(out=tmp_path, suite=write_suite(tmp_path))).jobs
    )
    assert len(ran) == 2 + examples
    assert {
        path.relative_to(tmp_path): path.read_bytes() for path in (tmp_path / "out").rglob("*.*")
    } == whole
    stale = tmp_path / "out" / "parts" / "gone" / "fixed.json"
    stale.parent.mkdir()
    stale.write_text("[]")
    ran.clear()
    content, _ = run_small(tmp_path, seeds=1)
    assert content["header"]["seeds"] == 1
    assert len(ran) > 2 + examples
    assert not stale.exists()


def test_results_have_the_promised_shape(tmp_path: Path) -> None:
    """Every policy has every measure with its limits, overall, by group, by scenario; all is strict JSON."""
    content, page = run_small(tmp_path)
    again = json.loads((tmp_path / "out" / "e5.json").read_text(encoding="utf-8"), parse_constant=pytest.fail)
    assert again == json.loads(json.dumps(content))
    assert set(content["results"]) == set(CONFIGURATIONS)
    assert set(content["results"]["threshold"]["mttr_s"]) == {"mean", "ci_low", "ci_high", "n"}
    assert set(content["scenarios"]) == {"requantise", "crash", "surge"}
    assert content["groups"]["control"]["breaker"]["mttr_s"]["n"] == 0
    assert {"seed", "versions", "contract_sha256", "profile_sha256", "horizon_s"} <= set(content["header"])
    assert len(list((tmp_path / "out" / "parts").rglob("*.json"))) == 3 * len(CONFIGURATIONS) + 2
    assert not list((tmp_path / "out").rglob("*.tmp"))
    assert set(content["harm"]["policies"]) == set(CONFIGURATIONS) - {"fixed-bare"}
    assert "<h2>Harm</h2>" in page
    assert page.count("<svg") >= 3
    for outside in ("http://", "https://", "src=", "@import"):
        assert outside not in page.replace("http://www.w3.org/", "")


def test_a_numeric_fault_is_seen_by_threshold_and_never_by_fixed(tmp_path: Path) -> None:
    """Fixed bare leaves the incident open to the horizon; threshold ends it and keeps more quality."""
    content, _ = run_small(tmp_path)
    rows = content["scenarios"]["requantise"]
    assert rows["fixed-bare"]["mttr_s"]["mean"] == 240 - 47
    assert rows["fixed-bare"]["unrecovered"]["mean"] == 1.0
    assert rows["threshold"]["mttr_s"]["mean"] < 240 - 47
    assert (
        rows["threshold"]["quality_preservation"]["mean"] > rows["fixed-bare"]["quality_preservation"]["mean"]
    )


def test_a_fault_that_ends_early_is_also_scored_to_its_end(tmp_path: Path) -> None:
    """Only the scenario with a fault that ends before the horizon has measures until then."""
    content, _ = run_small(tmp_path)
    assert set(content["until_fault_end"]) == {"crash"}
    assert content["until_fault_end"]["crash"]["breaker"]["mttr_s"]["mean"] <= 90.0


def test_false_switches_are_counts_over_slice_months(tmp_path: Path) -> None:
    """Two seeds of 240 s with five slices are 2400 slice-seconds; the limits are the exact Poisson ones."""
    content, _ = run_small(tmp_path)
    leaf = content["scenarios"]["surge"]["fixed-bare"]["false_switches_per_slice_month"]
    expected = poisson_rate(0, 2 * 240 * 5 / SECONDS_PER_MONTH)
    assert (leaf["mean"], leaf["ci_high"]) == (0.0, pytest.approx(expected.ci_high))


def test_an_interrupted_run_leaves_whole_parts_and_no_result(tmp_path: Path) -> None:
    """Interrupted after three jobs, three parts stand there and neither result file does."""
    options = Options(out=tmp_path / "out", suite=write_suite(tmp_path))
    seen: list[JobResult] = []

    def stop_after_three(result: JobResult) -> None:
        seen.append(result)
        if len(seen) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(plan_run(options), options, stop_after_three)
    parts = list((tmp_path / "out" / "parts").rglob("*.json"))
    assert len(parts) == 3
    assert all(json.loads(part.read_text(encoding="utf-8")) for part in parts)
    assert not (tmp_path / "out" / "e5.json").exists()


def test_the_front_keeps_what_nothing_beats() -> None:
    """Of four points the one dominated on both coordinates is left out, and so is an unknown one."""
    points = {"a": (0.0, 9.0), "b": (2.0, 5.0), "c": (3.0, 6.0), "d": (4.0, 1.0), "e": (float("nan"), 0.0)}
    assert front(points) == ("a", "b", "d")


def test_the_budget_and_the_ratios_of_recovery_stand_in_results_and_page(tmp_path: Path) -> None:
    """A configuration with a budget has its split in both; every configuration's times stand beside those of
    hysteresis.
    """
    content, page = run_small(tmp_path, policies=("hysteresis", "sequential:budget=3"))
    assert set(content["budgets"]) == {"sequential:budget=3"}
    assert content["budgets"]["sequential:budget=3"]["per_slice_month"] == pytest.approx(3.0)
    assert "sequential:budget=3: 3 per slice-month" in page
    assert set(content["ratios"]) == {"all", "requantise"}
    assert content["ratios"]["all"]["fixed-bare"]["mttr_s"]["mean"] >= 1.0
    assert "as ratios to hysteresis" in page
