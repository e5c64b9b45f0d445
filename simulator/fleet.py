"""B fleets advanced in lock step by one SimPy environment.

SimPy schedules all events: the shared control tick, and for each fleet its faults, crashes, restarts,
scalings, cache flushes and lost scrapes at their exact times. Between events the compiled engine advances the
requests. An event at the instant of a tick comes after the tick, so it belongs to the interval that begins
there. A fleet's results depend only on its seed, not on the other fleets of the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import simpy

from contracts.scoring.episode import EpisodeRecord
from contracts.telemetry import FleetTelemetry, ReplicaState
from contracts.units import s_from_ms
from controller.ports import RoutingPlan
from faults.effects import HEALTHY, ActiveFault, ReplicaEffect, apply
from simulator.drive import ControllerDriver, Driver
from simulator.engine.api import FleetEngine
from simulator.engine.spec import EngineEffect
from simulator.lives import ReplicaLives
from simulator.parts import FleetParts, Steps
from simulator.telemetry.probes import SimulatedProbes
from simulator.telemetry.scrapes import Latencies, Telemetry
from simulator.truth.recorder import TruthListener, TruthRecorder
from simulator.world.board import ReplicaBoard
from simulator.world.compiled_scenario import CompiledScenario
from simulator.world.disturbances import COLD_START_S
from simulator.world.traffic import DrawnTraffic
from simulator.world.workload import check_workload

Progress = Callable[[float], None]


def run_episodes(
    scenario: CompiledScenario,
    driver: Driver,
    seeds: Iterable[int],
    *,
    batch: int = 32,
    progress: Progress | None = None,
) -> list[EpisodeRecord]:
    """Run ``scenario`` under ``driver`` once per seed; returns one record per seed, in order.

    batch: number of fleets that are simulated together, which changes no result; progress: called with the
    finished share of the work, 0..1.
    """
    wanted = list(seeds)
    records: list[EpisodeRecord] = []
    # The controller accumulates telemetry and keeps none.
    reuse = isinstance(driver, ControllerDriver)
    for first in range(0, len(wanted), batch):
        part = wanted[first : first + batch]
        done, weight = first / len(wanted), len(part) / len(wanted)
        report = None if progress is None else _scaled(progress, done, weight)
        records += FleetSimulation(scenario, driver, part, reuse=reuse).run(report)
    return records


def _scaled(progress: Progress, done: float, weight: float) -> Progress:
    return lambda share: progress(done + weight * share)


class FleetSimulation:
    """One batch of fleets from time 0 to the horizon.

    ``each`` gives every fleet a scenario of its own. The fleets share ``scenario``'s layout, contract,
    engine, horizon, tick, probe rate and scrape delay. They may differ in workload, absent replicas, faults,
    changes, scrape interval and scrape loss. ``keeper`` replaces the recorder of the ground truth.
    ``engine``: an engine at time 0 with the same spec and batch; None: a new one. ``reuse``: see
    ``Telemetry``.
    """

    def __init__(
        self,
        scenario: CompiledScenario,
        driver: Driver,
        seeds: list[int],
        *,
        each: Sequence[CompiledScenario] | None = None,
        keeper: TruthListener | None = None,
        engine: FleetEngine | None = None,
        reuse: bool = False,
    ) -> None:
        self._scenario, self._driver = scenario, driver
        self._each = [scenario] * len(seeds) if each is None else list(each)
        for mine in self._each:
            check_workload(scenario.engine, mine.workload)
        self._traffic = DrawnTraffic([mine.workload for mine in self._each], seeds, scenario.horizon_s)
        env = simpy.Environment()
        engine = FleetEngine(scenario.engine, len(seeds)) if engine is None else engine
        self._parts = FleetParts(
            env=env,
            tick_s=scenario.tick_s,
            engine=engine,
            board=ReplicaBoard(self._each),
            probes=SimulatedProbes(scenario, seeds),
            telemetry=Telemetry(self._each, seeds, reuse=reuse),
            keeper=TruthRecorder(scenario, seeds) if keeper is None else keeper,
            tick=0,
            ticked=env.event(),
            gauges=engine.gauges(),
        )
        self._lives = ReplicaLives(self._parts)

    def run(self, progress: Progress | None = None) -> list[EpisodeRecord]:
        """Simulate to the horizon and return the records; ``progress`` as in ``run_episodes``."""
        control = self._parts.env.process(self._control(progress))
        self._begin()
        self._parts.env.run(until=control)
        return self._parts.keeper.records(self._driver.policy_id)

    def _begin(self) -> None:
        """Start all processes except the control tick."""
        parts = self._parts
        for fleet, replica in np.argwhere(parts.board.state == int(ReplicaState.ABSENT)):
            parts.engine.crash(int(fleet), int(replica))
        for fleet, scenario in enumerate(self._each):
            parts.env.process(self._faults(fleet))
            for change in scenario.changes:
                parts.env.process(self._lives.change(fleet, change))

    # ------------------------------------------------------------ the shared control tick

    def _control(self, progress: Progress | None) -> Steps:
        scenario, parts = self._scenario, self._parts
        plan = self._driver.begin(len(self._each))
        for tick in range(scenario.ticks):
            parts.tick = tick
            self._open(plan)
            yield parts.env.timeout((tick + 1) * scenario.tick_s - parts.env.now)
            plan = self._driver.step(self._read())
            parts.end_tick()
            if progress is not None:
                progress((tick + 1) / scenario.ticks)

    def _open(self, plan: RoutingPlan) -> None:
        """Put ``plan`` in force for the next interval."""
        parts = self._parts
        in_rotation = plan.in_rotation & parts.board.is_ready()
        parts.engine.set_table(plan.table)
        parts.engine.set_rotation(in_rotation)
        if plan.reset is not None:
            for fleet, replica in np.argwhere(plan.reset):
                parts.engine.reset_streams(int(fleet), int(replica))
        self._traffic.feed(parts.engine, (parts.tick + 1) * parts.tick_s)
        parts.keeper.open(parts.tick, plan, in_rotation, self._driver.capacity_move)
        parts.probes.open(parts.tick, parts.probed_condition, parts.board.probed)
        if parts.board.triggered:
            parts.probes.spare(parts.board.only_slice)
        parts.probes.fail(parts.board.error_ratio)

    def _read(self) -> FleetTelemetry:
        """Advance to the end of the running interval; record what happened, and return what telemetry shows
        of it.
        """
        parts, tick = self._parts, self._parts.tick
        now_s = (tick + 1) * parts.tick_s
        parts.engine.advance(now_s)
        self._counters = counters = parts.engine.drain_counters()
        parts.gauges = parts.engine.gauges()
        probes = parts.probes.close(~parts.board.telemetry_lost, parts.gauges)
        latencies = Latencies(parts.engine.latency_counts, parts.engine.served_counts)
        seen = parts.telemetry.read(tick, now_s, counters, parts.gauges, latencies, parts.board, probes)
        parts.keeper.close(tick, counters, parts.board, parts.probes)
        return seen

    # ------------------------------------------------------------ faults

    def _faults(self, fleet: int) -> Steps:
        plans = self._each[fleet].plans
        intensity = [0.0] * len(plans)
        for change in self._each[fleet].fault_changes:
            yield from self._parts.until(change.at_s)
            intensity[change.fault] = change.intensity
            self._parts.engine.advance_one(fleet, change.at_s)
            for replica in plans[change.fault].replicas:
                self._strike(fleet, replica, self._effect(fleet, replica, intensity), change.at_s)

    def _effect(self, fleet: int, replica: int, intensity: list[float]) -> ReplicaEffect:
        active = [
            ActiveFault(
                kind=plan.kind,
                intensity=strength,
                dose=plan.dose,
                ladder=plan.ladders[plan.replicas.index(replica)],
                struck=plan.struck,
            )
            for plan, strength in zip(self._each[fleet].plans, intensity, strict=True)
            if strength > 0.0 and replica in plan.replicas
        ]
        return apply(HEALTHY, active)

    def _strike(self, fleet: int, replica: int, effect: ReplicaEffect, at_s: float) -> None:
        """Put ``effect`` in force on one replica at ``at_s``; its fleet must have been advanced to
        that time.
        """
        parts, lives = self._parts, self._lives
        before = parts.board.effects[fleet][replica]
        if effect == before:
            return
        parts.board.enter_effect(fleet, replica, effect)
        parts.engine.set_effect(fleet, replica, engine_effect(effect))
        parts.keeper.judge(fleet, replica, effect, parts.tick, at_s)
        parts.engine.set_violating(parts.keeper.exposing)
        parts.show_probes(fleet, replica, at_s)
        if effect.crashed and not before.crashed:
            lives.die(fleet, replica, at_s)
        elif before.crashed and not effect.crashed and lives.state(fleet, replica) == ReplicaState.DEAD:
            lives.start(fleet, replica, COLD_START_S)


def engine_effect(effect: ReplicaEffect) -> EngineEffect:
    """The part of ``effect`` that affects requests."""
    return EngineEffect(
        condition=effect.condition,
        only_slice=effect.struck.slice,
        after_tokens=effect.struck.after_tokens,
        min_batch=effect.struck.min_batch,
        step_time_factor=effect.step_time_factor,
        hang=effect.hang,
        kv_held_ratio=effect.kv_held_ratio,
        http_error_ratio=effect.http_error_ratio,
        http_latency_s=s_from_ms(effect.http_latency_ms),
    )
