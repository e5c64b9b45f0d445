"""The path of one telemetry through the controller's packages: each is entered once, in one order."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from types import FrameType

import pytest

import controller
from contracts.telemetry import FleetTelemetry
from controller.initial import initial_state
from controller.loop import tick
from controller.options import ControllerSetup
from controller.state import ControllerState
from policies.registry import make_configuration
from tests.support.fleets.builders import make_fleet, make_layout
from tests.support.fleets.worlds import drift, script

HOME = Path(controller.__file__).parent
LAYOUT = make_layout(kernels=3, slices=2, per_kernel=2)
#: The packages from telemetry to table; the policy stands between encoding and supervise.
WAY = ["perceive", "detect", "judge", "encoding", "supervise", "shield"]


def room_of(frame: FrameType | None) -> str:
    """Sub-package of the controller that a frame's code lies in; "" outside of all of them."""
    path = Path(frame.f_code.co_filename) if frame is not None else HOME
    return path.relative_to(HOME).parts[0] if path.is_relative_to(HOME) and path.parent != HOME else ""


def entered(do: Callable[[], object]) -> list[str]:
    """Packages that ``do`` enters from outside of all of them, in order; repeated calls count once.

    Compiled code shows frames without callers; the Python code that calls it is recorded instead.
    """
    rooms: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        above = callers(frame)
        if event == "call" and above and room_of(frame) and not any(room_of(one) for one in above):
            rooms.append(room_of(frame))

    sys.setprofile(note)
    try:
        do()
    finally:
        sys.setprofile(None)
    return [room for room, _ in groupby(rooms)]


def callers(frame: FrameType) -> list[FrameType]:
    """The frames that led to ``frame``, nearest first."""
    found, above = [], frame.f_back
    while above is not None:
        found.append(above)
        above = above.f_back
    return found


def warmed(setup: ControllerSetup) -> tuple[ControllerState, FleetTelemetry]:
    """A state during a fault, and the telemetry of the tick that closes a window."""
    state, seen = initial_state(setup, 1), None
    for seen in script(LAYOUT, 11, drift(LAYOUT, [0, 1], 3.0)):
        if seen.now_ms[0] < 11_000.0:
            state, _ = tick(state, seen, setup)
    assert seen is not None
    return state, seen


@pytest.mark.parametrize("configuration", ["hysteresis", "sequential", "burn-rate"])
def test_a_telemetry_enters_each_package_once(configuration: str) -> None:
    """From ``tick`` to the table: perceive, detect, judge, encoding, supervise, shield, and never back.

    After the table the supervisor counts what was put in force.
    """
    setup = make_configuration(configuration, make_fleet(LAYOUT))
    state, seen = warmed(setup)
    tick(state, seen, setup)  # fills caches
    assert entered(lambda: tick(state, seen, setup)) == [*WAY, "supervise"]


def test_the_trace_shows_a_second_entry() -> None:
    """A package entered again after another one is recorded again."""
    setup = make_configuration("hysteresis", make_fleet(LAYOUT))
    state, seen = warmed(setup)

    def twice() -> None:
        tick(state, seen, setup)
        tick(state, seen, setup)

    assert entered(twice).count("perceive") == 2
