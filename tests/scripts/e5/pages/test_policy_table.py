"""The comparison of one configuration with all others, on made-up measures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from contracts.errors import DocumentError
from scripts.e5.scores.comparison import compare, dominates, load_run, verdict
from scripts.e5.suite import load_suite
from tests.support.fleets.e5_world import write_suite

SEEDS = (5, 6, 7)


def episode(configuration: str, scenario: str, seed: int, worse: float) -> dict[str, Any]:
    """Measures of a configuration that is ``worse`` times as bad, varied by seed."""
    noise = 0.01 * (seed - 6)
    incident = None if scenario == "surge" else {"mttr_s": 100.0 * worse + noise}
    return {
        "policy": configuration,
        "scenario": scenario,
        "seed": seed,
        "incident": incident,
        "quality": {"preservation": 1.0 - 0.01 * worse, "loss": 0.02 * worse},
        "switches": {
            "false_switches": 2.0 * worse,
            "false_switches_in_rotation": worse,
            "slice_months": 0.5,
        },
        "service": {"failed_ratio": 0.001 * worse, "probe_tokens": 1000.0},
    }


def write_run(folder: Path, configurations: dict[str, float]) -> Path:
    """A run of the small suite; returns the suite's path."""
    suite = write_suite(folder)
    names = [row.name for row in load_suite(suite)[0].spec.scenarios]
    for configuration, worse in configurations.items():
        for name in names:
            part = folder / "out" / "parts" / name / f"{configuration}.json"
            part.parent.mkdir(parents=True, exist_ok=True)
            part.write_text(
                json.dumps([episode(configuration, name, seed, worse) for seed in SEEDS]), encoding="utf-8"
            )
    return suite


def test_a_better_policy_is_better_and_is_dominated_by_none(tmp_path: Path) -> None:
    """Half as bad everywhere: every verdict says better, none dominates it, and it dominates the other."""
    suite = write_run(tmp_path, {"fixed-bare": 4.0, "learned": 1.0, "hysteresis": 2.0, "informed": 0.5})
    found = compare(load_run(tmp_path / "out", suite), "learned")
    assert set(found["verdicts"]["hysteresis"].values()) == {"better"}
    assert set(found["verdicts"]["informed"].values()) == {"worse"}
    assert found["dominated_by"] == []
    assert found["differences"]["hysteresis"]["mttr_s"]["mean"] == pytest.approx(-100.0)
    assert found["differences"]["hysteresis"]["false_switches_per_slice_month"]["mean"] == pytest.approx(-4.0)
    assert compare(load_run(tmp_path / "out", suite), "hysteresis")["dominated_by"] == ["learned"]


def test_groups_of_scenarios_are_told_apart(tmp_path: Path) -> None:
    """Each group has its own means, exact limits of false switches over its exposure, and differences."""
    suite = write_run(tmp_path, {"fixed-bare": 4.0, "learned": 1.0, "hysteresis": 2.0})
    groups = compare(load_run(tmp_path / "out", suite), "learned")["groups"]
    assert {"silent_numeric", "visible", "control"} <= set(groups)
    for group, mttr_s in (("silent_numeric", 100.0), ("visible", 100.0)):
        part = groups[group]
        assert part["configurations"]["learned"]["mttr_s"]["mean"] == pytest.approx(mttr_s)
        assert part["configurations"]["learned"]["false_switches_per_slice_month"]["mean"] == pytest.approx(
            4.0
        )
        assert part["differences"]["hysteresis"]["false_switches_per_slice_month"]["mean"] == -4.0
    # Six switches in 1.5 slice-months: the exact limits of 6 events are 2.202 and 13.06.
    rate = groups["visible"]["configurations"]["learned"]["false_switches_per_slice_month"]
    assert (rate["ci_low"], rate["ci_high"]) == pytest.approx((2.202 / 1.5, 13.06 / 1.5), rel=1e-3)


def test_the_quality_lost_is_a_ratio_to_the_informed_reference(tmp_path: Path) -> None:
    """The ratio of the losses, by shape of the fault; without the reference there is none."""
    suite = write_run(tmp_path, {"fixed-bare": 4.0, "learned": 1.2, "informed": 0.8})
    found = compare(load_run(tmp_path / "out", suite), "learned")["quality_lost_to"]["informed"]
    assert found["by_shape"]["step"]["mean"] == pytest.approx(1.5)
    assert set(found["by_scenario"]) == {"requantise", "crash"}
    (tmp_path / "bare").mkdir()
    suite = write_run(tmp_path / "bare", {"fixed-bare": 4.0, "learned": 1.2})
    assert compare(load_run(tmp_path / "bare" / "out", suite), "learned")["quality_lost_to"] == {}


def test_equal_probe_budgets_are_shown(tmp_path: Path) -> None:
    """Every configuration's probe tokens over the bare configuration's, while every replica lives."""
    suite = write_run(tmp_path, {"fixed-bare": 4.0, "learned": 1.2})
    assert compare(load_run(tmp_path / "out", suite), "learned")["probe_tokens_to_bare"] == {
        "fixed-bare": 1.0,
        "learned": 1.0,
    }


def test_domination_needs_every_measure() -> None:
    """One measure in which the other is better prevents it; equality in all is no domination."""
    one = {
        "mttr_s": 10.0,
        "quality_preservation": 1.0,
        "false_switches_per_slice_month": 1.0,
        "failed_ratio": 0.1,
    }
    assert not dominates(one, one)
    assert dominates(one, one | {"mttr_s": 11.0})
    assert not dominates(one, one | {"mttr_s": 11.0, "quality_preservation": 1.1})


def test_limits_that_hold_zero_show_no_difference() -> None:
    """A difference with limits on both sides of zero is no verdict."""
    unclear = {"ci_low": -1.0, "ci_high": 1.0}
    names = ("mttr_s", "quality_preservation", "false_switches_per_slice_month", "failed_ratio")
    assert set(verdict(dict.fromkeys(names, unclear)).values()) == {"no difference shown"}


def test_a_run_without_the_candidate_is_refused(tmp_path: Path) -> None:
    """A configuration that did not run on every scenario, or an empty folder, is refused."""
    suite = write_run(tmp_path, {"fixed-bare": 4.0})
    with pytest.raises(DocumentError, match="--candidate"):
        compare(load_run(tmp_path / "out", suite), "learned")
    with pytest.raises(DocumentError, match="parts of a run"):
        load_run(tmp_path, suite)
