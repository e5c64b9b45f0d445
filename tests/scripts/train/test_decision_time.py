"""The time of decisions in a certificate."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, chain, repeat
from pathlib import Path

import numpy as np
import pytest

from contracts.errors import MeasurementError
from policies.supervised import shipped_meta
from scripts.train import decision_time
from simulator.world.scenario import load_scenario
from tests.support.fleets.synthetic import write_world


def clock_of(pass_ms: tuple[float, ...], decisions: int) -> Iterator[int]:
    """A clock that is read twice per decision; each pass's decisions take the given time."""
    steps_ns = chain.from_iterable(repeat(int(1e6 * ms), 2 * decisions) for ms in pass_ms)
    return accumulate(steps_ns)


def test_what_else_the_machine_did_is_none_of_the_policys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If two of three passes are disturbed, the third one's times count."""
    world = load_scenario(write_world(tmp_path))
    decisions = len(decision_time.episode_ms("hysteresis", shipped_meta(), world, 1))
    clock = clock_of((9.0, 1.0, 5.0), decisions)
    monkeypatch.setattr("time.thread_time_ns", lambda: next(clock))
    found = decision_time.episode_ms("hysteresis", shipped_meta(), world, 1)
    assert decisions > 1
    np.testing.assert_allclose(found, 1.0)


def test_no_episode_is_no_time() -> None:
    """An incident suite without a scenario gives an error and no latency of 0."""
    with pytest.raises(MeasurementError, match="no decision was timed"):
        decision_time.decisions_ms("hysteresis", shipped_meta(), [])
