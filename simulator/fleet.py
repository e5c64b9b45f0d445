"""B fleets advanced in lock step by one SimPy environment.

SimPy owns everything that happens to a fleet: the shared control tick, and of each fleet its faults,
crashes, restarts, scalings, cache flushes and lost scrapes at their exact times. Between those events
the compiled engine advances the requests. An event at the instant of a tick comes after the tick, so it
belongs to the interval that begins there. A fleet's results depend on its seed alone, not on who
shares the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import simpy

from contracts.episode import EpisodeRecord
from contracts.telemetry import FleetTelemetry, ReplicaState
from contracts.units import s_from_ms
from controller.ports import RoutingPlan
from faults.effects import HEALTHY, ActiveFault, ReplicaEffect, apply
from simulator import engine_records
from simulator.board import ReplicaBoard
from simulator.disturbances import COLD_START_S
from simulator.drive import ControllerDriver, Driver
from simulator.engine import FleetEngine
from simulator.engine_records import Gauges
from simulator.engine_validate import check_workload
from simulator.probes import Probes
from simulator.recorder import Recorder
from simulator.telemetry import Telemetry
from simulator.traffic import Traffic
from simulator.world import CompiledScenario, FleetChange

#: A draining replica is stopped after this time whether or not it still has requests (Kubernetes'
#: default termination grace period).
DRAIN_S = 30.0

Steps = Generator[simpy.Event, None, None]
Progress = Callable[[float], None]


def run_episodes(
    scenario: CompiledScenario,
    driver: Driver,
    seeds: Iterable[int],
    *,
    batch: int = 32,
    progress: Progress | None = None,
) -> list[EpisodeRecord]:
    """One record per seed, in order; ``batch`` fleets at a time, which changes no result.

    ``progress`` is called with the share of the work that is done, 0..1.
    """
    wanted = list(seeds)
    records: list[EpisodeRecord] = []
    # The controller folds telemetry and keeps none.
    reuse = isinstance(driver, ControllerDriver)
    for first in range(0, len(wanted), batch):
        part = wanted[first : first + batch]
        done, weight = first / len(wanted), len(part) / len(wanted)
        report = None if progress is None else _scaled(progress, done, weight)
        records += FleetSimulation(scenario, driver, part, progress=report, reuse=reuse).run()
    return records


def _scaled(progress: Progress, done: float, weight: float) -> Progress:
    return lambda share: progress(done + weight * share)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    engine: FleetEngine
    board: ReplicaBoard
    probes: Probes
    telemetry: Telemetry
    recorder: Recorder


class FleetSimulation:
    """One batch of fleets from time 0 to the horizon.

    ``each`` gives every fleet a scenario of its own. They share with ``scenario`` its layout, contract,
    engine, horizon, tick, probe rate and scrape delay, and may differ in workload, absent replicas,
    faults, changes, scrape interval and scrape loss. ``recorder`` stands in for the one that keeps records.
    ``engine``: one at time 0 of the same spec and batch, else a new one. ``reuse``: see ``Telemetry``.
    """

    def __init__(
        self,
        scenario: CompiledScenario,
        driver: Driver,
        seeds: list[int],
        *,
        progress: Progress | None = None,
        each: Sequence[CompiledScenario] | None = None,
        recorder: Recorder | None = None,
        engine: FleetEngine | None = None,
        reuse: bool = False,
    ) -> None:
        self._scenario, self._driver, self._progress = scenario, driver, progress
        self._batch = len(seeds)
        self._each = [scenario] * self._batch if each is None else list(each)
        for mine in self._each:
            check_workload(scenario.engine, mine.workload)
        self._traffic = Traffic([mine.workload for mine in self._each], seeds, scenario.horizon_s)
        self._parts = _Parts(
            engine=FleetEngine(scenario.engine, self._batch) if engine is None else engine,
            board=ReplicaBoard(self._each),
            probes=Probes(scenario, seeds),
            telemetry=Telemetry(self._each, seeds, reuse=reuse),
            recorder=Recorder(scenario, seeds) if recorder is None else recorder,
        )
        self._env = simpy.Environment()
        self._tick = 0
        self._ticked = self._env.event()
        self._gauges: Gauges = self._parts.engine.gauges()
        # Counts the processes of a replica, so that a superseded start-up does nothing.
        self._life = np.zeros((self._batch, len(scenario.layout.replicas)), dtype=np.int64)

    def run(self) -> list[EpisodeRecord]:
        """Simulate to the horizon and hand over the records."""
        control = self._env.process(self._control())
        self._begin()
        self._env.run(until=control)
        return self._parts.recorder.records(self._driver.policy_id)

    def _begin(self) -> None:
        """Set going all that happens to the fleets beside the control tick."""
        for fleet, replica in np.argwhere(self._parts.board.state == int(ReplicaState.ABSENT)):
            self._parts.engine.crash(int(fleet), int(replica))
        for fleet in range(self._batch):
            self._env.process(self._faults(fleet))
            for change in self._each[fleet].changes:
                self._env.process(_CHANGES[change.kind](self, fleet, change))

    # ------------------------------------------------------------ the shared control tick

    def _control(self) -> Steps:
        scenario = self._scenario
        plan = self._driver.begin(self._batch)
        for tick in range(scenario.ticks):
            self._tick = tick
            self._open(plan)
            yield self._env.timeout((tick + 1) * scenario.tick_s - self._env.now)
            plan = self._driver.step(self._read())
            ticked, self._ticked = self._ticked, self._env.event()
            ticked.succeed()
            if self._progress is not None:
                self._progress((tick + 1) / scenario.ticks)

    def _open(self, plan: RoutingPlan) -> None:
        """Put ``plan`` in force for the interval that begins."""
        engine, board = self._parts.engine, self._parts.board
        in_rotation = plan.in_rotation & board.is_ready()
        engine.set_table(plan.table)
        engine.set_rotation(in_rotation)
        self._traffic.feed(engine, (self._tick + 1) * self._scenario.tick_s)
        moved = self._driver.capacity_move
        self._parts.recorder.open(
            self._tick,
            plan.table,
            in_rotation,
            plan.in_rotation,
            moved,
            plan.forbidden,
            plan.capacity_rows,
        )
        self._parts.probes.open(self._tick, board.condition, board.answers)

    def _read(self) -> FleetTelemetry:
        """Advance to the end of the running interval and write down what happened and what shows of it."""
        parts, tick = self._parts, self._tick
        now_s = (tick + 1) * self._scenario.tick_s
        parts.engine.advance(now_s)
        self._counters = counters = parts.engine.take_counters()
        self._gauges = parts.engine.gauges()
        probes = parts.probes.close(~parts.board.telemetry_lost)
        seen = parts.telemetry.read(
            tick, now_s, counters, self._gauges, parts.engine.latency_counts, parts.board, probes
        )
        parts.recorder.close(tick, counters, parts.board, parts.probes)
        return seen

    # ------------------------------------------------------------ faults

    def _faults(self, fleet: int) -> Steps:
        plans = self._each[fleet].plans
        intensity = [0.0] * len(plans)
        for change in self._each[fleet].fault_changes:
            yield from self._until(change.at_s)
            intensity[change.fault] = change.intensity
            self._parts.engine.advance_one(fleet, change.at_s)
            for replica in plans[change.fault].replicas:
                self._take(fleet, replica, self._effect(fleet, replica, intensity), change.at_s)

    def _effect(self, fleet: int, replica: int, intensity: list[float]) -> ReplicaEffect:
        active = [
            ActiveFault(
                kind=plan.kind,
                intensity=strength,
                dose=plan.dose,
                ladder=plan.ladders[plan.replicas.index(replica)],
            )
            for plan, strength in zip(self._each[fleet].plans, intensity, strict=True)
            if strength > 0.0 and replica in plan.replicas
        ]
        return apply(HEALTHY, active)

    def _take(self, fleet: int, replica: int, effect: ReplicaEffect, at_s: float) -> None:
        """Put ``effect`` in force on one replica at ``at_s``, to which its fleet has been advanced."""
        before = self._parts.board.effects[fleet][replica]
        if effect == before:
            return
        self._parts.board.take(fleet, replica, effect)
        self._parts.engine.set_effect(fleet, replica, _engine_effect(effect))
        self._parts.recorder.judge(fleet, replica, effect, self._tick, at_s)
        self._parts.engine.set_violating(self._parts.recorder.now_violating)
        self._show_probes(fleet, replica, at_s)
        if effect.crashed and not before.crashed:
            self._die(fleet, replica, at_s)
        elif before.crashed and not effect.crashed and self._state(fleet, replica) == ReplicaState.DEAD:
            self._env.process(self._boot(fleet, replica, COLD_START_S))

    # ------------------------------------------------------------ life of a replica

    def _die(self, fleet: int, replica: int, at_s: float) -> None:
        if self._state(fleet, replica) == ReplicaState.ABSENT:
            return
        self._life[fleet, replica] += 1
        self._parts.engine.crash(fleet, replica)
        self._enter(fleet, replica, ReplicaState.DEAD, at_s)

    def _boot(self, fleet: int, replica: int, cold_start_s: float) -> Steps:
        """Start the process of a replica that has none; it is ready after its cold start."""
        self._life[fleet, replica] += 1
        life = self._life[fleet, replica]
        self._enter(fleet, replica, ReplicaState.STARTING, self._env.now)
        yield self._env.timeout(cold_start_s)
        yield self._env.timeout(0)
        if self._life[fleet, replica] != life:
            return
        now_s = self._env.now
        self._parts.engine.advance_one(fleet, now_s)
        if self._parts.board.crashed[fleet, replica]:
            self._enter(fleet, replica, ReplicaState.DEAD, now_s)
            return
        self._parts.engine.start(fleet, replica)
        self._parts.telemetry.forget(fleet, replica, self._parts.engine.latency_counts)
        self._enter(fleet, replica, ReplicaState.READY, now_s)

    def _drain(self, fleet: int, replica: int) -> Steps:
        """Out of the endpoints, then wait until it is empty, then stop the process."""
        life = self._life[fleet, replica]
        self._enter(fleet, replica, ReplicaState.DRAINING, self._env.now)
        deadline_s = self._env.now + DRAIN_S
        while True:
            yield self._ticked
            if self._life[fleet, replica] != life:
                return
            # The tick at which the endpoints change still routes to it, so one more must pass.
            empty = not self._gauges.outstanding[fleet, replica]
            if self._env.now >= deadline_s or (
                empty and self._env.now > deadline_s - DRAIN_S + self._scenario.tick_s
            ):
                break
        self._parts.engine.crash(fleet, replica)

    def _state(self, fleet: int, replica: int) -> ReplicaState:
        return ReplicaState(int(self._parts.board.state[fleet, replica]))

    def _enter(self, fleet: int, replica: int, state: ReplicaState, at_s: float) -> None:
        self._parts.board.enter(fleet, replica, state)
        self._show_probes(fleet, replica, at_s)

    def _show_probes(self, fleet: int, replica: int, at_s: float) -> None:
        board = self._parts.board
        condition, answers = board.condition[fleet, replica], board.answers[fleet, replica]
        self._parts.probes.change(fleet, replica, at_s, int(condition), bool(answers))

    def _until(self, at_s: float) -> Steps:
        """Wait until ``at_s``, and there until the tick of that instant has run."""
        yield self._env.timeout(max(0.0, at_s - self._env.now))
        yield self._env.timeout(0)

    # ------------------------------------------------------------ ordinary changes

    def _rolling_restart(self, fleet: int, change: FleetChange) -> Steps:
        for number, replica in enumerate(change.replicas):
            yield from self._until(change.at_s + number * change.step_s)
            self._env.process(self._restart(fleet, replica, change.cold_start_s))

    def _restart(self, fleet: int, replica: int, cold_start_s: float) -> Steps:
        if self._state(fleet, replica) != ReplicaState.READY:
            return
        life = self._life[fleet, replica]
        yield from self._drain(fleet, replica)
        if self._life[fleet, replica] == life:
            yield from self._boot(fleet, replica, cold_start_s)

    def _scale_up(self, fleet: int, change: FleetChange) -> Steps:
        yield from self._until(change.at_s)
        for replica in change.replicas:
            self._env.process(self._boot(fleet, replica, change.cold_start_s))

    def _scale_down(self, fleet: int, change: FleetChange) -> Steps:
        yield from self._until(change.at_s)
        for replica in change.replicas:
            self._env.process(self._remove(fleet, replica))

    def _remove(self, fleet: int, replica: int) -> Steps:
        life = self._life[fleet, replica]
        if self._state(fleet, replica) == ReplicaState.READY:
            yield from self._drain(fleet, replica)
        if self._life[fleet, replica] == life:
            self._life[fleet, replica] += 1
            self._enter(fleet, replica, ReplicaState.ABSENT, self._env.now)

    def _cache_flush(self, fleet: int, change: FleetChange) -> Steps:
        yield from self._until(change.at_s)
        self._parts.engine.advance_one(fleet, change.at_s)
        for replica in change.replicas:
            self._parts.engine.flush_cache(fleet, replica)

    def _lost_scrapes(self, fleet: int, change: FleetChange) -> Steps:
        loss, usual = self._parts.board.scrape_loss, self._each[fleet].telemetry.scrape_loss_ratio
        chosen = list(change.replicas)
        yield from self._until(change.at_s)
        loss[fleet, chosen] = np.maximum(change.ratio, usual)
        yield from self._until(change.ends_s)
        loss[fleet, chosen] = usual


_CHANGES: dict[str, Callable[[FleetSimulation, int, FleetChange], Steps]] = {
    "rolling_restart": FleetSimulation._rolling_restart,
    "scale_up": FleetSimulation._scale_up,
    "scale_down": FleetSimulation._scale_down,
    "cache_flush": FleetSimulation._cache_flush,
    "lost_scrapes": FleetSimulation._lost_scrapes,
}


def _engine_effect(effect: ReplicaEffect) -> engine_records.ReplicaEffect:
    """The part of ``effect`` that requests feel."""
    return engine_records.ReplicaEffect(
        condition=effect.condition,
        step_time_factor=effect.step_time_factor,
        hang=effect.hang,
        kv_held_ratio=effect.kv_held_ratio,
        http_error_ratio=effect.http_error_ratio,
        http_latency_s=s_from_ms(effect.http_latency_ms),
    )
