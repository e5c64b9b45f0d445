"""How much load a kernel is allowed: laws of one kernel with a queue fed by what is admitted."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from controller.cells import LEAST_BEHIND
from controller.ports import PolicyState
from controller.shield.load import (
    DRAIN_S,
    FALL_RATIO,
    LASTS_S,
    LEAST_RATIO,
    STEP_S,
    UNNOTICED_S,
    LoadSeen,
    initial_load,
    let_in,
    load_law,
)

MAX_LOAD_RATIO = 1.05
HOUR_S = 3600
#: Share of a slice's requests that the contract tolerates late.
TOLERATED = np.array([0.05])


def seen(load_rps: float, estimate_rps: float, **more: float) -> LoadSeen:
    """One slice on one replica of one kernel; shed: share of the slice that the table sheds."""
    shed = more.get("shed", 0.0)
    return LoadSeen(
        now_s=np.array([more.get("now_s", 0.0)]),
        passed_s=np.ones(1),
        last=np.array([[[1.0 - shed, shed]]]),
        offered_rps=np.array([[load_rps / (1.0 - shed)]]),
        ready=np.ones((1, 1), dtype=np.int64),
        replica_rps=np.array([[estimate_rps]]),
        too_many=np.array([[more.get("too_many", 0.0)]]),
        surely_too_many=np.array([[more.get("surely", more.get("too_many", 0.0))]]),
        filled_ratio=np.array([[more.get("filled", np.inf)]]),
        closed=np.array([more.get("late", -1.0) >= 0.0]),
        ended=np.array([[[100.0]]]),
        bad=np.array([[[100.0 * max(more.get("late", 0.0), 0.0)]]]),
        fresh=np.array([[more.get("fresh", 1.0) > 0.0]]),
        telling=np.ones((1, 1), dtype=np.bool_),
        owner=np.zeros(1, dtype=np.int64),
    )


def most_of(memory: PolicyState, look: LoadSeen) -> tuple[PolicyState, float]:
    """Memory and the limit after one tick."""
    after, most_rps = let_in(memory, look, load_law(TOLERATED, MAX_LOAD_RATIO, LASTS_S))
    return after, float(most_rps[0, 0])


@dataclass
class Kernel:
    """A kernel that carries ``carried_rps`` and is estimated at ``estimate_rps``."""

    carried_rps: float
    estimate_rps: float
    queue: float = 0.0
    told: float = 0.0
    shed: float = 0.0
    memory: PolicyState = field(default_factory=lambda: initial_load(1, 1, 1))
    served_rps: list[float] = field(default_factory=list)
    queues: list[float] = field(default_factory=list)

    def run(self, offered_rps: NDArray[np.float64]) -> Kernel:
        """One second for each of ``offered_rps``; the queue is reported every five seconds."""
        for now_s, rate_rps in enumerate(offered_rps):
            load_rps = rate_rps * (1.0 - self.shed)
            more = {"now_s": float(now_s), "shed": self.shed, "too_many": self.told}
            late = {"late": 1.0 if self.told > 0.0 else 0.0} if now_s % 5 == 0 else {}
            self.memory, most_rps = most_of(self.memory, seen(load_rps, self.estimate_rps, **more, **late))
            self.shed = 1.0 - min(most_rps / rate_rps, 1.0)
            self.queue = max(self.queue + min(most_rps, rate_rps) - self.carried_rps, 0.0)
            if now_s % 5 == 0:
                self.told = self.queue
            self.served_rps.append(min(most_rps, rate_rps))
            self.queues.append(self.queue)
        return self


def constant(rate_rps: float, seconds: int = HOUR_S) -> NDArray[np.float64]:
    """The same rate in every second."""
    return np.full(seconds, rate_rps)


rates = st.floats(1.0, 100.0)


@given(load_rps=rates, estimate_rps=rates)
def test_a_kernel_keeps_its_load_until_it_has_a_queue(load_rps: float, estimate_rps: float) -> None:
    """Even with a low estimate; and it may always have its estimated capacity."""
    _, most_rps = most_of(initial_load(1, 1, 1), seen(load_rps, estimate_rps))
    assert most_rps == pytest.approx(max(load_rps, MAX_LOAD_RATIO * estimate_rps))


@given(st.lists(st.tuples(rates, st.floats(1e-4, 100.0)), min_size=1, max_size=60))
def test_a_limit_is_the_estimate_or_a_load_once_carried(ticks: list[tuple[float, float]]) -> None:
    """However the estimate falls and recovers, no kernel gets a multiple of the largest load it had."""
    memory, most_had_rps = initial_load(1, 1, 1), 0.0
    for now_s, (load_rps, estimate_rps) in enumerate(ticks):
        memory, most_rps = most_of(memory, seen(load_rps, estimate_rps, now_s=float(now_s)))
        most_had_rps = max(most_had_rps, load_rps)
        assert most_rps <= max(most_had_rps, MAX_LOAD_RATIO * estimate_rps) * (1.0 + 1e-9)
        assert most_rps >= max(load_rps, MAX_LOAD_RATIO * estimate_rps) * (1.0 - 1e-9)


@given(estimate_rps=rates, work_s=st.floats(UNNOTICED_S + 0.01, 60.0))
def test_a_kernel_with_a_queue_gets_less_than_it_carries(estimate_rps: float, work_s: float) -> None:
    """Once the queue has lasted, it is drained within ten seconds; a fifth of the kernel is always served."""
    too_many = work_s * estimate_rps
    memory, most_rps = most_of(initial_load(1, 1, 1), seen(estimate_rps, estimate_rps, too_many=too_many))
    assert most_rps == pytest.approx(MAX_LOAD_RATIO * estimate_rps)
    _, most_rps = most_of(memory, seen(estimate_rps, estimate_rps, too_many=too_many, now_s=LASTS_S))
    asked = MAX_LOAD_RATIO * estimate_rps - too_many / DRAIN_S
    assert most_rps == pytest.approx(max(asked, LEAST_RATIO * estimate_rps))


@given(estimate_rps=rates, work_s=st.floats(0.0, UNNOTICED_S - 0.01))
def test_a_short_burst_sheds_nothing(estimate_rps: float, work_s: float) -> None:
    """Half a second of work is done before a scrape reports it."""
    look = seen(estimate_rps, estimate_rps, too_many=work_s * estimate_rps)
    assert most_of(initial_load(1, 1, 1), look)[1] == pytest.approx(MAX_LOAD_RATIO * estimate_rps)


@given(estimate_rps=rates, work_s=st.floats(UNNOTICED_S + 0.01, 60.0))
def test_a_batch_too_large_for_long_answers_sheds_only_where_answers_are_late(
    estimate_rps: float, work_s: float
) -> None:
    """As long as answers are in time, long answers are not known to exist."""
    memory, told = initial_load(1, 1, 1), {"too_many": work_s * estimate_rps, "surely": 0.0}
    for now_s in range(60):
        in_time = seen(estimate_rps, estimate_rps, now_s=float(now_s), late=0.0, **told)
        memory, most_rps = most_of(memory, in_time)
        assert most_rps == pytest.approx(MAX_LOAD_RATIO * estimate_rps)
    for now_s in range(60, 60 + round(2 * LASTS_S) + 1):
        late = seen(estimate_rps, estimate_rps, now_s=float(now_s), late=1.0, **told)
        memory, most_rps = most_of(memory, late)
    assert most_rps < MAX_LOAD_RATIO * estimate_rps


@given(st.lists(st.floats(0.0, 60.0), min_size=2, max_size=40), st.integers(1, 20))
def test_a_queue_counts_only_as_far_as_it_lasts(waits_s: list[float], interval_s: int) -> None:
    """Only what waited all the time since the last scrape is drained, at any scrape interval."""
    memory, law = initial_load(1, 1, 1), load_law(TOLERATED, MAX_LOAD_RATIO, float(interval_s))
    told = np.repeat(waits_s, interval_s)
    for now_s, too_many in enumerate(10.0 * told):
        look = seen(10.0, 10.0, too_many=float(too_many), now_s=float(now_s))
        memory, most_rps = let_in(memory, look, law)
        lasted = told[max(now_s - interval_s, 0) : now_s + 1].min() if now_s >= interval_s else 0.0
        assert float(most_rps[0, 0]) >= memory["ratio"][0, 0] * 10.0 - lasted * 10.0 / DRAIN_S - 1e-9


@settings(deadline=None, max_examples=20)
@given(carried_rps=rates, underrated=st.floats(0.1, 1.0), load=st.floats(0.1, 1.0))
def test_a_kernel_that_carries_everything_sheds_nothing(
    carried_rps: float, underrated: float, load: float
) -> None:
    """A kernel estimated at a tenth of its capacity, at loads within its true capacity."""
    kernel = Kernel(carried_rps, underrated * carried_rps).run(constant(load * carried_rps, 600))
    np.testing.assert_allclose(kernel.served_rps, load * carried_rps)


@settings(deadline=None, max_examples=20)
@given(error=st.floats(0.6, 1.3), load=st.floats(1.02, 2.0))
def test_overload_settles_with_a_short_queue(error: float, load: float) -> None:
    """After half an hour the queue is below five seconds of work, and 93 % of the capacity is served.

    On average the queue is at most a second more than a wrong estimate explains.
    """
    kernel = Kernel(10.0, 10.0 * error).run(constant(10.0 * load))
    served, queue = np.array(kernel.served_rps[HOUR_S // 2 :]), np.array(kernel.queues[HOUR_S // 2 :])
    explained_s = max(MAX_LOAD_RATIO * error - 1.0, 0.0) * DRAIN_S
    assert queue.max() / 10.0 < 5.0 + explained_s
    assert queue.mean() / 10.0 < 1.0 + explained_s
    assert served.mean() > min(9.3, 10.0 * MAX_LOAD_RATIO * error)


def test_steps_up_become_rare() -> None:
    """At constant overload of a correctly estimated kernel, the last hours have few steps."""
    kernel = Kernel(10.0, 9.5).run(constant(12.0, 24 * HOUR_S))
    last_hours = np.array(kernel.served_rps[-6 * HOUR_S :])
    assert np.count_nonzero(np.diff(last_hours)) < 60


def test_late_answers_without_a_queue_change_no_limit() -> None:
    """A slow network makes answers late however much is shed; what is shed already stays shed."""
    memory, most_rps = most_of(initial_load(1, 1, 1), seen(10.0, 5.0, late=0.5))
    assert most_rps == 10.0
    for now_s in range(1, 120):
        memory, most_rps = most_of(memory, seen(10.0, 5.0, late=0.5, shed=0.2, now_s=float(now_s)))
    assert most_rps == 10.0


def test_shed_load_is_admitted_again_step_by_step() -> None:
    """A kernel that sheds and answers in time is given more load every fifteen seconds."""
    memory, most_rps = most_of(initial_load(1, 1, 1), seen(5.25, 5.0, late=0.0, shed=0.2))
    found = [most_rps]
    for now_s in range(1, 60):
        look = seen(found[-1], 5.0, late=0.0, shed=0.2, now_s=float(now_s))
        memory, most_rps = most_of(memory, look)
        found.append(most_rps)
    steps = np.flatnonzero(np.diff(found))
    assert np.diff(steps).tolist() == [16] * (len(steps) - 1)
    assert len(steps) == 3


@given(late=st.floats(0.15, 1.0), shed=st.floats(0.05, 0.9))
def test_who_sheds_more_than_comes_late_admits_more(late: float, shed: float) -> None:
    """Shedding gains at most what would be late: with less late than shed, the kernel is given more load."""
    assume(abs(late - shed) > 1e-6)
    memory, most_rps = most_of(initial_load(1, 1, 1), seen(5.25, 5.0, late=late, shed=shed))
    for now_s in range(1, 40):
        look = seen(most_rps, 5.0, late=late, shed=shed, now_s=float(now_s))
        memory, most_rps = most_of(memory, look)
    assert (most_rps > 5.25) is (late < shed)


@pytest.mark.parametrize("filled", [0.0, 0.1, 0.5, np.inf])
def test_a_kernel_with_nothing_to_do_admits_more_at_once(filled: float) -> None:
    """Whatever was late before, and however often a step ended in a queue: it is given more within blocks."""
    memory, most_rps = most_of(initial_load(1, 1, 1), seen(5.25, 5.0, late=1.0, shed=0.4))
    memory |= {"step_s": np.full((1, 1), HOUR_S)}
    for now_s in range(1, round(6 * LASTS_S)):
        look = seen(most_rps, 5.0, shed=0.4, filled=filled, now_s=float(now_s))
        memory, most_rps = most_of(memory, look)
    assert (most_rps > 1.1 * 5.25) is (filled < 0.15)


@given(too_many=st.floats(3.0, 60.0), ticks=st.integers(1, 4))
def test_a_queue_delays_steps_and_lowers_the_limit_if_chance_does_not_explain_it(
    too_many: float, ticks: int
) -> None:
    """While traffic is shed, a burst is worked off; before it lasts, only a long queue lowers the limit."""
    by_chance = too_many < LEAST_BEHIND + UNNOTICED_S * 5.0
    memory, _ = most_of(initial_load(1, 1, 1), seen(8.0, 5.0))
    proven_ratio = memory["ratio"][0, 0]
    for now_s in range(1, 1 + ticks):
        look = seen(8.0, 5.0, shed=0.2, too_many=too_many, now_s=float(now_s))
        memory, most_rps = most_of(memory, look)
        assert most_rps < 8.0
    left = 1.0 if by_chance else (1.0 - FALL_RATIO) ** ticks
    assert memory["ratio"][0, 0] == pytest.approx(left * proven_ratio, rel=1e-12)
    assert memory["step_s"][0, 0] == 2.0 * STEP_S


@pytest.mark.parametrize(("scrapes", "shed"), [(1, False), (2, True)])
def test_a_queue_seen_by_one_scrape_is_not_drained(scrapes: int, shed: bool) -> None:
    """A scrape that is not renewed for half a minute counts once; a second scrape makes it count."""
    memory, limits = initial_load(1, 1, 1), []
    for now_s in range(35):
        fresh = now_s < 3 or now_s in (3, 12)[:scrapes]
        queue = 30.0 if now_s >= 3 else 0.0
        look = seen(5.0, 5.0, now_s=float(now_s), too_many=queue, fresh=float(fresh))
        memory, most_rps = most_of(memory, look)
        limits.append(most_rps)
    assert bool(min(limits) < 5.0) is shed
