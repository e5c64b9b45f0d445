"""The controller over live ports: one turn per tick, and nothing that a port does ends it.

A source that fails, telemetry that is silent, a gateway that refuses and a log that cannot be written all
leave the last table in force. Who discovers servers, who writes routes, what world this is: unknown here.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from contracts.telemetry import FleetTelemetry
from contracts.units import MS_PER_S
from controller.decision import Decision
from controller.initial import initial_state
from controller.options import ControllerSetup
from controller.plan import newly_hung
from controller.ports import Clock, RouteActuator, TelemetrySource
from controller.state import ControllerState
from live.control.clocks import CpuClock
from live.control.turns import decide, settled
from live.ports import StreamReset

#: A plan that is in force is put in force again after so long, for a gateway that lost it.
REASSERT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One turn of the controller, whatever came of it."""

    number: int
    at_s: float  # of the controller's clock
    before: ControllerState
    after: ControllerState  # as it is remembered
    telemetry: FleetTelemetry | None = None  # None: the source failed, and nothing was decided
    decision: Decision | None = None
    executed: bool = False  # False: nobody carries plans out, or the gateway did not take this one
    in_force: bool = False  # what the state assumes; an observer's plans count as if they were
    spent_ms: float = 0.0  # CPU time of deciding
    took_ms: float = 0.0  # time from the start of the turn to its end
    reset: tuple[str, ...] = ()  # replicas whose open requests were cut loose
    error: str = ""  # what a port said, "" for nothing


class TurnWatcher(Protocol):
    """Who is shown every turn: a log, metrics, a drill."""

    def turn(self, turn: Turn) -> None:
        """Take note of ``turn``; what this raises is told, and changes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPorts:
    """The edge of one controller. actuator None: it observes, and moves nothing."""

    source: TelemetrySource
    clock: Clock
    actuator: RouteActuator | None = None
    resetter: StreamReset | None = None
    watchers: tuple[TurnWatcher, ...] = ()
    cpu: Clock = field(default_factory=CpuClock)


class LiveController:
    """Drives, or observes, one fleet. ``state``: to go on from; None: every slice at home."""

    def __init__(
        self, setup: ControllerSetup, ports: ControlPorts, state: ControllerState | None = None
    ) -> None:
        self.setup, self.ports = setup, ports
        self.state = initial_state(setup, 1) if state is None else state
        self.turns = 0
        self.errors = 0
        self.last_error = ""
        self._owed = True
        self._applied_at_s = -np.inf
        self._states: bytes = b""
        self._hung: set[str] = set()

    def watch(self, *watchers: TurnWatcher) -> None:
        """Show the turns from now on to ``watchers`` as well."""
        self.ports = replace(self.ports, watchers=(*self.ports.watchers, *watchers))

    @property
    def observes(self) -> bool:
        """Whether plans are made and not carried out."""
        return self.ports.actuator is None

    def step(self) -> Turn:
        """One turn: read, decide, put in force, cut hung replicas loose, show it to the watchers."""
        began_ms = self.ports.clock.now_ms()
        self.turns += 1
        nothing = Turn(number=self.turns, at_s=began_ms / MS_PER_S, before=self.state, after=self.state)
        found = self._turn(nothing)
        found = replace(found, took_ms=self.ports.clock.now_ms() - began_ms)
        self.state = found.after
        if found.error:
            self._failed(found.error)
        for watcher in self.ports.watchers:
            try:
                watcher.turn(found)
            except Exception as error:  # a full disk must not stop the loop
                self._failed(f"{type(watcher).__name__}: {told(error)}")
        return found

    def _turn(self, nothing: Turn) -> Turn:
        """``nothing`` with what came of it."""
        before = nothing.before
        try:
            telemetry = self.ports.source.read()
        except Exception as error:  # whatever a source does, the last table stands
            return replace(nothing, error=f"telemetry: {told(error)}")
        cpu_ms = self.ports.cpu.now_ms()
        after, decision = decide(before, telemetry, self.setup)
        spent_ms = self.ports.cpu.now_ms() - cpu_ms
        taken, problem = self._applied(decision, telemetry)
        in_force = taken or self.observes
        self._note_hung(before, decision)
        reset, trouble = self._cut_loose() if taken else ((), "")
        return replace(
            nothing,
            after=settled(before, after, self.setup, in_force=in_force, spent_ms=spent_ms),
            telemetry=telemetry,
            decision=decision,
            executed=taken,
            in_force=in_force,
            spent_ms=spent_ms,
            reset=reset,
            error=problem or trouble,
        )

    def _applied(self, decision: Decision, telemetry: FleetTelemetry) -> tuple[bool, str]:
        """Whether the plan is in force, and why not; the gateway is asked only where something is new."""
        actuator = self.ports.actuator
        if actuator is None:
            return False, ""
        now_s, states = self.ports.clock.now_ms() / MS_PER_S, telemetry.replica_state.tobytes()
        old = now_s - self._applied_at_s >= REASSERT_S
        if not (bool(decision.moved[0]) or self._owed or states != self._states or old):
            return True, ""
        try:
            taken = actuator.apply(decision.plan)
            problem = "" if taken else str(getattr(actuator, "last_error", "")) or "the plan was refused"
        except Exception as error:  # a gateway that fails keeps the last plan
            taken, problem = False, told(error)
        self._owed = not taken
        if taken:
            self._applied_at_s, self._states = now_s, states
        return taken, f"plan: {problem}" if problem else ""

    def _note_hung(self, before: ControllerState, decision: Decision) -> None:
        """Replicas that this turn condemned as hung, until they are cut loose or come back."""
        names = self.setup.layout.replicas
        fresh = newly_hung(before.quarantined, decision.quarantined, decision.quarantine_reason)
        self._hung |= {names[r] for r in np.flatnonzero(fresh[0])}
        self._hung -= {names[r] for r in np.flatnonzero(~decision.quarantined[0])}

    def _cut_loose(self) -> tuple[tuple[str, ...], str]:
        """End the open requests of hung replicas, once they are out of rotation; tried until it is done."""
        resetter, done, problem = self.ports.resetter, [], ""
        for replica in sorted(self._hung) if resetter is not None else ():
            try:
                assert resetter is not None
                resetter.reset(replica)
                done.append(replica)
            except Exception as error:  # tried again at the next tick
                problem = f"reset of {replica}: {told(error)}"
        self._hung -= set(done)
        return tuple(done), problem

    def _failed(self, error: str) -> None:
        self.errors += 1
        self.last_error = error


def told(error: Exception) -> str:
    """One line that names ``error``."""
    return " ".join(str(error).split())[:400] or type(error).__name__
