"""Operators that race for one Lease: one leads, the others write nothing, wall clocks do not matter."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kubernetes import client

from k8s.api.cluster import ApiCluster
from k8s.process.election import LEASE, LEASE_S, RENEW_S, RETRY_S, Leadership
from k8s.process.metrics import LoopCounts
from k8s.process.serve import Loop
from tests.support.cluster.cluster_worlds import Bench
from tests.support.cluster.granted import rights
from tests.support.waiting import until

pytestmark = [pytest.mark.needs("kube_api")]

#: Speed of the clock of racing threads: a lease of 15 s lasts 1.5 s.
FASTER = 10.0
LEAST_CHANGES = 2


class Candidate:
    """A candidate with a monotonic clock that the test advances, and a wall clock that is off by ``skew``."""

    def __init__(self, bench: Bench, name: str, clock: list[float]) -> None:
        self.skew, self._clock = timedelta(), clock
        configuration = client.Configuration.get_default_copy()
        configuration.__dict__.update(bench.api.configuration.__dict__)
        self.api = rights(client.ApiClient(configuration))
        self.writes: list[tuple[str, str]] = []
        self.cut = False
        inner = self.api.rest_client.request

        def request(method: str, url: str, **arguments: Any) -> Any:
            if self.cut:
                raise OSError("no way to the API server")
            if method != "GET":
                self.writes.append((method, url))
            return inner(method, url, **arguments)

        self.api.rest_client.request = request
        self.leadership = Leadership(
            self.api, bench.namespace, name, timeout_s=20.0, steady_s=lambda: clock[0], wall=self._wall
        )

    def _wall(self) -> datetime:
        return datetime(2027, 1, 15, tzinfo=UTC) + timedelta(seconds=self._clock[0]) + self.skew


def led(candidates: list[Candidate], clock: list[float], seconds: int) -> list[list[bool]]:
    """Step all candidates for ``seconds`` seconds; for each second, which of them lead."""
    found = []
    for _ in range(seconds):
        clock[0] += 1.0
        for one in candidates:
            one.leadership.step()
        found.append([one.leadership.leads() for one in candidates])
    return found


def steady_s() -> float:
    """A monotonic clock that runs ``FASTER``."""
    return time.monotonic() * FASTER


def race(candidate: Leadership, stopped: threading.Event, ended: threading.Event) -> None:
    """Step the candidate until ``ended``, but not while ``stopped``."""
    while not ended.is_set():
        if not stopped.is_set():
            candidate.step()
        ended.wait(0.02)


def test_one_of_racing_threads_leads_and_the_next_takes_over(bench: Bench) -> None:
    """Of four racing threads at most one leads at any instant; when it stops renewing, another takes over."""
    stopped, ended = [threading.Event() for _ in range(4)], threading.Event()

    candidates = [
        Leadership(bench.account.api, bench.namespace, f"racer-{n}", timeout_s=1.0, steady_s=steady_s)
        for n in range(4)
    ]

    threads = [
        threading.Thread(target=race, args=(one, stop, ended))
        for one, stop in zip(candidates, stopped, strict=True)
    ]
    leaders: list[int] = []

    def looked() -> list[int]:
        now_s = steady_s()  # the same instant for all candidates
        found = [n for n, one in enumerate(candidates) if now_s - one._renewed_s < RENEW_S]
        assert len(found) <= 1, found
        return found

    def led_by_another() -> bool:
        fresh = [n for n in looked() if n not in leaders]
        leaders.extend(fresh)
        return bool(fresh)

    for thread in threads:
        thread.start()
    try:
        for _ in range(LEAST_CHANGES + 1):
            until(led_by_another)
            stopped[leaders[-1]].set()
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert len(leaders) == LEAST_CHANGES + 1
    lease = client.CoordinationV1Api(bench.api).read_namespaced_lease(LEASE, bench.namespace)
    assert lease.spec.lease_transitions >= LEAST_CHANGES


@pytest.mark.slow
def test_a_follower_writes_nothing(bench: Bench) -> None:
    """A follower writes nothing; when the leader is cut off, it stops and the follower takes over."""
    bench.everything()
    clock = [1000.0]
    both = [Candidate(bench, name, clock) for name in ("first", "second")]
    operators = [
        bench.operator(ApiCluster(one.api, bench.namespace, timeout_s=20.0), leads=one.leadership.leads)
        for one in both
    ]
    loops = [
        cast(Loop, SimpleNamespace(leadership=one.leadership, operator=operator, counts=LoopCounts()))
        for one, operator in zip(both, operators, strict=True)
    ]

    def turns(count: int) -> None:
        for _ in range(count):
            clock[0], bench.now_s = clock[0] + 1.0, bench.now_s + 1.0
            for loop in loops:
                Loop.turn(loop)
            assert sum(one.leadership.leads() for one in both) <= 1

    turns(8)
    assert both[0].writes
    assert both[1].writes == []
    assert bench.conditions()["Ready"][0] == "True"
    both[0].cut = True
    turns(LEASE_S + 2 * RETRY_S)
    assert [one.leadership.leads() for one in both] == [False, True]
    written = len(both[0].writes)
    both[0].cut = False
    bench.drift["fp8"] = 0.02
    turns(40)
    assert bench.weights("prose")["chat-bf16"] == 10_000
    assert len(both[0].writes) == written
    assert not operators[0].loops


def test_there_is_a_time_without_a_leader_between_two(bench: Bench) -> None:
    """A leader that cannot renew stops before another may start, and the lead changes once."""
    clock = [1000.0]
    both = [Candidate(bench, name, clock) for name in ("first", "second")]
    assert led(both, clock, 6)[-1] == [True, False]
    both[0].cut = True
    after = led(both, clock, LEASE_S + 2 * RETRY_S)
    vacant = after.index([False, False])
    assert vacant >= RENEW_S - RETRY_S - 1
    assert [False, True] in after[vacant:]
    assert all(sum(one) <= 1 for one in after)


@pytest.mark.parametrize("hours", [-1, 1])
@pytest.mark.parametrize("host", [0, 1])
def test_a_wrong_wall_clock_neither_takes_nor_loses_the_lease(bench: Bench, hours: int, host: int) -> None:
    """A wall clock that jumps by an hour and back, on either host, does not move the lease."""
    clock = [1000.0]
    both = [Candidate(bench, name, clock) for name in ("first", "second")]
    led(both, clock, 4)
    for skew in (hours, 0, hours):
        both[host].skew = timedelta(hours=skew)
        assert all(one == [True, False] for one in led(both, clock, 2 * LEASE_S))
    both[0].cut = True
    assert led(both, clock, LEASE_S + 2 * RETRY_S)[-1] == [False, True]


def test_a_jump_of_the_system_clock_does_not_move_the_lease(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A jump of this process's system clock does not move the lease either."""
    clock = [1000.0]
    both = [Candidate(bench, name, clock) for name in ("first", "second")]
    led(both, clock, 4)
    real = time.time
    for jump_s in (3600.0, -3600.0):
        monkeypatch.setattr(time, "time", lambda jump_s=jump_s: real() + jump_s)
        assert all(one == [True, False] for one in led(both, clock, 4))


