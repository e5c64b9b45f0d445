"""Life cycle of simulated replicas: start, drain, stop, death; and the planned changes that combine them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from contracts.telemetry import ReplicaState
from simulator.parts import FleetParts, Steps
from simulator.world.compiled_scenario import FleetChange

#: A draining replica is stopped after this time even if it still has requests (Kubernetes' default
#: termination grace period).
DRAIN_S = 30.0


class ReplicaLives:
    """The processes of all replicas of B fleets."""

    def __init__(self, parts: FleetParts) -> None:
        self._parts = parts
        # Counts the processes of a replica, so that a superseded start has no effect.
        self._life = np.zeros(parts.board.state.shape, dtype=np.int64)

    def state(self, fleet: int, replica: int) -> ReplicaState:
        """State of a replica as discovery reports it."""
        return ReplicaState(int(self._parts.board.state[fleet, replica]))

    def die(self, fleet: int, replica: int, at_s: float) -> None:
        """Kill the process if there is one."""
        if self.state(fleet, replica) == ReplicaState.ABSENT:
            return
        self._life[fleet, replica] += 1
        self._parts.engine.crash(fleet, replica)
        self._enter(fleet, replica, ReplicaState.DEAD, at_s)

    def boot(self, fleet: int, replica: int, cold_start_s: float) -> Steps:
        """Start the process of a replica that has none; it becomes ready after its cold start."""
        parts, place = self._parts, (fleet, replica)
        self._life[place] += 1
        life = self._life[place]
        self._enter(fleet, replica, ReplicaState.STARTING, parts.env.now)
        yield parts.env.timeout(cold_start_s)
        yield parts.env.timeout(0)
        if self._life[place] != life:
            return
        now_s = parts.env.now
        parts.engine.advance_one(fleet, now_s)
        if parts.board.crashed[place]:
            self._enter(fleet, replica, ReplicaState.DEAD, now_s)
            return
        parts.engine.start(fleet, replica)
        parts.telemetry.forget(fleet, replica, parts.engine.served_counts)
        self._enter(fleet, replica, ReplicaState.READY, now_s)

    def start(self, fleet: int, replica: int, cold_start_s: float) -> None:
        """Run ``boot`` as a separate process."""
        self._parts.env.process(self.boot(fleet, replica, cold_start_s))

    def _drain(self, fleet: int, replica: int) -> Steps:
        """Remove it from the endpoints, wait until it is empty, then stop the process."""
        parts, place = self._parts, (fleet, replica)
        life = self._life[place]
        self._enter(fleet, replica, ReplicaState.DRAINING, parts.env.now)
        deadline_at_s = parts.env.now + DRAIN_S
        while True:
            yield parts.ticked
            if self._life[place] != life:
                return
            # The tick at which the endpoints change still routes to it, so one more tick must pass.
            empty = not parts.gauges.outstanding[place]
            if parts.env.now >= deadline_at_s or (
                empty and parts.env.now > deadline_at_s - DRAIN_S + parts.tick_s
            ):
                break
        parts.engine.crash(fleet, replica)

    def _enter(self, fleet: int, replica: int, state: ReplicaState, at_s: float) -> None:
        self._parts.board.enter_state(fleet, replica, state)
        self._parts.show_probes(fleet, replica, at_s)

    # ------------------------------------------------------------ ordinary changes

    def change(self, fleet: int, change: FleetChange) -> Steps:
        """The process of an ordinary change."""
        return _CHANGES[change.kind](self, fleet, change)

    def _rolling_restart(self, fleet: int, change: FleetChange) -> Steps:
        for number, replica in enumerate(change.replicas):
            yield from self._parts.until(change.at_s + number * change.step_s)
            self._parts.env.process(self._restart(fleet, replica, change.cold_start_s))

    def _restart(self, fleet: int, replica: int, cold_start_s: float) -> Steps:
        if self.state(fleet, replica) != ReplicaState.READY:
            return
        life = self._life[fleet, replica]
        yield from self._drain(fleet, replica)
        if self._life[fleet, replica] == life:
            yield from self.boot(fleet, replica, cold_start_s)

    def _scale_up(self, fleet: int, change: FleetChange) -> Steps:
        yield from self._parts.until(change.at_s)
        for replica in change.replicas:
            self.start(fleet, replica, change.cold_start_s)

    def _scale_down(self, fleet: int, change: FleetChange) -> Steps:
        yield from self._parts.until(change.at_s)
        for replica in change.replicas:
            self._parts.env.process(self._remove(fleet, replica))

    def _remove(self, fleet: int, replica: int) -> Steps:
        life = self._life[fleet, replica]
        if self.state(fleet, replica) == ReplicaState.READY:
            yield from self._drain(fleet, replica)
        if self._life[fleet, replica] == life:
            self._life[fleet, replica] += 1
            self._enter(fleet, replica, ReplicaState.ABSENT, self._parts.env.now)

    def _cache_flush(self, fleet: int, change: FleetChange) -> Steps:
        yield from self._parts.until(change.at_s)
        self._parts.engine.advance_one(fleet, change.at_s)
        for replica in change.replicas:
            self._parts.engine.flush_cache(fleet, replica)

    def _lost_scrapes(self, fleet: int, change: FleetChange) -> Steps:
        loss, chosen = self._parts.board.scrape_loss, list(change.replicas)
        usual = loss[fleet, chosen].copy()
        yield from self._parts.until(change.at_s)
        loss[fleet, chosen] = np.maximum(change.ratio, usual)
        yield from self._parts.until(change.ends_at_s)
        loss[fleet, chosen] = usual


_CHANGES: dict[str, Callable[[ReplicaLives, int, FleetChange], Steps]] = {
    "rolling_restart": ReplicaLives._rolling_restart,
    "scale_up": ReplicaLives._scale_up,
    "scale_down": ReplicaLives._scale_down,
    "cache_flush": ReplicaLives._cache_flush,
    "lost_scrapes": ReplicaLives._lost_scrapes,
}
