"""Capacity in both worlds by one definition: a simulated server in the place of the live one."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from contracts.documents.serving_path import ServingPath
from scripts.parity.capacity import (
    LIVE_TOLERANCE,
    kept_ratio,
    live_capacity,
    model_capacity,
    simulated_capacity,
)
from scripts.parity.recording import RequestObjectives
from scripts.parity.replaying import drawn, replay
from tests.support.fleets.parity_recordings import LENGTHS, LIMITS, SERVED, STEP, recording

OBJECTIVES = RequestObjectives(first_ms=400.0, gap_ms=30.0, whole_ms=4000.0)


def _send(rate_rps: float) -> NDArray[np.float64]:
    return replay(drawn(rate_rps, 60.0, 99, LENGTHS), STEP, SERVED, LIMITS)


def test_both_worlds_find_the_same_rate() -> None:
    """If the live server is the simulator's twin, the two capacities differ by search and chance alone."""
    whole = recording((3.0, 6.0))
    simulated = simulated_capacity(whole, SERVED, OBJECTIVES, 60.0)
    live = live_capacity(_send, OBJECTIVES, 60.0, simulated)
    assert live.carried_rps == pytest.approx(simulated, rel=0.1 + LIVE_TOLERANCE)
    assert max(live.tried_rps) > live.carried_rps
    assert len(live.tried_rps) == len(live.kept)


def test_the_serving_path_takes_capacity_away() -> None:
    """Steps alone predict more than the served replica carries, in the engine and in the closed form."""
    whole = recording((3.0, 6.0))
    bare = ServingPath()
    assert simulated_capacity(whole, bare, OBJECTIVES, 30.0) > 1.2 * simulated_capacity(
        whole, SERVED, OBJECTIVES, 30.0
    )
    assert model_capacity(whole, bare, OBJECTIVES) > 1.2 * model_capacity(whole, SERVED, OBJECTIVES)


def test_a_lost_request_keeps_nothing() -> None:
    """Each objective counts, at its limit too, and a missing answer keeps none."""
    good = (400.0, 30.0, 4000.0)
    times = np.array([good, (401.0, 1.0, 1.0), (1.0, 31.0, 1.0), (1.0, 1.0, 4001.0), (np.nan,) * 3])
    assert kept_ratio(times, OBJECTIVES) == pytest.approx(0.2)
