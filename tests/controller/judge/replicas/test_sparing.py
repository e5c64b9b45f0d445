"""Replicas that fail a share of their requests are taken out only where the fleet can spare them."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.rng import stream
from contracts.telemetry import FleetTelemetry
from controller.judge.replicas.sparing import spare
from controller.options import ControllerOptions
from controller.state import QuarantineReason
from policies.registry import make_configuration
from tests.support.fleets.builders import make_fleet, make_layout, with_traffic
from tests.support.fleets.worlds import Edit, Run, drift, run, script

LAYOUT = make_layout(kernels=2, slices=2, per_kernel=4)
QUICK = ControllerOptions(readmit_after_s=20.0, readmit_every_s=5.0)
HALF = (0.3, 0.0, 0.3, 0.0, 0.0, 0.0, 0.0, 0.0)
POLICIES = ["hysteresis", "sequential"]
#: Requests per tick and slice that the script offers; two slices.
OFFERED = 10


def failing(shares: tuple[float, ...], from_at_s: float = 5.0, until_at_s: float = np.inf) -> Edit:
    """Of 20 attempts per replica, slice and second, ``shares`` fail."""
    rng = stream(3, "failing")

    def edit(seen: FleetTelemetry, now_s: float) -> FleetTelemetry:
        share = np.array(shares) if from_at_s < now_s <= until_at_s else np.zeros(len(shares))
        failed = rng.binomial(20, share[:, None], (1, len(shares), 2)).astype(np.int64)
        return with_traffic(seen, LAYOUT, answered=20 - failed, failed=failed)

    return edit


def offered(rate: int, from_at_s: float, until_at_s: float) -> Edit:
    """``rate`` requests per slice and second."""

    def edit(seen: FleetTelemetry, now_s: float) -> FleetTelemetry:
        more = from_at_s < now_s <= until_at_s
        return replace(seen, offered=np.full_like(seen.offered, rate)) if more else seen

    return edit


def driven(name: str, capacity_rps: float, *edits: Edit, ticks: int = 90) -> Run:
    """One replica carries ``capacity_rps``; there are eight, four of them at home."""
    fleet = make_fleet(LAYOUT, capacity_rps=np.full(2, capacity_rps))
    return run(make_configuration(name, fleet, QUICK), script(LAYOUT, ticks, *edits))


def sheds(result: Run) -> float:
    """Largest share of a slice that is shed at the end."""
    return float(result.tables()[-1, :, -1].max())


@pytest.mark.parametrize("name", POLICIES)
def test_half_of_a_kernel_goes_and_the_kernel_stays(name: str) -> None:
    """With enough headroom the two replicas go, and no tick moves the slices or blames the build."""
    result = driven(name, 100.0, failing(HALF))
    assert np.flatnonzero(result.quarantined()[-1]).tolist() == [0, 2]
    assert result.state.quarantine_reason[0, 0] == QuarantineReason.ERRORS
    assert all(one.judgement.certified.all() for one in result.decisions)
    assert (result.tables()[:, :, 0] == 1.0).all()


@pytest.mark.parametrize("name", POLICIES)
def test_a_fleet_that_cannot_spare_them_keeps_them_and_their_kernel(name: str) -> None:
    """Eight replicas carry the load and seven hardly: none goes, nothing moves, nothing is shed."""
    result = driven(name, 2.0 * OFFERED / 7.0, failing(HALF))
    assert not result.quarantined().any()
    assert np.flatnonzero(result.state.needed[0]).tolist() == [0, 2]
    assert result.decisions[-1].judgement.certified.all()
    assert sheds(result) == 0.0


def test_they_return_when_capacity_is_short_and_go_again_afterwards() -> None:
    """A surge uses up the spare capacity; when it is over the replicas go again."""
    result = driven("sequential", 6.0, failing(HALF), offered(24, 60.0, 120.0), ticks=260)
    away = result.quarantined()[:, [0, 2]]
    assert away[55].all()
    assert not away[115].any()
    assert away[-1].all()


def test_no_replica_is_spared_at_the_trough_of_a_load() -> None:
    """Just after a load that the others could not carry the replicas stay; they go minutes later."""
    result = driven("sequential", 6.0, failing(HALF), offered(24, 60.0, 120.0), ticks=260)
    away = result.quarantined()[:, [0, 2]]
    assert not away[125:138].all(axis=1).any()
    assert away[-1].all()


def test_a_replica_that_has_recovered_is_no_longer_needed() -> None:
    """When failures end, the replicas that were kept are treated as all others."""
    result = driven("sequential", 2.0 * OFFERED / 7.0, failing(HALF, until_at_s=60.0), ticks=240)
    assert result.decisions[55].judgement.certified.all()
    assert not result.state.needed.any()
    assert not result.quarantined().any()


@pytest.mark.parametrize("name", POLICIES)
def test_a_build_that_fails_is_left(name: str) -> None:
    """All replicas of a kernel fail a share: none is quarantined, and its slices leave it."""
    result = driven(name, 100.0, failing((0.3,) * 4 + (0.0,) * 4))
    assert not result.quarantined().any()
    assert result.tables()[-1, :, 0].max() == 0.0


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.sampled_from([0.0, 0.05, 0.2, 0.5]), min_size=8, max_size=8),
    st.floats(0.5, 1.0),
    st.sampled_from(POLICIES),
)
def test_nothing_is_shed_for_failures_alone(shares: list[float], load: float, name: str) -> None:
    """While all replicas together carry the load, all of it is served, whichever fail."""
    result = driven(name, 2.0 * OFFERED / load / 8.0, failing(tuple(shares)))
    assert sheds(result) <= 1e-9


def test_a_crash_loop_is_kept_out_until_it_lives_longer() -> None:
    """Down 10 s of every 40: out from the first death on, back after ``CAUTION`` windows without one."""

    def looping(seen: FleetTelemetry, now_s: float) -> FleetTelemetry:
        down = now_s < 170.0 and now_s > 30.0 and (now_s - 30.0) % 40.0 <= 10.0
        state: Any = seen.replica_state.copy()
        state[:, 1] = 4 if down else state[:, 1]
        return replace(seen, replica_state=state)

    result = driven("sequential", 100.0, looping, ticks=320)
    reason = np.array([one.quarantine_reason[0, 1] for one in result.decisions])
    assert (reason[:30] == QuarantineReason.NONE).all()
    for lives in (slice(42, 69), slice(82, 109), slice(122, 149)):
        assert (reason[lives] == QuarantineReason.RELAPSED).all()
    assert reason[-1] == QuarantineReason.NONE


def test_a_drained_replica_has_not_died() -> None:
    """A rolling restart ends processes on purpose: a replica that restarts twice is trusted at once."""

    def restarted(seen: FleetTelemetry, now_s: float) -> FleetTelemetry:
        state: Any = seen.replica_state.copy()
        state[:, 1] = 3 if 30.0 < now_s <= 40.0 or 70.0 < now_s <= 80.0 else state[:, 1]
        return replace(seen, replica_state=state)

    assert not driven("sequential", 100.0, restarted).quarantined().any()


@pytest.mark.parametrize(
    ("capacity_rps", "answers", "away"),
    [(2.0 * OFFERED / 7.0, True, False), (2.0 * OFFERED / 7.0, False, True), (100.0, True, True)],
    ids=["short and answers", "short and silent", "room enough"],
)
def test_a_replica_that_answers_after_a_row_of_failures_is_out_only_if_spared(
    capacity_rps: float, answers: bool, away: bool
) -> None:
    """The first second of a burst looks like a death; a second later its requests are answered."""

    def burst(seen: FleetTelemetry, now_s: float) -> FleetTelemetry:
        row: Any = seen.consecutive_failed.copy()
        failed, answered = seen.failed.copy(), seen.answered.copy()
        if now_s == 30.0:
            row[:, 0], failed[:, 0] = 7, 7
        answered[:, 0] = 2 if now_s < 30.0 or (now_s > 30.0 and answers) else 0
        return replace(seen, consecutive_failed=row, failed=failed, answered=answered)

    result = driven("hysteresis", capacity_rps, burst, ticks=48)
    assert result.quarantined()[29:31, 0].tolist() == [True, away]
    assert result.quarantined()[-1, 0] == away
    left = QuarantineReason.ERRORS if answers else QuarantineReason.FAILING
    assert result.state.quarantine_reason[0, 0] == (left if away else QuarantineReason.NONE)


def test_a_replica_that_departed_first_returns_when_all_are_as_unhealthy() -> None:
    """One replica drifts before the others of the only kernel do: keeping it out then helps no slice."""
    layout = make_layout(kernels=1, slices=2, per_kernel=4)
    fleet = make_fleet(layout, capacity_rps=np.array([2.0 * OFFERED / 3.5]))
    drifts = drift(layout, [0], 5.0), drift(layout, [1, 2, 3], 25.0)
    result = run(make_configuration("sequential", fleet, QUICK), script(layout, 90, *drifts))
    assert result.quarantined()[24, 0]
    assert result.state.condemned.any()
    assert not result.quarantined()[-1].any()
    assert float(result.tables()[-1, :, -1].max()) == 0.0


def test_sparing_leaves_the_state_before_unchanged() -> None:
    """Recalled replicas are noted in a new array; the array before stays as it was."""
    before = np.zeros((1, 8), dtype=np.bool_)
    case: Any = SimpleNamespace(estimate=SimpleNamespace(state=SimpleNamespace(needed=before)))
    spare(np.zeros((1, 8), dtype=np.int64), np.zeros(1), case)[:] = True
    assert not before.any()


#: Every kernel has two replicas in the failing zone "n"; the last kernel serves nothing.
ZONED = replace(make_layout(kernels=3, slices=2, per_kernel=4), zones=("n", "s") * 6)


def failing_zone(rest_from_at_s: float = 5.0) -> Edit:
    """Of 20 attempts per serving replica, slice and second, a third fails in zone "n": on one replica of each
    kernel from second 5, on the rest from the second given.
    """
    from_at_s = np.where(np.arange(12) % 4 == 0, 5.0, rest_from_at_s)

    def edit(seen: FleetTelemetry, now_s: float) -> FleetTelemetry:
        rng = stream(int(now_s), "failing zone")
        share = np.where((np.arange(12) % 2 == 0) & (now_s > from_at_s), 0.3, 0.0)
        tried = np.where(np.arange(12) < 8, 20, 0)[:, None]
        failed = rng.binomial(tried, share[:, None], (1, 12, 2)).astype(np.int64)
        return with_traffic(seen, ZONED, answered=tried - failed, failed=failed)

    return edit


@pytest.mark.parametrize(("capacity_rps", "count"), [(100.0, 6), (2.6, 3)])
def test_idle_replicas_of_a_zone_that_fails_go_last_and_their_kernel_stays(
    capacity_rps: float, count: int
) -> None:
    """As many as the fleet can spare, those observed to fail first; no kernel is blamed."""
    fleet = make_fleet(ZONED, capacity_rps=np.full(3, capacity_rps))
    result = run(make_configuration("sequential", fleet, QUICK), script(ZONED, 90, failing_zone()))
    out = np.flatnonzero(result.quarantined()[-1])
    assert len(out) == count
    assert set(out) <= {0, 2, 4, 6, 8, 10}
    assert len(set(out) & {8, 10}) == max(count - 4, 0)
    assert result.decisions[-1].judgement.certified.all()
    assert sheds(result) == 0.0


#: Requests per second that a replica of a serving kernel, and of the idle one, carries.
CARRIES = st.tuples(st.floats(1.6, 3.6), st.floats(0.5, 3.6))


def zoned(name: str, carries_rps: tuple[float, float], rest_from_at_s: float = 5.0) -> Run:
    """90 s of a zone that fails."""
    serving_rps, idle_rps = carries_rps
    fleet = make_fleet(ZONED, capacity_rps=np.array([serving_rps, serving_rps, idle_rps]))
    return run(make_configuration(name, fleet, QUICK), script(ZONED, 90, failing_zone(rest_from_at_s)))


@settings(max_examples=20, deadline=None)
@given(CARRIES, st.sampled_from(POLICIES))
def test_replicas_of_a_zone_that_fails_do_not_come_and_go(
    carries_rps: tuple[float, float], name: str
) -> None:
    """Whoever can be spared leaves once: that they left is no reason to find the fleet short of them."""
    result = zoned(name, carries_rps)
    away = result.quarantined().astype(np.int64)
    assert np.abs(np.diff(away, axis=0)).sum(axis=0).max() <= 1
    assert sheds(result) == 0.0


@settings(max_examples=15, deadline=None)
@given(CARRIES, st.sampled_from(POLICIES))
def test_replicas_seen_to_fail_leave_before_idle_ones_in_whatever_order_they_fail(
    carries_rps: tuple[float, float], name: str
) -> None:
    """As many leave if half of them fail later, when idle replicas are out: these come back for them."""
    at_once, in_turn = zoned(name, carries_rps), zoned(name, carries_rps, rest_from_at_s=40.0)
    assert at_once.quarantined()[-1, :8].sum() == in_turn.quarantined()[-1, :8].sum()
    assert sheds(in_turn) == 0.0
