"""Replicas that fail repeatedly, in whole runs of the controller.

Slow replicas come back one at a time: after a wait, by turns within a zone, and later each time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from contracts.telemetry import FleetTelemetry
from controller.judge.replicas import returns
from controller.judge.replicas.quarantine_pass import Bench
from controller.judge.replicas.returns import CAUTION, PATIENCE, TRUST, renew, waiting_slow_replicas
from controller.options import ControllerOptions
from controller.state import QuarantineReason
from policies.registry import make_configuration
from tests.support.fleets.builders import make_fleet, make_layout, with_steps
from tests.support.fleets.worlds import Edit, Run, drift, run, script

LAYOUT = make_layout(kernels=2, slices=2, per_kernel=3)
QUICK = ControllerOptions(readmit_after_s=20.0, readmit_every_s=5.0, hung_after_s=5.0)
SETUP = make_configuration("sequential", make_fleet(LAYOUT), QUICK)
FIRST_S = 30.0


Fault = Callable[[float, float, int], list[Edit]]


def drifts(period_s: float, unhealthy_s: float, times: int) -> list[Edit]:
    """Replica 1 answers wrongly for ``unhealthy_s`` of each of ``times`` periods."""
    begins = FIRST_S + period_s * np.arange(times)
    return [drift(LAYOUT, [1], float(begin), float(begin) + unhealthy_s) for begin in begins]


def hangs(period_s: float, unhealthy_s: float, times: int) -> list[Edit]:
    """Replica 1 answers no request and no probe for ``unhealthy_s`` of every period."""

    def hang(seen: FleetTelemetry, now_s: float) -> FleetTelemetry:
        since_s = now_s - FIRST_S
        if not 0.0 < since_s <= period_s * times or since_s % period_s > unhealthy_s:
            return seen
        answered = seen.answered.copy()
        answered[:, 1] = 0
        return replace(with_steps(seen, np.arange(answered.shape[1])[None] == 1), answered=answered)

    return [hang]


def stays(result: Run) -> NDArray[np.int64]:
    """int64 [N, 2]: first and last tick, from 1 on, of every stay of replica 1 in quarantine."""
    out = np.concatenate([[False], result.quarantined()[:, 1], [False]]).astype(int)
    edges = np.flatnonzero(np.diff(out))
    return np.stack([edges[::2] + 1, edges[1::2]], axis=1)


@pytest.mark.parametrize("fault", [drifts, hangs])
@pytest.mark.parametrize(
    ("period_s", "unhealthy_s"), [(90.0, 15.0), (100.0, 30.0), (140.0, 20.0), (160.0, 40.0)]
)
def test_a_recurring_fault_shows_twice_at_most(fault: Fault, period_s: float, unhealthy_s: float) -> None:
    """Out after the second time at the latest, and from then until the fault has ended for good."""
    result = run(SETUP, script(LAYOUT, 800, *fault(period_s, unhealthy_s, 5)))
    found = stays(result)
    assert len(found) <= 2
    assert found[-1, 0] < FIRST_S + 2.0 * period_s
    assert found[-1, 1] > FIRST_S + 4.0 * period_s + unhealthy_s


def test_no_replica_is_trusted_at_once() -> None:
    """After a first fault, and after one that follows ten minutes of health, it waits ``CAUTION`` windows."""
    unhealthy_s, again_s = 20.0, 700.0
    found = stays(run(SETUP, script(LAYOUT, 1100, *hangs(again_s, unhealthy_s, 2))))
    well_again_s = FIRST_S + unhealthy_s + again_s * np.arange(2)
    assert found[:, 1] - well_again_s == pytest.approx(CAUTION * SETUP.contract.window_s, abs=25.0)


def test_a_waiting_replica_makes_room_for_an_unhealthy_one() -> None:
    """With a cap of one, a replica that only waits for trust serves again when a peer has to go."""
    edits = [*hangs(1e6, 20.0, 1), drift(LAYOUT, [2], FIRST_S + 60.0)]
    result = run(SETUP, script(LAYOUT, 140, *edits))
    out = result.quarantined()
    assert out[int(FIRST_S) + 55].tolist() == [False, True, False, False, False, False]
    assert out[-1].tolist() == [False, False, True, False, False, False]
    assert out.sum(axis=1).max() == 1


def test_the_last_replica_of_a_kernel_does_not_wait() -> None:
    """It is healthy but not trusted yet, and its peers die: it serves."""

    def die(seen: FleetTelemetry, now_s: float) -> FleetTelemetry:
        state: Any = seen.replica_state.copy()
        state[:, [0, 2]] = 4 if now_s > FIRST_S + 60.0 else state[:, [0, 2]]
        return replace(seen, replica_state=state)

    out = run(SETUP, script(LAYOUT, 100, *hangs(1e6, 20.0, 1), die)).quarantined()[:, 1]
    assert out[int(FIRST_S) + 55]
    assert not out[int(FIRST_S) + 61]


@settings(max_examples=8, deadline=None)
@given(period_s=st.integers(80, 160), unhealthy_s=st.integers(15, 30))
def test_it_stays_out_for_longer_than_it_was_healthy(period_s: int, unhealthy_s: int) -> None:
    """After a relapse it is out for ``TRUST`` times its time of health before, at last for that reason."""
    result = run(SETUP, script(LAYOUT, 480, *hangs(float(period_s), float(unhealthy_s), 2)))
    _, second = stays(result)
    well_again_s, was_well_s = FIRST_S + period_s + unhealthy_s, period_s - unhealthy_s
    assert second[1] - well_again_s == pytest.approx(TRUST * was_well_s, abs=25.0)
    assert result.decisions[second[1] - 1].quarantine_reason[0, 1] == QuarantineReason.RELAPSED
    assert not result.quarantined()[-1].any()


@pytest.mark.parametrize("others_carry", [True, False])
def test_a_fleet_that_is_short_gets_it_back(others_carry: bool) -> None:
    """A replica that is healthy and only not trusted serves where the others cannot carry the load."""
    # ``sparing``: replicas with the reason ``relapsed`` are out only if they can be spared.
    carried = 1e9 if others_carry else 1e-9
    fleet = make_fleet(LAYOUT)
    setup = make_configuration(
        "sequential", replace(fleet, capacity_rps=np.full_like(fleet.capacity_rps, carried)), QUICK
    )
    result = run(setup, script(LAYOUT, 330, *hangs(120.0, 20.0, 2)))
    out = result.quarantined()[:, 1]
    trusted_at = int(FIRST_S + 120.0 + 20.0 + TRUST * 60.0)
    assert bool(out[trusted_at - 5]) is others_carry


#: Two kernels of three replicas; the last two of each are in one zone.
ZONES = ("new", "old", "old", "new", "old", "old")
OWNER = np.array([0, 0, 0, 1, 1, 1])
WINDOW_S, NOW_S = 60.0, 10_000.0
LEAST_S = PATIENCE * ControllerOptions().readmit_after_s


def bench_of(
    since_s: dict[int, float], *, times: int = 1, back_at_s: tuple[float, float] = (0.0, 0.0)
) -> Bench:
    """Replicas out for slowness, for how many seconds, and when each kernel last got a replica back."""
    away = np.zeros((1, 6), dtype=np.bool_)
    began_at_s = np.full((1, 6), -np.inf)
    for replica, seconds in since_s.items():
        away[0, replica], began_at_s[0, replica] = True, NOW_S - seconds
    reason = np.where(away, int(QuarantineReason.SLOW), 0)
    return Bench(away, reason, began_at_s, np.where(away, times, 0), np.array([back_at_s]))


def case_of(monkeypatch: pytest.MonkeyPatch, sound: tuple[int, ...] = ()) -> Any:
    """A fleet whose probes are answered and whose kernels have weight; ``sound`` have good step times."""
    shown = np.zeros((1, 6), dtype=np.bool_)
    shown[0, list(sound)] = True
    monkeypatch.setattr(returns, "healthy_clocks", lambda case: shown)
    monkeypatch.setattr(returns, "moves_traffic", lambda contract: np.ones(1, dtype=np.bool_))
    state = SimpleNamespace(
        now_s=np.array([NOW_S]),
        probed_at_s=np.full((1, 6, 1), NOW_S - 1.0),
        table=np.array([[[0.5, 0.5, 0.0]]]),
    )
    contract = SimpleNamespace(window_s=WINDOW_S)
    setup = SimpleNamespace(
        contract=contract, options=ControllerOptions(), layout=SimpleNamespace(zones=ZONES)
    )
    ready = np.ones((1, 6), dtype=np.bool_)
    return SimpleNamespace(estimate=SimpleNamespace(state=state), setup=setup, owner=OWNER, ready=ready)


def waiting(bench: Bench, case: Any, condemned: tuple[int, ...] = ()) -> list[int]:
    """Replicas that have to wait."""
    broken = np.zeros((1, 6, 1, 1), dtype=np.bool_)
    broken[0, list(condemned)] = True
    found: list[int] = np.flatnonzero(waiting_slow_replicas(bench, broken, case)[0]).tolist()
    return found


def test_one_replica_of_a_zone_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four whose time is over one may come back; a condemned one is skipped."""
    bench, case = bench_of(dict.fromkeys((1, 2, 4, 5), LEAST_S + 1.0)), case_of(monkeypatch)
    assert waiting(bench, case) == [2, 4, 5]
    assert waiting(bench, case, condemned=(1,)) == [1, 4, 5]


