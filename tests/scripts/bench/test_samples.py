"""The benchmark of sample efficiency: equal steps on both sides, and the same evaluation for both."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.support.fleets.env_world import config

pytestmark = pytest.mark.needs("gymnasium", "stable_baselines3", "torch")


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    from scripts.bench import samples
    from scripts.studies.training import native_ppo

    monkeypatch.setattr(native_ppo, "FLEETS", 4)
    monkeypatch.setattr(native_ppo, "TICKS", 16)
    monkeypatch.setattr(samples, "EXAM_FLEETS", 2)
    monkeypatch.setitem(native_ppo.LARGE, "batch_size", 32)


@pytest.mark.usefixtures("_small")
def test_the_study_compares_equal_numbers_of_steps() -> None:
    """Both ways train on equally many steps and report their end; the difference lies within its interval."""
    from scripts.bench import samples

    told: list[str] = []
    figures: dict[str, Any] = samples.study(config(horizon_s=20.0), (0, 1), 1, told.append)
    assert [line.partition(":")[0] for line in told] == [
        f"seed {seed}, {way}" for seed in (0, 1) for way in ("small", "large")
    ]
    assert [len(figures[f"{way}_rewards"]) for way in ("small", "large")] == [2, 2]
    assert figures["steps"] == 4 * 16
    low, high = figures["small_minus_large_95"]
    assert low <= figures["small_minus_large"] <= high
    assert {figures["small_batch"], figures["large_batch"]} == {64, 32}


@pytest.mark.usefixtures("_small")
def test_an_examination_is_the_same_whenever_it_is_held() -> None:
    """Episodes and drawn actions depend on the policy alone."""
    from scripts.bench import samples
    from scripts.studies.training import native_ppo

    exam = native_ppo.make_env(config(horizon_s=20.0), 2)
    model = native_ppo.make_model(exam, 3, native_ppo.LARGE)
    assert samples.examine(model, exam) == samples.examine(model, exam)


def test_an_interval_of_one_value_is_endless_and_of_equal_values_a_point() -> None:
    """Student's interval: infinite for a single value; zero width without spread."""
    from scripts.bench.samples import t_interval

    assert t_interval([0.3]) == (-math.inf, math.inf)
    assert t_interval([0.5, 0.5, 0.5]) == (0.5, 0.5)
    low, high = t_interval([0.0, 1.0])
    assert (low + high) / 2 == pytest.approx(0.5)
    assert high - low == pytest.approx(12.706, rel=1e-4)
