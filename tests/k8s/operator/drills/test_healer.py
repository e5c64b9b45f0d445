"""Why the operator moved slices in a drill, read from its status, which may lag or lead the route."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

pytest.importorskip("kubernetes", reason="install the extra k8s: make setup-test")

from k8s.operator.drills import healer
from k8s.operator.drills.healer import OperatorHeals
from k8s.operator.objects import ClusterError
from k8s.operator.status.recent import RecentDecision

SLICES = ("code", "prose")
HOME = {"code": (100, 0, 0), "prose": (100, 0, 0)}


def decision(number: int, moved: tuple[str, ...], for_capacity: tuple[str, ...] = ()) -> RecentDecision:
    """A decision as in the status."""
    return RecentDecision(
        at=f"2026-11-27T20:00:{number:02}Z", told="", moved=moved, for_capacity=for_capacity
    )


@dataclass
class Told:
    """A status and a route; decisions in ``later`` are added to the status after the next read."""

    status: list[RecentDecision] = field(default_factory=list)
    later: list[RecentDecision] = field(default_factory=list)
    route: dict[str, tuple[int, ...]] = field(default_factory=lambda: dict(HOME))
    refuses: bool = False
    looks: int = 0

    def decisions(self) -> tuple[RecentDecision, ...]:
        """Decisions of the status, newest first."""
        if self.refuses:
            raise ClusterError("gone")
        self.looks += 1
        found = tuple(self.status)
        self.status, self.later = [*self.later, *self.status], []
        return found

    def heals(self) -> OperatorHeals:
        """The healer over this status and route."""
        return OperatorHeals(self.decisions, lambda: self.route)

    def moves(self, name: str, shares: tuple[int, ...]) -> None:
        """Change the shares of a slice in the route."""
        self.route = {**self.route, name: shares}


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Poll without sleeping."""
    monkeypatch.setattr(healer, "_POLL_S", 0.0)


def test_the_newest_move_of_a_slice_counts_and_others_stay() -> None:
    """A slice counts as moved for capacity until it moves again for another reason."""
    told = Told(status=[decision(1, ("prose",), ("prose",))])
    heals = told.heals()
    assert heals.for_capacity(SLICES).tolist() == [False, True]
    told.status.insert(0, decision(2, ("code", "prose"), ("code",)))
    told.moves("code", (60, 40, 0))
    told.moves("prose", (0, 100, 0))
    assert heals.for_capacity(SLICES).tolist() == [True, False]
    assert heals.for_capacity(SLICES).tolist() == [True, False]


def test_the_healer_waits_for_a_status_behind_the_route() -> None:
    """If the route has moved and the status has not, the healer waits for the new decision."""
    told = Told(status=[decision(1, ("code",), ("code",))])
    heals = told.heals()
    assert heals.for_capacity(SLICES)[0]
    told.moves("code", (0, 100, 0))
    told.later = [decision(2, ("code",))]
    assert not heals.for_capacity(SLICES)[0]
    assert told.looks == 3


def test_a_status_ahead_of_the_route_explains_the_move() -> None:
    """If the status had the decision before the route was seen to move, that decision applies."""
    told = Told()
    heals = told.heals()
    assert not heals.for_capacity(SLICES)[0]
    told.status.insert(0, decision(1, ("code",), ("code",)))
    assert heals.for_capacity(SLICES)[0]
    told.moves("code", (60, 40, 0))
    assert heals.for_capacity(SLICES)[0]
    assert told.looks == 3


@pytest.mark.parametrize("refuses", [False, True])
def test_a_move_without_a_decision_is_not_for_capacity(
    monkeypatch: pytest.MonkeyPatch, refuses: bool
) -> None:
    """If the status does not explain a move or cannot be read, the move does not count as for capacity."""
    monkeypatch.setattr(healer, "BEHIND_S", 0.01)
    told = Told(status=[decision(1, ("code",), ("code",))])
    heals = told.heals()
    assert heals.for_capacity(SLICES)[0]
    told.refuses = refuses
    told.moves("code", (0, 100, 0))
    assert not heals.for_capacity(SLICES)[0]
