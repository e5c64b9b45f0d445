"""The control loop of one RoutePolicy: its controller over the cluster's ports, one turn per tick.

If a port fails, the table in force stays, and conditions report the failure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, TypeVar

import numpy as np

from contracts.compiled.contract import FleetLayout
from contracts.telemetry import SampleRates
from contracts.units import MS_PER_S
from controller.initial import initial_state
from controller.ports import Clock
from controller.state import ControllerState, altered
from controller.state_json import state_to_json
from k8s.operator.actuator import ClusterActuator, RouteTarget
from k8s.operator.admission import Documents
from k8s.operator.fleet import controller_setup, frozen, kernel_backends, pinned_table, route_shape
from k8s.operator.loop_standing import LoopStanding, SwitchedActuator
from k8s.operator.objects import Cluster, ClusterError, Manifest
from k8s.operator.pods.replicas import PodDiscovery
from k8s.operator.pods.returns import PodReturns
from k8s.operator.records.snapshot import Snapshot, documents_text, held_out, kept_state, snapshot_config
from k8s.operator.status.outcomes import Evaluations
from k8s.operator.status.recent import RecentDecisions
from k8s.operator.telemetry.pool_reader import PoolTelemetry, Sensing, usual_rates
from k8s.routes.rules import Backend, table_begun
from k8s.routes.writer import WRITTEN, WrittenRoute
from live.artefacts.fetch import RegistryAccess
from live.control.clocks import LaterClock
from live.control.loop import Begun, ControlPorts, LiveController, Turn, TurnWatcher
from live.control.stacks import compact_copy
from live.control.turns import Decided, UndecidedFleet, setup_key

_Answer = TypeVar("_Answer")


class Journal(TurnWatcher, Protocol):
    """Records every turn until ``close``."""

    def promoted(self, change: Mapping[str, Any]) -> None:
        """Record that a promotion's stage or verdict changed. Raises nothing."""

    def close(self) -> None:
        """Stop recording."""


def no_journal(sensing: Sensing, state: ControllerState) -> Journal | None:  # noqa: ARG001 - the port's shape
    """No journal: nothing is recorded."""
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopParts:
    """Dependencies that all loops of an operator share."""

    cluster: Cluster
    clock: Clock
    source: Callable[[Sensing], PoolTelemetry]
    now: Callable[[], datetime]
    shed: Backend
    leads: Callable[[], bool] = lambda: True
    """Whether this operator is still the leader."""
    rates: Callable[[Documents], SampleRates] = usual_rates
    """How often a replica is scraped and probed."""
    registries: RegistryAccess = field(default_factory=RegistryAccess)
    """Access to the registries that hold the documents' artefacts."""
    journal: Callable[[Sensing, ControllerState], Journal | None] = no_journal
    """Opens the journal of one policy, beginning with the given state."""
    evaluations: Evaluations | None = None
    """Receives verdicts that changed."""


