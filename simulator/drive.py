"""Drivers of a simulated fleet: the ``Driver`` protocol, and the project's controller as a driver.

The simulator passes telemetry to a driver and executes its plan; it does not depend on any policy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from contracts.telemetry import FleetTelemetry
from controller.decision import Decision
from controller.initial import initial_state
from controller.loop import tick
from controller.options import ControllerSetup
from controller.ports import RoutingPlan
from controller.state import ControllerState


class Driver(Protocol):
    """Decides for B fleets in one call, once per control tick."""

    @property
    def policy_id(self) -> str:
        """Name of the policy, for the record."""

    def begin(self, batch: int) -> RoutingPlan:
        """Reset; returns the plan of ``batch`` fleets that is in force before the first telemetry."""

    def step(self, telemetry: FleetTelemetry) -> RoutingPlan:
        """Decide once; returns the plan in force from now on."""

    @property
    def capacity_move(self) -> NDArray[np.bool_]:
        """Bool [B]: the last plan changed the table for capacity alone."""


class ControllerDriver:
    """The project's controller (``controller.loop.tick``) as a driver.

    setup: for the fleet of ``CompiledScenario.setup``. name: the policy's name in the record ("": its own
    id). watch: called with each decision. log: called with the states before and after, and the decision,
    which an explanation needs.
    """

    def __init__(
        self,
        setup: ControllerSetup,
        *,
        name: str = "",
        watch: Callable[[Decision], None] | None = None,
        log: Callable[[ControllerState, ControllerState, Decision], None] | None = None,
    ) -> None:
        self._setup, self._watch, self._log = setup, watch, log
        self._name = name or setup.policy.policy_id
        self._state: ControllerState | None = None
        self._capacity_move = np.zeros(0, dtype=np.bool_)

    @property
    def policy_id(self) -> str:
        """The given name, or else the policy's own."""
        return self._name

    @property
    def capacity_move(self) -> NDArray[np.bool_]:
        """Bool [B]: the last plan changed the table for capacity alone."""
        return self._capacity_move

    @property
    def state(self) -> ControllerState | None:
        """The controller's present state; None before ``begin``."""
        return self._state

    def begin(self, batch: int) -> RoutingPlan:
        """Reset: every slice at home, every replica in rotation."""
        self._state = initial_state(self._setup, batch)
        self._capacity_move = np.zeros(batch, dtype=np.bool_)
        replicas = len(self._setup.layout.replicas)
        return RoutingPlan(
            table=self._state.table,
            in_rotation=np.ones((batch, replicas), dtype=np.bool_),
            version=self._state.version,
        )

    def step(self, telemetry: FleetTelemetry) -> RoutingPlan:
        """One control tick."""
        if self._state is None:
            raise RuntimeError("begin() comes before step()")
        before = self._state
        alone = self._watch is None and self._log is None  # then nothing else refers to the previous state
        self._state, decision = tick(before, telemetry, self._setup, consume=alone)
        self._capacity_move = decision.capacity_move
        if self._watch is not None:
            self._watch(decision)
        if self._log is not None:
            self._log(before, self._state, decision)
        return decision.plan