def test_others_follow_once_it_was_healthy_for_a_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Good step times for less than a window admit no other, for a window the whole zone."""
    away = dict.fromkeys((2, 4, 5), LEAST_S + 1.0)
    for back_s, expected in ((WINDOW_S - 1.0, [2, 4, 5]), (WINDOW_S, [])):
        bench = bench_of(away, back_at_s=(NOW_S - back_s, 0.0))
        assert waiting(bench, case_of(monkeypatch, sound=(1,))) == expected


def test_a_replica_without_step_times_does_not_block_its_zone_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without traffic there are no step times; after ``PATIENCE`` windows the next one goes."""
    away, case = dict.fromkeys((2, 4, 5), LEAST_S + 1.0), case_of(monkeypatch)
    early = bench_of(away, back_at_s=(NOW_S - PATIENCE * WINDOW_S + 1.0, 0.0))
    late = bench_of(away, back_at_s=(NOW_S - PATIENCE * WINDOW_S, 0.0))
    assert waiting(early, case) == [2, 4, 5]
    assert waiting(late, case) == [4, 5]


def test_a_slow_replica_waits_longer_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone in its zone it waits for no other, but in proportion to how often it was slow."""
    case = case_of(monkeypatch, sound=(0, 3))
    assert waiting(bench_of({1: LEAST_S - 1.0}), case) == [1]
    assert waiting(bench_of({1: LEAST_S}), case) == []
    assert waiting(bench_of({1: 2.0 * LEAST_S - 1.0}, times=2), case) == [1]


def test_a_relapse_makes_the_zone_wait_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replicas waiting in its zone wait from now on and as often; another zone is unaffected."""
    bench, case = bench_of({1: 0.0, 2: LEAST_S, 3: LEAST_S, 5: 40.0}), case_of(monkeypatch)
    bench.times[0, 1] = 2
    fresh = np.zeros((1, 6), dtype=np.bool_)
    fresh[0, 1] = True
    renew(bench, fresh, case)
    assert (NOW_S - bench.quarantined_at_s[0, [1, 2, 3, 5]]).tolist() == [0.0, 0.0, LEAST_S, 0.0]
    assert bench.times[0].tolist() == [0, 2, 2, 1, 0, 2]
