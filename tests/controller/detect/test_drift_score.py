"""The drift score: any difference alarms where repeats are exact; a known law holds where they are not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.detect.certified_drift import drift_detector, drift_score
from controller.detect.streams.protocol import guaranteed_threshold, update


@given(value=st.floats(0.0, 10.0), other=st.floats(0.0, 10.0))
def test_without_noise_any_difference_is_an_alarm(value: float, other: float) -> None:
    """Equal values add no evidence; different ones alarm at the first unit, at any ARL0."""
    detector = drift_detector()
    scores = drift_score(np.array([value]), np.array([other]), 0.0)
    _, statistic = update(detector, detector.initial(1), scores, np.ones(1, dtype=np.bool_))
    assert bool(statistic[0] >= guaranteed_threshold(1e9)) == (value != other)


def test_with_noise_scores_are_standard_normal() -> None:
    """Repeats of stated noise score with mean 0 and variance 1, whatever the certified values."""
    rng = np.random.default_rng(1)
    certified = rng.lognormal(size=20_000)
    scores = drift_score(certified * np.exp(0.02 * rng.normal(size=20_000)), certified, 0.02)
    assert abs(scores.mean()) < 4.0 / np.sqrt(20_000)
    assert scores.std() == pytest.approx(1.0, abs=0.03)


def test_unmeasured_values_score_nan() -> None:
    """NaN on either side gives NaN; a certified 0 is matched by 0 only."""
    scores = drift_score(np.array([np.nan, 1.0, 0.0, 0.1]), np.array([1.0, np.nan, 0.0, 0.0]), 0.1)
    assert np.isnan(scores[:2]).all()
    assert scores[2:].tolist() == [0.0, np.inf]
    with pytest.raises(ValueError, match="noise"):
        drift_score(np.zeros(1), np.zeros(1), -1.0)
