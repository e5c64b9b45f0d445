"""Slow replicas come back one look at a time: late, by turns in a zone, and later each time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from controller.judge import slow_return
from controller.judge.quarantine import QuarantineReason
from controller.judge.quarantine_pass import Bench
from controller.judge.slow_return import PATIENCE, renew, who_waits
from controller.options import ControllerOptions

#: Two kernels of three replicas; the last two of each stand in one zone.
ZONES = ("new", "old", "old", "new", "old", "old")
OWNER = np.array([0, 0, 0, 1, 1, 1])
WINDOW_S, NOW_S = 60.0, 10_000.0
LEAST_S = PATIENCE * ControllerOptions().readmit_after_s


def bench_of(
    since_s: dict[int, float], *, times: int = 1, back_at_s: tuple[float, float] = (0.0, 0.0)
) -> Bench:
    """Who is away for slowness, for how many seconds, and when each kernel last got a replica back."""
    away = np.zeros((1, 6), dtype=np.bool_)
    began_at_s = np.full((1, 6), -np.inf)
    for replica, seconds in since_s.items():
        away[0, replica], began_at_s[0, replica] = True, NOW_S - seconds
    reason = np.where(away, int(QuarantineReason.SLOW), 0)
    return Bench(away, reason, began_at_s, np.where(away, times, 0), np.array([back_at_s]))


def case_of(monkeypatch: pytest.MonkeyPatch, sound: tuple[int, ...] = ()) -> Any:
    """A fleet whose probes are answered and whose kernels have weight; ``sound`` show good clocks."""
    shown = np.zeros((1, 6), dtype=np.bool_)
    shown[0, list(sound)] = True
    monkeypatch.setattr(slow_return, "healthy_clocks", lambda case: shown)
    monkeypatch.setattr(slow_return, "moves_traffic", lambda contract: np.ones(1, dtype=np.bool_))
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
    found: list[int] = np.flatnonzero(who_waits(bench, broken, case)[0]).tolist()
    return found


def test_one_replica_of_a_zone_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four whose time is over one may come back; a condemned one is passed over."""
    bench, case = bench_of(dict.fromkeys((1, 2, 4, 5), LEAST_S + 1.0)), case_of(monkeypatch)
    assert waiting(bench, case) == [2, 4, 5]
    assert waiting(bench, case, condemned=(1,)) == [1, 4, 5]


def test_others_follow_once_it_has_shown_for_a_window_that_it_is_good(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A good clock of less than a window opens nothing, one of a window opens the zone."""
    away = dict.fromkeys((2, 4, 5), LEAST_S + 1.0)
    for back_s, expected in ((WINDOW_S - 1.0, [2, 4, 5]), (WINDOW_S, [])):
        bench = bench_of(away, back_at_s=(NOW_S - back_s, 0.0))
        assert waiting(bench, case_of(monkeypatch, sound=(1,))) == expected


def test_one_that_shows_nothing_does_not_hold_the_zone_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without traffic no clock is shown; after ``PATIENCE`` windows the next one goes."""
    away, case = dict.fromkeys((2, 4, 5), LEAST_S + 1.0), case_of(monkeypatch)
    early = bench_of(away, back_at_s=(NOW_S - PATIENCE * WINDOW_S + 1.0, 0.0))
    late = bench_of(away, back_at_s=(NOW_S - PATIENCE * WINDOW_S, 0.0))
    assert waiting(early, case) == [2, 4, 5]
    assert waiting(late, case) == [4, 5]


def test_a_slow_replica_waits_longer_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """One alone in its zone is not held by anybody, and waits in proportion to how often it was slow."""
    case = case_of(monkeypatch, sound=(0, 3))
    assert waiting(bench_of({1: LEAST_S - 1.0}), case) == [1]
    assert waiting(bench_of({1: LEAST_S}), case) == []
    assert waiting(bench_of({1: 2.0 * LEAST_S - 1.0}, times=2), case) == [1]


def test_relapse_of_one_makes_the_zone_wait_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits in its zone waits from now on and as often; another zone is left alone."""
    bench, case = bench_of({1: 0.0, 2: LEAST_S, 3: LEAST_S, 5: 40.0}), case_of(monkeypatch)
    bench.times[0, 1] = 2
    fresh = np.zeros((1, 6), dtype=np.bool_)
    fresh[0, 1] = True
    renew(bench, fresh, case)
    assert (NOW_S - bench.quarantined_at_s[0, [1, 2, 3, 5]]).tolist() == [0.0, 0.0, LEAST_S, 0.0]
    assert bench.times[0].tolist() == [0, 2, 2, 1, 0, 2]
