"""Scores from alarm instants, recomputed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from contracts.detect.scoring import score


def runs(*alarms: list[int]) -> list[np.ndarray]:
    """Alarm instants as arrays."""
    return [np.array(run, dtype=np.int64) for run in alarms]


def test_scores_follow_their_definitions() -> None:
    """Delay, misses, false-alarm rate and Bifet's ratio of three runs, by hand."""
    found = score(runs([100, 150], [20, 104], [99]), change_at=100, length=200)
    assert (found.runs, found.false_alarms) == (3, 2)
    assert found.delay == pytest.approx((1 + 5) / 2)
    assert found.missed_rate == pytest.approx(1 / 3)
    assert found.false_alarm_rate == pytest.approx(2 / 300)
    assert found.mean_time_to_false_alarm == pytest.approx(150.0)
    assert found.mean_time_ratio == pytest.approx(150.0 / 3.0 * (2 / 3))


def test_runs_without_change_have_no_delay() -> None:
    """A control gives false alarms only; none at all means an infinite mean time to one."""
    found = score(runs([], []), change_at=50, length=50)
    assert math.isinf(found.mean_time_to_false_alarm)
    assert math.isnan(found.delay)
    assert math.isnan(found.missed_rate)


def test_scores_need_runs_and_a_place_of_the_change() -> None:
    """No runs, or a change outside them, is refused."""
    with pytest.raises(ValueError, match="expected runs"):
        score([], 10, 20)
    with pytest.raises(ValueError, match="expected runs"):
        score(runs([1]), 30, 20)
