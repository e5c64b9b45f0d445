"""The number of answers on their way back to the gateway follows Little's law."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.telemetry.gateway import MOST_S, Returning


@given(st.integers(0, 50), st.floats(0.0, 2.0 * MOST_S), st.sampled_from([0.5, 1.0, 2.0]))
def test_a_steady_flow_has_rate_times_time_on_the_way(each: int, return_s: float, tick_s: float) -> None:
    """For any length of the way, up to the longest timeout."""
    returning, way_s = Returning(1, 1, tick_s), np.array([[return_s]])
    for _ in range(round(MOST_S / tick_s) + 1):
        found = returning.count(np.array([[each]]), way_s)
    assert found[0, 0] == pytest.approx(each / tick_s * min(return_s, MOST_S))


def test_each_replica_of_each_fleet_has_its_own_count() -> None:
    """Ten answers left a second ago: seven tenths have arrived after 1.7 s, all after 2 s."""
    returning = Returning(2, 2, 1.0)
    way_s = np.array([[1.3, 2.0], [0.0, 0.5]])
    returning.count(np.array([[10, 10], [10, 10]]), way_s)
    assert returning.count(np.zeros((2, 2), dtype=np.int64), way_s) == pytest.approx(
        np.array([[3.0, 10.0], [0.0, 0.0]])
    )