def test_leaving_hands_over_at_once_and_cannot_release_the_next_lease(bench: Bench) -> None:
    """After ``leave`` the next candidate leads at once; a second ``leave`` does not release its lease."""
    clock = [1000.0]
    both = [Candidate(bench, name, clock) for name in ("first", "second")]
    assert led(both, clock, 4)[-1] == [True, False]
    both[0].leadership.leave()
    assert not both[0].leadership.leads()
    assert led(both[1:], clock, RETRY_S)[-1] == [True]
    both[0].leadership.leave()
    assert led(both, clock, 2 * LEASE_S)[-1] == [False, True]


def test_leaving_after_the_lease_expired_does_not_release_another_lease(bench: Bench) -> None:
    """A leader that hung until another leads leaves without a write; ``leave`` works without a server."""
    clock = [1000.0]
    both = [Candidate(bench, name, clock) for name in ("first", "second")]
    led(both, clock, 4)
    assert led(both[1:], clock, LEASE_S + 2 * RETRY_S)[-1] == [True]
    written = list(both[0].writes)
    both[0].leadership.leave()
    assert both[0].writes == written
    both[1].cut = True
    both[1].leadership.leave()
    assert not both[1].leadership.leads()


def test_a_lease_without_a_holder_is_taken_at_once(bench: Bench) -> None:
    """A record without a holder is free; a restarted holder continues to lead."""
    clock = [1000.0]
    leases = client.CoordinationV1Api(bench.api)
    leases.create_namespaced_lease(bench.namespace, {"metadata": {"name": LEASE}})
    first = Candidate(bench, "first", clock)
    assert led([first], clock, 1) == [[True]]
    assert led([Candidate(bench, "first", clock)], clock, 1) == [[True]]
    body = {"spec": {"holderIdentity": ""}}
    leases.patch_namespaced_lease(LEASE, bench.namespace, body)
    assert led([Candidate(bench, "second", clock)], clock, 1) == [[True]]


def test_a_turn_that_takes_longer_than_the_lease_keeps_the_lead(bench: Bench) -> None:
    """The lease is renewed between the policies of one turn, so that a slow server does not cost the lead.

    Otherwise policies late in the alphabet would not be handled. No other candidate gets the lease meanwhile.
    """
    clock = [0.0]
    slow, other = (Candidate(bench, name, clock) for name in ("slow", "other"))
    assert slow.leadership.step()
    for _ in range(3 * LEASE_S):
        clock[0] += 1.0
        assert slow.leadership.goes_on()
        assert not other.leadership.step()


def test_a_turn_that_lost_the_lead_does_not_get_it_back(bench: Bench) -> None:
    """What the turn has read is out of date, so ``goes_on`` does not acquire a lost lease."""
    clock = [0.0]
    paused, other = (Candidate(bench, name, clock) for name in ("paused", "other"))
    assert paused.leadership.step()
    paused.cut = True
    clock[0] += RENEW_S
    paused.cut = False
    assert not paused.leadership.goes_on()
    assert paused.writes[1:] == []
    led([other], clock, LEASE_S + RETRY_S)
    assert other.leadership.leads()
    assert not paused.leadership.goes_on()
