"""The control loop over live ports: one turn per tick; no failure of a port ends the loop.

The last table stays in force when a source or a policy fails, telemetry is silent, the gateway refuses a
plan, or the log cannot be written. This module does not depend on how servers are discovered or routes are
written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
from live.control.turns import Decided, decide_alone, remembered_state
from live.ports import ReplicaShares, StreamReset

#: An unchanged plan is applied again after this time, in s, in case the gateway lost it.
REASSERT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One turn of the controller, with its outcome."""

    number: int
    at_s: float  # of the controller's clock
    before: ControllerState
    after: ControllerState  # the state that the next turn starts from
    telemetry: FleetTelemetry | None = None  # None: the source failed, and nothing was decided
    decision: Decision | None = None  # None with telemetry: deciding failed, and the last table stays
    executed: bool = False  # False: plans are only observed, or the gateway did not accept this one
    in_force: bool = False  # as the state assumes; an observer's plans count as in force
    spent_ms: float = 0.0  # CPU time of deciding
    took_ms: float = 0.0  # time from the start of the turn to its end
    reset: tuple[str, ...] = ()  # replicas whose open requests were reset
    healing: tuple[str, ...] = ()  # changes of replicas that are being re-admitted, one line each
    error: str = ""  # error of a port; "" for none


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A turn after reading telemetry and before deciding; without telemetry if the source failed."""

    began_ms: float
    turn: Turn


class TurnWatcher(Protocol):
    """Receives every turn; for logs, metrics and drills."""

    def turn(self, turn: Turn) -> None:
        """Process ``turn``. An exception is reported and has no other effect."""


class ReturnWatch(Protocol):
    """Verifies replicas after quarantine: ``live.heal.readmission.Readmissions``."""

    @property
    def shares(self) -> Mapping[str, float]:
        """Replica under re-admission -> share of its full traffic, 0..1."""

    def turn(self, now_s: float, ended: Iterable[str], away: Iterable[str]) -> tuple[str, ...]:
        """Advance one tick; a line for each change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPorts:
    """The ports of one controller. actuator None: it observes and moves nothing.

    returns None: a replica gets its full traffic as soon as its quarantine ends. ``returns`` needs
    ``admits``.
    """

    source: TelemetrySource
    clock: Clock
    actuator: RouteActuator | None = None
    resetter: StreamReset | None = None
    returns: ReturnWatch | None = None
    admits: ReplicaShares | None = None
    watchers: tuple[TurnWatcher, ...] = ()
    cpu: Clock = field(default_factory=CpuClock)


