"""Fleets that an environment drives: advanced one control tick per call, each with its own scenario.

They use the SimPy processes and the engine of ``simulator.fleet``; only the loop is owned by the caller. No
episode record is kept, and only the ground truth that exposure counters and rewards need.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from contracts.scoring.episode import EpisodeRecord
from contracts.telemetry import FleetTelemetry
from controller.ports import RoutingPlan
from faults.effects import ReplicaEffect
from simulator.engine.api import FleetEngine
from simulator.engine.counters import Counters
from simulator.engine.gauges import Gauges
from simulator.fleet import FleetSimulation
from simulator.truth.recorder import CountsProbes
from simulator.truth.violations import Violations
from simulator.world.board import ReplicaBoard
from simulator.world.compiled_scenario import CompiledScenario


class _Truth:
    """The ground truth that exposure counters need; nothing is recorded."""

    def __init__(self, scenario: CompiledScenario, batch: int) -> None:
        self.now = Violations(scenario, batch)

    @property
    def exposing(self) -> NDArray[np.bool_]:
        """[B, R, S]: the replica now breaks a clause of the families N, S or O that moves traffic."""
        return self.now.exposing

    def judge(
        self,
        fleet: int,
        replica: int,
        effect: ReplicaEffect,
        tick: int,  # noqa: ARG002 - the protocol's arguments
        at_s: float,  # noqa: ARG002
    ) -> None:
        """Set the replica's true state to ``effect`` from now on."""
        self.now.note(fleet, replica, effect)

    def open(
        self, tick: int, plan: RoutingPlan, in_rotation: NDArray[np.bool_], capacity_move: NDArray[np.bool_]
    ) -> None:
        """Record nothing."""

    def close(self, tick: int, counters: Counters, board: ReplicaBoard, probes: CountsProbes) -> None:
        """Record nothing."""

    def records(self, policy: str) -> list[EpisodeRecord]:  # noqa: ARG002 - the protocol's argument
        """No records are kept."""
        return []


class _Nobody:
    """Takes the place of a driver, because an environment passes its plans directly."""

    policy_id = "environment"

    def __init__(self, batch: int) -> None:
        self.capacity_move = np.zeros(batch, dtype=np.bool_)

    def begin(self, batch: int) -> RoutingPlan:  # noqa: ARG002 - the protocol's argument
        """Never called."""
        raise RuntimeError("an environment begins with its controller's own plan")

    def step(self, telemetry: FleetTelemetry) -> RoutingPlan:  # noqa: ARG002 - as above
        """Never called."""
        raise RuntimeError("an environment takes its plans as arguments")


class SteppedFleets(FleetSimulation):
    """``len(seeds)`` fleets; fleet b runs scenario ``each[b]``; see ``FleetSimulation`` for what they share.

    The memory of ``past`` fleets is reused if it fits; those fleets must not be used any more.
    """

    def __init__(
        self, each: Sequence[CompiledScenario], seeds: list[int], past: SteppedFleets | None = None
    ) -> None:
        batch, engine = len(seeds), None
        self._truth = _Truth(each[0], batch)
        if past is not None and past.engine.spec is each[0].engine and past.engine.batch == batch:
            engine = past.engine
            engine.restart()
        super().__init__(
            each[0],
            _Nobody(batch),
            seeds,
            each=each,
            keeper=self._truth,
            engine=engine,
            reuse=True,
        )
        self._parts.engine.set_violating(self._truth.exposing)
        self._begin()

    @property
    def ticks(self) -> int:
        """Control ticks that have passed."""
        return self._parts.tick

    @property
    def over(self) -> bool:
        """Whether the horizon is reached."""
        return self._parts.tick >= self._scenario.ticks

    def advance(self, plan: RoutingPlan) -> FleetTelemetry:
        """Put ``plan`` in force for one tick; returns the telemetry that arrived by its end."""
        parts = self._parts
        self._open(plan)
        parts.env.run(until=(parts.tick + 1) * parts.tick_s)
        seen = self._read()
        parts.end_tick()
        parts.tick += 1
        return seen

    # ------------------------------------------------------------ what was true in the tick that passed

    @property
    def engine(self) -> FleetEngine:
        """The engine that serves their requests."""
        return self._parts.engine

    @property
    def counters(self) -> Counters:
        """What happened in the last tick."""
        return self._counters

    @property
    def gauges(self) -> Gauges:
        """State of the replicas at its end."""
        return self._parts.gauges

    @property
    def board(self) -> ReplicaBoard:
        """True state of the replicas."""
        return self._parts.board

    @property
    def breaking(self) -> NDArray[np.bool_]:
        """Bool [B, R, S]: the replica's true state breaks a clause or a runtime SLO on the slice."""
        return np.asarray(self._truth.now.silent | self._truth.now.runtime)

    @property
    def latency_counts(self) -> NDArray[np.int32]:
        """Answers per latency bucket since the start, a live view (``FleetEngine.latency_counts``)."""
        return self._parts.engine.latency_counts
