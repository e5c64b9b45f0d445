"""Fleets that an environment drives: advanced one control tick per call, each with its own scenario.

The same SimPy processes and the same engine as ``simulator.fleet``; only who owns the loop differs. No
episode record is kept, and of the truth only what exposure counters and rewards need.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from contracts.telemetry import FleetTelemetry
from controller.ports import RoutingPlan
from faults.effects import ReplicaEffect
from simulator.board import ReplicaBoard
from simulator.engine import FleetEngine
from simulator.engine_records import Counters, Gauges
from simulator.fleet import FleetSimulation
from simulator.probes import Probes
from simulator.recorder import Recorder
from simulator.truth import numeric_or_observability, runtime
from simulator.world import CompiledScenario


class _Truth(Recorder):
    """The part of the truth that the engine counts exposures with; nothing is written down."""

    def __init__(self, scenario: CompiledScenario, batch: int) -> None:
        _, slices, replicas = scenario.layout.shape
        self._scenario = scenario
        self._known: dict[tuple[int, ReplicaEffect], tuple[NDArray[np.bool_], NDArray[np.bool_]]] = {}
        self.now_violating = np.zeros((batch, replicas, slices), dtype=np.bool_)
        self.now_runtime = np.zeros((batch, replicas, slices), dtype=np.bool_)

    def judge(
        self,
        fleet: int,
        replica: int,
        effect: ReplicaEffect,
        tick: int,  # noqa: ARG002 - the recorder's arguments
        at_s: float,  # noqa: ARG002
    ) -> None:
        """From now on the replica's true state is ``effect``."""
        self._note(fleet, replica, effect)

    def begin(self) -> None:
        """All replicas of all fleets are as they were installed."""
        for replica in range(self.now_violating.shape[1]):
            self._note(slice(None), replica, ReplicaEffect())

    def _note(self, fleets: int | slice, replica: int, effect: ReplicaEffect) -> None:
        key = int(self._scenario.layout.replica_kernel[replica]), effect
        if key not in self._known:
            silent = numeric_or_observability(self._scenario, *key)
            self._known[key] = silent, runtime(self._scenario, *key)
        self.now_violating[fleets, replica], self.now_runtime[fleets, replica] = self._known[key]

    def open(
        self,
        tick: int,
        table: NDArray[np.float64],
        in_rotation: NDArray[np.bool_],
        planned: NDArray[np.bool_],
        capacity_move: NDArray[np.bool_],
        forbidden: NDArray[np.bool_] | None = None,
        capacity_rows: NDArray[np.bool_] | None = None,
    ) -> None:
        """Nothing to write down."""

    def close(self, tick: int, counters: Counters, board: ReplicaBoard, probes: Probes) -> None:
        """Nothing to write down."""


class _Nobody:
    """The place of a driver: an environment hands in its plans itself."""

    policy_id = "environment"

    def __init__(self, batch: int) -> None:
        self.capacity_move = np.zeros(batch, dtype=np.bool_)

    def begin(self, batch: int) -> RoutingPlan:  # noqa: ARG002 - the protocol's argument
        """Never asked."""
        raise RuntimeError("an environment begins with its controller's own plan")

    def step(self, telemetry: FleetTelemetry) -> RoutingPlan:  # noqa: ARG002 - as above
        """Never asked."""
        raise RuntimeError("an environment takes its plans as arguments")


class SteppedFleets(FleetSimulation):
    """``len(seeds)`` fleets; fleet b lives through ``each[b]``; ``FleetSimulation`` says what they share.

    Where it fits, the memory of ``past`` fleets is used again; they are then over.
    """

    def __init__(
        self, each: Sequence[CompiledScenario], seeds: list[int], past: SteppedFleets | None = None
    ) -> None:
        batch, engine = len(seeds), None
        truth = _Truth(each[0], batch)
        if past is not None and past.engine.spec is each[0].engine and past.engine.batch == batch:
            engine = past.engine
            engine.restart()
        super().__init__(
            each[0],
            _Nobody(batch),
            seeds,
            each=each,
            recorder=truth,
            engine=engine,
            reuse=True,
        )
        truth.begin()
        self._parts.engine.set_violating(truth.now_violating)
        self._begin()

    @property
    def ticks(self) -> int:
        """Control ticks that have passed."""
        return self._tick

    @property
    def over(self) -> bool:
        """The horizon is reached."""
        return self._tick >= self._scenario.ticks

    def advance(self, plan: RoutingPlan) -> FleetTelemetry:
        """Put ``plan`` in force for one tick and give what arrived when it has passed."""
        self._open(plan)
        self._env.run(until=(self._tick + 1) * self._scenario.tick_s)
        seen = self._read()
        ticked, self._ticked = self._ticked, self._env.event()
        ticked.succeed()
        self._tick += 1
        return seen

    # ------------------------------------------------------------ what was true in the tick that passed

    @property
    def engine(self) -> FleetEngine:
        """Who serves their requests."""
        return self._parts.engine

    @property
    def counters(self) -> Counters:
        """What happened in the last tick."""
        return self._counters

    @property
    def gauges(self) -> Gauges:
        """State of the replicas at its end."""
        return self._gauges

    @property
    def board(self) -> ReplicaBoard:
        """True state of the replicas."""
        return self._parts.board

    @property
    def breaking(self) -> NDArray[np.bool_]:
        """Bool [B, R, S]: the replica's true state breaks a clause or a runtime promise on the slice."""
        truth = self._parts.recorder
        assert isinstance(truth, _Truth)
        return np.asarray(truth.now_violating | truth.now_runtime)

    @property
    def latency_counts(self) -> NDArray[np.int32]:
        """Answers per latency bucket since the start, a live view (``FleetEngine.latency_counts``)."""
        return self._parts.engine.latency_counts
