"""The truth of a live drill: a fault ends when its undo is confirmed, or with its process."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from faults.client.replica import Injected, Undone
from faults.client.wire import DrillError, DrillRefusedError
from faults.drill.plan import Strike
from live.drill.healer import NoHealer
from live.drill.target import LiveTarget
from live.ports import HostCounters, LiveReplica
from tests.live.drill.test_episode import frame, host, replicas


@dataclass
class Faults:
    """A replica's faults; ``busy`` refuses that many undos, ``refuses`` every renewal."""

    busy: int = 0
    refuses: bool = False

    def inject(self, fault: Any, ttl_s: float) -> Injected:
        """Put the fault in force."""
        return Injected(fault={"name": fault.name, "kind": fault.kind}, evidence={}, record=Path("r"))

    def renew(self, ttl_s: float) -> float:
        """Renew for the requested time; refuse without the fault or after the lease's end."""
        if self.refuses:
            raise DrillRefusedError("refuses to renew (409): no fault is in force")
        return ttl_s

    def undo(self, name: str = "") -> Undone:
        """Undo, unless busy."""
        self.busy -= 1
        if self.busy >= 0:
            raise DrillError("the server did not answer within 60 s")
        return Undone(clean=True)


@dataclass
class Fleet:
    """Three servers; ``pids`` are their processes now."""

    steered: Faults = field(default_factory=Faults)
    pids: dict[str, int | None] = field(default_factory=lambda: {"fast-0": 10, "fast-1": 11, "good-0": 12})

    def hosts(self) -> tuple[HostCounters, ...]:
        """All at home."""
        return host("code", "fast-0"), host("code", "fast-1"), host("numbers", "good-0")

    def replicas(self) -> tuple[LiveReplica, ...]:
        """All serve."""
        return tuple(replace(one, pid=self.pids[one.name]) for one in replicas())

    def faults(self, name: str) -> Faults:
        """The same faults for every replica."""
        return self.steered


def injected(fleet: Fleet) -> tuple[LiveTarget, Strike]:
    """A drill with one fault in force, two seconds after its start."""
    found: Any = fleet
    target = LiveTarget(found, frame(), NoHealer())
    target._began_at_s = time.monotonic()
    strike = target._frame.plan.strikes[0]
    second(target)
    second(target)
    target.inject(strike)
    return target, strike


def second(target: LiveTarget) -> None:
    """One second of the drill, without waiting for it."""
    target._began_at_s = time.monotonic() - (len(target._seconds) + 1) - 0.01
    target.advance()


def ends_at_s(target: LiveTarget) -> float:
    """Time until which the fault was in force, by the record."""
    (damage,) = target._frame.damages
    return damage.to_at_s


def test_a_fault_ends_with_the_process_that_had_it() -> None:
    """A replica that is restarted midway is healthy from then on, and the undo reports it."""
    fleet = Fleet()
    target, strike = injected(fleet)
    second(target)
    assert math.isinf(ends_at_s(target))
    fleet.pids["fast-0"], fleet.steered.refuses = None, True
    target.keep()  # the restart is in progress
    fleet.pids["fast-0"] = 99
    for _ in range(2):
        second(target)
        target.keep()
    assert ends_at_s(target) == 4.0
    clean, told = target.undo((strike,))
    assert clean
    assert told == ("fast-0 is as it was (it was started anew by 4 s, and the fault ended with its process)")


@pytest.mark.parametrize("pids", [{"fast-0": None}, {"fast-1": 98}])
def test_another_restart_and_an_unknown_process_end_nothing(pids: dict[str, int | None]) -> None:
    """An unknown process does not count as another one, and a peer's restart affects only the peer."""
    fleet = Fleet()
    target, strike = injected(fleet)
    fleet.pids |= pids
    second(target)
    assert math.isinf(ends_at_s(target))
    assert target.undo((strike,)) == (True, "fast-0 is as it was")


def test_a_fault_that_ended_by_itself_is_not_reported_as_active() -> None:
    """A lease that ran out in the same process ends the drill, and the reason says so."""
    fleet = Fleet()
    target, _ = injected(fleet)
    target.keep()
    fleet.steered.refuses = True
    with pytest.raises(DrillError, match="bad ended by itself on fast-0: refuses to renew"):
        target.keep()


def test_a_fault_is_in_force_until_its_undo_is_confirmed() -> None:
    """A fault that a busy server did not undo remains true in the record."""
    fleet = Fleet(steered=Faults(busy=1))
    target, strike = injected(fleet)
    second(target)
    clean, told = target.undo((strike,))
    assert (clean, math.isinf(ends_at_s(target))) == (False, True)
    assert "not confirmed" in told
    second(target)
    assert target.undo((strike,)) == (True, "fast-0 is as it was")
    assert ends_at_s(target) == 4.0
