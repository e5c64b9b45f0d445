"""What the processes of a batch of simulated fleets share."""

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
    """The parts of B fleets in lock-step, and where the control tick stands."""

    env: simpy.Environment
    """Its clock is that of all fleets, seconds."""
    tick_s: float
    engine: FleetEngine
    board: ReplicaBoard
    probes: SimulatedProbes
    telemetry: Telemetry
    keeper: TruthListener
    """Is told the truth."""
    tick: int
    """The control interval that runs."""
    ticked: simpy.Event
    """Succeeds at the end of the interval that runs."""
    gauges: Gauges
    """State of the replicas at the last tick."""

    def until(self, at_s: float) -> Steps:
        """Wait until ``at_s``, and there until the tick of that instant has run."""
        yield self.env.timeout(max(0.0, at_s - self.env.now))
        yield self.env.timeout(0)

    def end_tick(self) -> None:
        """Wake the processes that wait for the end of the interval."""
        ticked, self.ticked = self.ticked, self.env.event()
        ticked.succeed()

    def show_probes(self, fleet: int, replica: int, at_s: float) -> None:
        """Let a replica's probes follow its state from ``at_s`` on."""
        place = fleet, replica
        condition, outcome = int(self.probed_condition[place]), int(self.board.probed[place])
        only_slice, error_ratio = int(self.board.only_slice[place]), float(self.board.error_ratio[place])
        self.probes.change(fleet, replica, at_s, condition, outcome, only_slice, error_ratio)

    @property
    def probed_condition(self) -> NDArray[np.int64]:
        """Int64 [B, R], condition that a probe sees beside what ran at the last tick."""
        return self.board.probed_condition(self.gauges.running)
