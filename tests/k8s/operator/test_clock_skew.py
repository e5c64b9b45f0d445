"""Clocks that jump by an hour, forward or back: freezes end in time, kept state is used, no rule is empty."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from k8s.operator.fleet import earlier_now
from live.control.clocks import SteadyClock
from tests.support.cluster.cluster_worlds import Bench
from tests.support.cluster.route_revisions import assert_never_empty, every_revision

pytestmark = [pytest.mark.needs("kube_api"), pytest.mark.slow, pytest.mark.waits]

HOUR_S, DAY = 3600.0, timedelta(days=1)


def until(bench: Bench, in_s: float) -> str:
    """The instant ``in_s`` seconds from now, as in a freeze."""
    return datetime.fromtimestamp(bench.now_s + in_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S])
def test_a_freeze_outlives_a_jump_of_the_system_clock_and_ends(bench: Bench, jump_s: float) -> None:
    """A freeze holds while either clock is before its end, so a clock jump does not end it early."""
    wall = {"jump_s": 0.0}
    bench.everything()

    def now() -> datetime:
        return datetime.fromtimestamp(bench.now_s + wall["jump_s"], UTC)

    operator = bench.operator(now=earlier_now(now, bench))
    bench.turns(operator, 16)
    table = [
        {"slice": "prose", "weights": [{"kernel": "bf16", "weight": 0.7}, {"kernel": "fp8", "weight": 0.3}]}
    ]
    freeze = {"until": until(bench, 60.0), "reason": "a test", "table": table}
    bench.change("RoutePolicy", "chat", {"freeze": freeze})
    operator.nudge()
    with every_revision(bench) as seen:
        bench.turns(operator, 3)
        wall["jump_s"] = jump_s
        bench.turns(operator, 20)
        assert bench.weights("prose")["chat-bf16"] == 7000
        wall["jump_s"] = 0.0
        bench.turns(operator, 20)
        assert bench.weights("prose")["chat-bf16"] == 7000
        bench.turns(operator, 60)
        assert not operator.loops["chat"].standing.frozen
    assert_never_empty(seen)


@pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S])
def test_a_leader_whose_clock_is_an_hour_off_uses_the_kept_state(bench: Bench, jump_s: float) -> None:
    """A leader whose clock is an hour off keeps the table and the quarantines, and still acts on a fault."""
    operator = bench.struck("bf16-1")
    before = operator.loops["chat"].controller.state
    assert before.quarantined.any()
    rules = bench.route()["spec"]["rules"]
    with every_revision(bench) as seen:
        bench.now_s += jump_s
        second = bench.operator()
        bench.turns(second, 1)
        assert bench.route()["spec"]["rules"] == rules
        assert second.loops["chat"].controller.state.quarantined.tolist() == before.quarantined.tolist()
        bench.drift = {"fp8": 0.02}
        bench.turns(second, 60)
        assert bench.weights("prose")["chat-bf16"] == 10_000
    assert_never_empty(seen)


def test_the_operators_clock_does_not_jump(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock for ages and dwell times ignores steps of the system clock."""
    clock = SteadyClock()
    before_ms = clock.now_ms()
    monkeypatch.setattr("time.time", lambda: before_ms / 1000.0 + HOUR_S)
    assert abs(clock.now_ms() - before_ms) < 60_000.0


def test_a_freeze_asks_the_clock_that_is_behind() -> None:
    """The clock that is behind decides, so a freeze does not end before both have passed its end."""
    clock, wall = SteadyClock(), datetime.now(UTC)
    ahead, behind = earlier_now(lambda: wall + DAY, clock)(), earlier_now(lambda: wall - DAY, clock)()
    assert ahead < wall + timedelta(hours=12)
    assert behind == wall - DAY
