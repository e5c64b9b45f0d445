"""A replica that states the right build again is certified at once, and its kernel once all of them do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from contracts.telemetry import FleetTelemetry
from controller.perceive.identity import ENOUGH, follow_statements
from policies.registry import make_configuration
from tests.support.fleets.builders import make_fleet, make_layout, quiet_telemetry
from tests.support.fleets.worlds import Edit, Run, run, script

LAYOUT = make_layout(kernels=2, slices=2, per_kernel=3)
HOME = np.arange(3)
UNTIL_S = 40.0


def stating(right: Callable[[float], NDArray[np.float64]]) -> Edit:
    """Home's replicas state the right build where ``right`` of the time, float64 [3], is 1."""

    def edit(seen: FleetTelemetry, now_s: float) -> FleetTelemetry:
        match = seen.fingerprint_match.copy()
        match[:, HOME] = right(now_s)
        return replace(seen, fingerprint_match=match)

    return edit


def certified_from_s(result: Run, after_s: float) -> float:
    """First second from ``after_s`` on in which home is certified on every slice; inf: never."""
    found = np.array([one.judgement.certified[0, 0].all() for one in result.decisions])
    seconds = np.flatnonzero(found[int(after_s) - 1 :]) + after_s
    return float(seconds[0]) if seconds.size else np.inf


@pytest.mark.parametrize("configuration", ["hysteresis", "sequential", "burn-rate"])
def test_a_kernel_is_certified_again_once_all_replicas_state_the_right_build(configuration: str) -> None:
    """Wrong on all for 35 s; two right scrapes certify it again, with any detector."""
    wrong = stating(lambda now_s: np.full(3, float(not 5.0 <= now_s < UNTIL_S)))
    result = run(make_configuration(configuration, make_fleet(LAYOUT)), script(LAYOUT, 60, wrong))
    assert not result.decisions[20].judgement.certified[0, 0].any()
    assert result.decisions[20].judgement.hard_violated[0, 0].all()
    assert certified_from_s(result, 10.0) == UNTIL_S + ENOUGH - 1


@pytest.mark.parametrize("configuration", ["hysteresis", "sequential"])
def test_a_replica_that_states_another_build_goes_and_its_kernel_stays(configuration: str) -> None:
    """One of three, twice: it is out at once, and home stays certified."""

    def right(now_s: float) -> NDArray[np.float64]:
        wrong = 5.0 <= now_s < UNTIL_S or now_s >= 100.0
        return np.array([float(not wrong), 1.0, 1.0])

    result = run(make_configuration(configuration, make_fleet(LAYOUT)), script(LAYOUT, 130, stating(right)))
    out = result.quarantined()
    assert out[6:38, 0].all()
    assert out[101:, 0].all()
    assert not out[:, 1:].any()
    certified = np.array([one.judgement.certified[0, 0].all() for one in result.decisions])
    assert certified.all()


@pytest.mark.parametrize("configuration", ["hysteresis", "sequential"])
def test_one_replica_that_is_still_wrong_keeps_its_kernel_condemned(configuration: str) -> None:
    """One of three is right again, and the cap leaves a wrong one in rotation."""

    def right(now_s: float) -> NDArray[np.float64]:
        struck = now_s >= 5.0
        return np.array([float(not struck or now_s >= UNTIL_S), float(not struck), float(not struck)])

    result = run(make_configuration(configuration, make_fleet(LAYOUT)), script(LAYOUT, 90, stating(right)))
    assert certified_from_s(result, 10.0) == np.inf


def test_two_builds_behind_one_name_are_not_certified() -> None:
    """Every other scrape states the wrong build."""
    turns = stating(lambda now_s: np.full(3, float(now_s < 5.0 or now_s % 2.0 == 0.0)))
    result = run(make_configuration("hysteresis", make_fleet(LAYOUT)), script(LAYOUT, 60, turns))
    assert certified_from_s(result, 10.0) == np.inf


@given(st.lists(st.sampled_from([0.0, 1.0, np.nan]), min_size=1, max_size=30))
def test_right_statements_are_counted_since_the_last_wrong_one(stated: list[float]) -> None:
    """A missing statement changes nothing, and ``restated`` is set once."""
    rows, told, plain = np.full((1, 6), ENOUGH), [], ENOUGH
    for one in stated:
        seen = replace(quiet_telemetry(LAYOUT, 1.0), fingerprint_match=np.full((1, 6), one))
        before, (rows, restated) = plain, follow_statements(rows, seen, np.ones((1, 6), dtype=np.bool_))
        plain = 0 if one == 0.0 else min(plain + (one == 1.0), ENOUGH)
        assert (rows == plain).all()
        told.append(restated is not None)
        assert told[-1] is (before < ENOUGH <= plain)