class RouteLoop:
    """Construction raises DocumentError if the documents do not fit together. It raises ClusterError if no
    stored state can be used and the API server does not answer what is in force.
    """

    def __init__(self, documents: Documents, parts: LoopParts, kept: Snapshot) -> None:
        self.parts, self.documents, self._together = parts, documents, False
        found = controller_setup(documents, parts.rates(documents))
        self.setup, self.notes = found.setup, found.notes
        self._key, self._documents = setup_key(self.setup), documents_text(documents)
        state, problem = kept_state(kept, self.setup)
        # Without a restored state there is no evidence that could belong to an earlier pod.
        uids, backends = None if state is None else kept.uids, kernel_backends(documents.pool)
        self.discovery = PodDiscovery(parts.cluster, backends, documents.announced, kept.slots, uids)
        target = _target(documents, parts, self.setup.layout)
        self.actuator = ClusterActuator(parts.cluster, target, lambda: self.discovery.pods, parts.leads)
        self._switch = SwitchedActuator(self.actuator)
        self.standing, self.recent = LoopStanding(state_problem=problem), RecentDecisions()
        begun = self._begin() if state is None else state
        self.clock = parts.clock if state is None else LaterClock(parts.clock, float(state.now_s[0]))
        sensing = Sensing(
            setup=self.setup,
            documents=documents,
            discovery=self.discovery,
            clock=self.clock,
            namespace=parts.cluster.namespace,
        )
        self.source = parts.source(sensing)
        enforces = documents.policy.spec.mode == "enforce"
        verifier = self.source.verifier if enforces else None
        self.returns = None if verifier is None else PodReturns(verifier, self.discovery, kept.returning)
        ports = ControlPorts(
            source=self.source,
            clock=self.clock,
            actuator=self._switch if enforces else None,
            returns=self.returns,
            admits=self._switch,
        )
        self.controller = LiveController(self.setup, ports, begun)
        self.journal = parts.journal(sensing, self.controller.state)
        if self.journal is not None:
            self.controller.watch(self.journal)

    def close(self) -> None:
        """Stop reading telemetry; the route stays as it is."""
        self.source.close()
        if self.returns is not None:
            self.returns.close()
        if self.journal is not None:
            self.journal.close()

    @property
    def enforces(self) -> bool:
        """Whether plans are written to the cluster."""
        return not self.controller.observes

    @property
    def in_force(self) -> bool:
        """Whether the route holds the last plan and no gateway has refused it or is behind."""
        actuator = self.actuator
        return self.standing.programmed and not (actuator.refusal or actuator.behind)

    @property
    def unseen(self) -> str:
        """Problems that leave servers unobserved, "" if there are none."""
        return "; ".join(one for one in (*self.discovery.beyond, self.source.problem) if one)

    @property
    def returning(self) -> tuple[str, ...]:
        """Slots of pods that are returning from quarantine."""
        return () if self.returns is None else self.returns.names

    @property
    def unverified(self) -> tuple[str, ...]:
        """The ``returning`` slots that get no traffic yet."""
        shares = {} if self.returns is None else self.returns.shares
        return tuple(slot for slot, part in shares.items() if part == 0.0)

    def due(self) -> bool:
        """Whether a control tick has passed since the last turn."""
        turn = self.standing.turn
        return turn is None or self.clock.now_ms() / MS_PER_S - turn.at_s >= 0.9 * self.setup.fleet.tick_s

    def turn(self, documents: Documents) -> LoopStanding:
        """Run one tick. ``documents``: the current ones, for freeze (break-glass) and suspension."""
        if documents.policy.spec.suspend:
            return self.standing
        return self.finish(documents, self.begin())

    def begin(self) -> Begun:
        """First part of a tick: discover pods and read telemetry. Call ``finish`` afterwards."""
        self.standing.discovery_error = self._discover()
        return self.controller.begin()

    def asked(self, begun: Begun) -> UndecidedFleet | None:
        """The decision that is due, for a batch of policies; None if no telemetry was read."""
        telemetry, turn = begun.turn.telemetry, self.standing.turn
        if telemetry is None:
            return None
        return UndecidedFleet(
            setup=self.setup,
            key=self._key,
            before=begun.turn.before,
            telemetry=telemetry,
            like=None if turn is None else turn.decision,
        )

    def finish(self, documents: Documents, begun: Begun, decided: Decided | None = None) -> LoopStanding:
        """Rest of a tick. ``decided``: the decision of a batch of policies; None: decide alone."""
        standing, self.documents = self.standing, documents
        standing.frozen = frozen(documents.policy.spec.freeze, self.parts.now())
        self._switch.frozen = standing.frozen
        standing.turn = self.controller.finish(begun, decided)
        self.recent.turned(standing.turn, self.setup)
        if (seen := standing.turn.telemetry) is not None:
            standing.scraped_at_ms = float(np.fmax.reduce(seen.scraped_at_ms[0]))
        if decided is None:
            self.leave_batch()
        else:
            self._together = True
        if standing.frozen and self.enforces:
            self._hold(documents)
        elif self.enforces:
            self._check(standing.turn)
        standing.programmed = self.actuator.confirmed and not self.actuator.last_reason
        standing.follow(self.actuator.behind, standing.turn.at_s)
        return standing

    def leave_batch(self) -> None:
        """Copy the state out of a batch's arrays, so that this loop does not keep their memory alive."""
        if self._together:
            self._together = False
            self.controller.state = compact_copy(self.controller.state)
            self.standing.turn = compact_copy(self.standing.turn)

    def snapshot(self) -> Snapshot:
        """The current state, for the loop that replaces this one."""
        state = state_to_json(self.controller.state, self.setup)
        found = self.discovery
        slots, uids, returning = found.slots, found.uids, self.returning
        return Snapshot(documents=self.documents, state=state, slots=slots, uids=uids, returning=returning)

    def keep(self, policy: Manifest) -> str:
        """Store the state if that is due. Returns a new problem, else "". A policy in mode observe stores
        nothing.
        """
        standing, state = self.standing, self.controller.state
        version = int(state.version[0]), state.quarantined.tobytes(), self.returning
        now_s = self.clock.now_ms() / MS_PER_S
        if not (self.enforces and standing.keeps(version, now_s) and self.parts.leads()):
            return ""
        try:
            found = self.discovery
            self.parts.cluster.write_config(
                snapshot_config(
                    policy, self._documents, state, self.setup, found.slots, found.uids, self.returning
                )
            )
        except (ClusterError, ValueError) as error:
            return standing.unkept(f"the state was not kept: {error}", now_s)
        standing.kept(version, now_s)
        return ""

    def _begin(self) -> ControllerState:
        """An initial state from the cluster: with the route's table, if Selvage wrote the route, and with the
        pods that are out of rotation in quarantine. So starting moves no traffic.
        """
        _unless_refused(self.discovery.refresh)
        now_s = self.parts.clock.now_ms() / MS_PER_S
        state = held_out(initial_state(self.setup, 1), self.setup, self.discovery.pods, now_s)
        name = self.actuator.target.route.name
        found = _unless_refused(lambda: self.parts.cluster.routes.read(name))
        if found is None or WRITTEN not in (found["metadata"].get("annotations") or {}):
            return state
        rules, shape = found["spec"].get("rules") or [], self.actuator.target.shape
        return altered(state, table=table_begun(rules, shape, state.table[0])[None])

    def _discover(self) -> str:
        try:
            self.discovery.refresh()
        except ClusterError as error:
            return str(error)
        return ""

    def _hold(self, documents: Documents) -> None:
        """While frozen: write the table in force, or the pinned table."""
        state = self.controller.state
        pinned = pinned_table(documents.policy.spec.freeze, state.table[0], self.setup.layout)
        table = state.table[0] if pinned is None else pinned
        if self.actuator.write(table, pinned=pinned is not None) and pinned is not None:
            self.controller.state = altered(state, table=pinned[None])

    def _check(self, turn: Turn) -> None:
        """Read the route from time to time even if no weight moved: it may have been edited, or a gateway may
        have accepted it since.
        """
        if self.standing.checks(turn.at_s, self.setup.fleet.tick_s) and turn.in_force:
            self.actuator.write(self.controller.state.table[0])


def _target(documents: Documents, parts: LoopParts, layout: FleetLayout) -> RouteTarget:
    spec, owner = documents.policy.spec, f"{parts.cluster.namespace}/{documents.policy.metadata.name}"
    return RouteTarget(
        route=WrittenRoute(name=spec.route.name, owner=owner),
        shape=route_shape(documents, layout, parts.shed),
        layout=layout,
    )


def _unless_refused(ask: Callable[[], _Answer]) -> _Answer | None:
    """The answer of ``ask``, None if the server refuses it. Raises ClusterError if it does not answer:
    a loop that starts without knowing what is in force would change it.
    """
    try:
        return ask()
    except ClusterError as error:
        if not error.refused:
            raise
        return None
