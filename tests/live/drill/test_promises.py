"""The truth of a slowed replica: the contract's limits, and the service of its clients."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from contracts.scoring.switches import measure_switches
from live.drill.episode import Damage, Frame, episode_of, second_of
from live.drill.healer import NoHealer
from live.drill.promises import broken_by_dose, broken_to_clients
from live.drill.target import LiveTarget
from live.load import LoadRecord
from tests.live.drill.test_episode import LAYOUT, frame, host, replicas, request
from tests.live.drill.test_target import Fleet, second
from tests.support.fleets.drill_runs import drill_plan

#: Beyond the shipped contract's limit of 15 s on both slices.
LATE_MS = 16_000.0


def slowed(kind: str, dose: float, **more: Any) -> Frame:
    """The frame of a drill with one fault that slows the replica fast-0."""
    fault = {"name": "bad", "kind": kind, "dose": dose, "onset_s": 20.0}
    plan = drill_plan(faults=[{**fault, "target": {"kernel": "fast", "replica": 0}, **more}])
    return replace(frame(), plan=plan)


def struck(here: Frame) -> Damage:
    """The drill's record of the fault, in force from its third second on."""
    fleet: Any = Fleet()
    target = LiveTarget(fleet, here, NoHealer())
    second(target)
    second(target)
    target.inject(here.plan.strikes[0])
    return here.damages[0]


def answers(late: int, replica: str = "fast-0") -> list[LoadRecord]:
    """Twenty requests under the fault, ``late`` of them answered too late."""
    slow = [request("code", replica, 3.0 + 0.1 * n, ms=LATE_MS) for n in range(late)]
    return slow + [request("code", replica, 3.0 + 0.1 * n) for n in range(late, 20)]


def false_quarantines(here: Frame, told: list[LoadRecord]) -> int:
    """False switches of a record in which fast-0 is taken out of rotation at second 30."""
    rest = (host("code", "fast-0"), host("code", "fast-1"), host("numbers", "good-0"))
    without = (host("code", "fast-1"), host("numbers", "good-0"))
    at_home = second_of(here, rest, replicas(), None)
    gone = second_of(here, without, replicas(), at_home)
    return measure_switches(episode_of(here, [at_home] * 30 + [gone] * 70, told, 100.0)).false_switches


@pytest.mark.parametrize(("late", "false"), [(0, 1), (1, 1), (2, 0), (20, 0)])
def test_a_quarantine_is_false_where_clients_of_the_replica_were_served_in_time(
    late: int, false: int
) -> None:
    """One late answer of twenty is within the SLO, as E5 counts it; two are not."""
    here = slowed("latency", 200.0)
    assert not struck(here).slices.any()
    assert false_quarantines(here, answers(late)) == false


def test_answers_of_others_and_of_other_times_say_nothing_of_the_replica() -> None:
    """Late answers of a peer, and of the replica before and after its fault, do not count for the fault."""
    here = slowed("latency", 200.0)
    struck(here)
    here.damages[0] = replace(here.damages[0], to_at_s=20.0)
    others = [replace(one, started_at_s=one.started_at_s + 30.0) for one in answers(20)]
    before = [request("code", "fast-0", 0.5, ms=LATE_MS)]
    found = episode_of(here, [second_of(here, (), replicas(), None)] * 60, [*others, *before], 100.0)
    assert not found.runtime_violating.any()
    peers = answers(20, "fast-1")
    assert not episode_of(here, [second_of(here, (), replicas(), None)] * 60, peers, 100.0).violating.any()


def test_a_slice_is_held_to_its_own_promise_and_a_slice_fault_to_its_slice() -> None:
    """A request may be late by one SLO and in time by another; replicas that were not struck keep theirs."""
    contract = frame().contract
    told = [request("code", "fast-0", 3.0, ms=LATE_MS)]
    assert broken_to_clients(contract, ("code", "long_context"), told).tolist() == [True, False]
    timeout = replace(told[0], complete=False, status=0)
    assert broken_to_clients(contract, ("code", "long_context"), [timeout]).all()
    assert not broken_to_clients(contract, ("code",), [request("code", "fast-0", 3.0, status=429)]).any()
    here = slowed("latency", 200.0, trigger={"slice": "numbers"})
    struck(here)
    found = episode_of(here, [second_of(here, (), replicas(), None)] * 60, answers(20), 100.0)
    assert found.runtime_violating.any(axis=(0, 1)).tolist() == [False, True]
    assert not found.violating.any()


@pytest.mark.parametrize(
    ("kind", "dose", "broken"),
    [
        ("slow", 8.0, True),
        ("slow", 1.3, False),
        ("kv_pressure", 0.97, True),
        ("kv_pressure", 0.5, False),
        ("latency", 60_000.0, False),
    ],
)
def test_what_a_clause_limits_is_broken_by_the_dose_as_in_the_simulator(
    kind: str, dose: float, broken: bool
) -> None:
    """Steps longer than the contract allows break it, even if every client was served in time."""
    here = slowed(kind, dose)
    found = broken_by_dose(here.contract, LAYOUT.slices, here.plan.strikes[0].fault)
    assert found.tolist() == [broken, broken]
    noted = struck(here)
    assert np.array_equal(noted.slices, found)
    assert not noted.silent
    assert false_quarantines(here, answers(0)) == (0 if broken else 1)


def test_steps_that_are_slow_at_times_alone_are_judged_by_clients() -> None:
    """With a trigger only some steps have the dose: no clause limits how many may be slow."""
    here = slowed("slow", 8.0, trigger={"min_batch_size": 4})
    assert not struck(here).slices.any()
    assert false_quarantines(here, answers(20)) == 0