class LiveController:
    """Drives or observes one fleet. ``state``: to continue from; None: every slice at its home kernel."""

    def __init__(
        self, setup: ControllerSetup, ports: ControlPorts, state: ControllerState | None = None
    ) -> None:
        self.setup, self.ports = setup, ports
        self.state = initial_state(setup, 1) if state is None else state
        self.turns = 0
        self.errors = 0
        self.last_error = ""
        self._pending = True
        self._applied_at_s = -np.inf
        self._states: bytes = b""
        self._hung: set[str] = set()
        self._shares: dict[str, float] = {}

    def watch(self, *watchers: TurnWatcher) -> None:
        """Show all further turns to ``watchers`` as well."""
        self.ports = replace(self.ports, watchers=(*self.ports.watchers, *watchers))

    @property
    def observes(self) -> bool:
        """Whether plans are made but not carried out."""
        return self.ports.actuator is None

    def step(self) -> Turn:
        """One turn: read, decide, apply the plan, reset hung replicas, show the turn to the watchers."""
        return self.finish(self.begin())

    def begin(self) -> Begun:
        """The first part of a turn: read telemetry. ``finish`` must follow."""
        began_ms = self.ports.clock.now_ms()
        self.turns += 1
        nothing = Turn(number=self.turns, at_s=began_ms / MS_PER_S, before=self.state, after=self.state)
        try:
            telemetry = self.ports.source.read()
        except Exception as error:  # whatever a source raises, the last table stays
            return Begun(began_ms=began_ms, turn=replace(nothing, error=f"telemetry: {error_line(error)}"))
        return Begun(began_ms=began_ms, turn=replace(nothing, telemetry=telemetry))

    def finish(self, begun: Begun, decided: Decided | None = None) -> Turn:
        """The rest of a turn. ``decided``: result of a batched decision; None: decide this fleet alone."""
        found = begun.turn
        if found.telemetry is not None:
            found = self._turn(found, found.telemetry, decided)
            outdated = str(getattr(self.ports.source, "outdated", ""))
            if outdated and not found.error:
                found = replace(found, error=f"discovery: servers are as last seen: {outdated}")
        found = replace(found, took_ms=self.ports.clock.now_ms() - begun.began_ms)
        self.state = found.after
        if found.error:
            self._failed(found.error)
        for watcher in self.ports.watchers:
            try:
                watcher.turn(found)
            except Exception as error:  # a watcher's failure, such as a full disk, must not stop the loop
                self._failed(f"{type(watcher).__name__}: {error_line(error)}")
        return found

    def _turn(self, begun: Turn, telemetry: FleetTelemetry, decided: Decided | None) -> Turn:
        """``begun``, completed with the decision and its effects."""
        before = begun.before
        try:
            decided = decided or decide_alone(before, telemetry, self.setup, self.ports.cpu)
        except Exception as error:  # a policy may be a plug-in; its error must not end the loop
            return replace(begun, error=f"deciding: {error_line(error)}")
        decision = decided.decision
        healing, stuck = self._returning(before, decision)
        taken, problem = self._applied(decision, telemetry)
        in_force = taken or self.observes
        self._note_hung(before, decision)
        reset, trouble = self._cut_loose() if taken else ((), "")
        return replace(
            begun,
            after=remembered_state(
                before, decided.after, self.setup, in_force=in_force, spent_ms=decided.spent_ms
            ),
            decision=decision,
            executed=taken,
            in_force=in_force,
            spent_ms=decided.spent_ms,
            reset=reset,
            healing=healing,
            error=problem or trouble or stuck,
        )

    def _returning(self, before: ControllerState, decision: Decision) -> tuple[tuple[str, ...], str]:
        """Lines about replicas under re-admission, and an error; a changed share applies from the next plan
        on.
        """
        returns, admits, names = self.ports.returns, self.ports.admits, self.setup.layout.replicas
        if returns is None or admits is None or self.observes:
            return (), ""
        ended = [names[r] for r in np.flatnonzero(before.quarantined[0] & ~decision.quarantined[0])]
        away = [names[r] for r in np.flatnonzero(decision.quarantined[0])]
        lines: tuple[str, ...] = ()
        problem = ""
        try:
            lines = returns.turn(self.ports.clock.now_ms() / MS_PER_S, ended, away)
        except Exception as error:  # replicas under re-admission keep their present shares
            problem = f"healing: {error_line(error)}"
        try:
            shares = dict(returns.shares)
            if shares != self._shares:
                admits.admit(shares)
                self._shares, self._pending = shares, True
        except Exception as error:  # tried again at the next tick
            problem = f"healing: {error_line(error)}"
        return lines, problem

    def _applied(self, decision: Decision, telemetry: FleetTelemetry) -> tuple[bool, str]:
        """Whether the plan is in force, and the error if not. The gateway is called only if something
        changed.
        """
        actuator = self.ports.actuator
        if actuator is None:
            return False, ""
        now_s, states = self.ports.clock.now_ms() / MS_PER_S, telemetry.replica_state.tobytes()
        old = now_s - self._applied_at_s >= REASSERT_S
        if not (bool(decision.moved[0]) or self._pending or states != self._states or old):
            return True, ""
        try:
            taken = actuator.apply(decision.plan)
            problem = "" if taken else str(getattr(actuator, "last_error", "")) or "the plan was refused"
        except Exception as error:  # a gateway that fails keeps the last plan
            taken, problem = False, error_line(error)
        self._pending = not taken
        if taken:
            self._applied_at_s, self._states = now_s, states
        return taken, f"plan: {problem}" if problem else ""

    def _note_hung(self, before: ControllerState, decision: Decision) -> None:
        """Track replicas whose streams the plan resets, until they are reset or leave quarantine."""
        names, fresh = self.setup.layout.replicas, decision.plan.reset
        if fresh is None:  # a plan that does not state resets
            fresh = newly_hung(before.quarantined, decision.quarantined, decision.quarantine_reason)
        self._hung |= {names[r] for r in np.flatnonzero(fresh[0])}
        self._hung -= {names[r] for r in np.flatnonzero(~decision.quarantined[0])}

    def _cut_loose(self) -> tuple[tuple[str, ...], str]:
        """Reset the open requests of hung replicas once they are out of rotation; retried until it
        succeeds.
        """
        resetter, done, problem = self.ports.resetter, [], ""
        for replica in sorted(self._hung) if resetter is not None else ():
            try:
                assert resetter is not None
                resetter.reset(replica)
                done.append(replica)
            except Exception as error:  # tried again at the next tick
                problem = f"reset of {replica}: {error_line(error)}"
        self._hung -= set(done)
        return tuple(done), problem

    def _failed(self, error: str) -> None:
        self.errors += 1
        self.last_error = error


def error_line(error: Exception) -> str:
    """One line that names ``error``."""
    return " ".join(str(error).split())[:400] or type(error).__name__
