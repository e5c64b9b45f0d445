"""Thresholds of log-evidence: what is guaranteed, and that compiled code tests for exactly that."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.detect.streams.thresholds import (
    guaranteed_threshold,
    guaranteed_thresholds,
    log_threshold,
    reaches,
)


@given(log=st.floats(0.01, 500.0), share=st.floats(0.999_999, 1.000_001))
def test_a_threshold_is_reached_where_the_logarithm_reaches_it(log: float, share: float) -> None:
    """The quick look at the evidence itself never changes the answer, however near the threshold is."""
    level = math.exp(log) * share
    assert reaches(level, log_threshold(np.array([log]))[0]) == (math.log(level) >= log)


def test_an_infinite_threshold_is_never_reached() -> None:
    """Where there is no stream, no evidence raises an alarm."""
    assert not reaches(1e250, log_threshold(np.array([np.inf]))[0])


def test_guaranteed_thresholds_are_logarithms_and_inf_stays() -> None:
    """Each ARL0 has its own threshold; what is no run length is refused."""
    found = guaranteed_thresholds(np.array([[10.0, np.inf], [1e9, 2.0]]))
    assert found.tolist() == [[math.log(10.0), math.inf], [math.log(1e9), math.log(2.0)]]
    with pytest.raises(ValueError, match="ARL0"):
        guaranteed_threshold(1.0)
