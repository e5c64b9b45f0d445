"""The parts that the processes of a batch of simulated fleets share."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import numpy as np
import simpy
from numpy.typing import NDArray

from simulator.engine.api import FleetEngine
from simulator.engine.gauges import Gauges
from simulator.telemetry.probes import SimulatedProbes
from simulator.telemetry.scrapes import Telemetry
from simulator.truth.recorder import TruthListener
from simulator.world.board import ReplicaBoard

Steps = Generator[simpy.Event, None, None]


@dataclass(slots=True, kw_only=True)
class FleetParts:
    """The parts of B fleets in lock-step, and the present control interval."""

    env: simpy.Environment
    """Its clock, in seconds, is that of all fleets."""
    tick_s: float
    engine: FleetEngine
    board: ReplicaBoard
    probes: SimulatedProbes
    telemetry: Telemetry
    keeper: TruthListener
    """Receives the ground truth."""
    tick: int
    """The running control interval."""
    ticked: simpy.Event
    """Succeeds at the end of the running interval."""
    gauges: Gauges
    """State of the replicas at the last tick."""

    def until(self, at_s: float) -> Steps:
        """Wait until ``at_s``, and until the tick of that instant has run."""
        yield self.env.timeout(max(0.0, at_s - self.env.now))
        yield self.env.timeout(0)

    def end_tick(self) -> None:
        """Wake the processes that wait for the end of the interval."""
        ticked, self.ticked = self.ticked, self.env.event()
        ticked.succeed()

    def show_probes(self, fleet: int, replica: int, at_s: float) -> None:
        """Make a replica's probes follow its state from ``at_s`` on."""
        place = fleet, replica
        condition, outcome = int(self.probed_condition[place]), int(self.board.probed[place])
        only_slice, error_ratio = int(self.board.only_slice[place]), float(self.board.error_ratio[place])
        self.probes.change(fleet, replica, at_s, condition, outcome, only_slice, error_ratio)

    @property
    def probed_condition(self) -> NDArray[np.int64]:
        """Int64 [B, R], condition that a probe meets, given the batch that ran at the last tick."""
        return self.board.probed_condition(self.gauges.running)
