"""Fleets that only answer probes, driven by the controller itself.

They use the simulator's own probe plan and replayed measurements, and the controller's own tick, policy and
shield. No request is simulated, and scrapes show healthy gauges. So a fleet costs a tenth of a full
simulation, and detectors can be compared over many fleets. The results are episode records, scored by the
same measures as those of other worlds; all fields about requests are 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.documents.scenario import Scenario
from contracts.loading.loader import load_as
from contracts.loading.shipped import E5_BASE
from contracts.loading.uris import resolve_uri
from contracts.scoring.episode import EpisodeRecord, Incident
from contracts.scoring.incident_measures import RECOVERY_S
from contracts.telemetry import (
    HISTOGRAM_EDGES_MS,
    LATENCY_FAMILIES,
    EngineCounters,
    FleetTelemetry,
    GatewayCounts,
    ProbeOutcome,
    ProbeSamples,
    ReplicaState,
)
from contracts.units import MS_PER_S
from controller.ports import RoutingPlan
from simulator.drive import Driver
from simulator.telemetry.probes import SimulatedProbes
from simulator.truth.scenario import record_facts
from simulator.world.compiled_scenario import CompiledScenario
from simulator.world.scenario import compile_scenario

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """From ``onset_s`` on the replicas are in condition ``condition`` (an index) of their kernel."""

    replicas: tuple[int, ...]
    condition: int
    onset_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRun:
    """One fleet: its seed, which determines the order of its probes, and its fault."""

    seed: int
    fault: Fault | None = None


def probe_world(horizon_s: float, repeat_noise: float = 0.0) -> CompiledScenario:
    """The quiet fleet of E5 with another horizon; ``repeat_noise`` as in ``simulator.telemetry.probes``."""
    file = resolve_uri(E5_BASE, "selvage bench windows")
    document = load_as(Scenario, file)
    seen = document.spec.telemetry.model_copy(update={"repeat_noise": repeat_noise})
    spec = document.spec.model_copy(update={"horizon_s": horizon_s, "telemetry": seen})
    return compile_scenario(document.model_copy(update={"spec": spec}), str(file))


def run_fleets(
    scenario: CompiledScenario, driver: Driver, fleets: Sequence[FleetRun], *, batch: int = 128
) -> list[EpisodeRecord]:
    """One record per fleet, in order; ``batch`` fleets in lock-step, which changes no result."""
    records: list[EpisodeRecord] = []
    for first in range(0, len(fleets), batch):
        records += _Batch(scenario, fleets[first : first + batch]).run(driver)
    return records


class _Batch:
    """B fleets over T ticks; record arrays are [T, B, ...]."""

    def __init__(self, scenario: CompiledScenario, fleets: Sequence[FleetRun]) -> None:
        self._scenario, self._fleets = scenario, fleets
        self._probes = SimulatedProbes(scenario, [fleet.seed for fleet in fleets])
        kernels, slices, replicas = scenario.layout.shape
        shape = (scenario.ticks, len(fleets))
        self._table = np.zeros((*shape, slices, kernels + 1), dtype=np.float32)
        self._rotation = np.zeros((*shape, replicas), dtype=np.bool_)
        self._capacity: list[NDArray[np.bool_]] = []
        self._still = _StillTelemetry(scenario, len(fleets))
        self._onset_s, self._faulty = self._faults()
        self._clean_s = np.zeros(len(fleets))

    def _faults(self) -> tuple[Floats, NDArray[np.int64]]:
        """Onset float64 [B] (inf: none) and condition from then on int64 [B, R]."""
        onset_s = np.full(len(self._fleets), np.inf)
        faulty = np.zeros((len(self._fleets), len(self._scenario.layout.replicas)), dtype=np.int64)
        for index, fleet in enumerate(self._fleets):
            if fleet.fault is not None:
                onset_s[index] = fleet.fault.onset_s
                faulty[index, list(fleet.fault.replicas)] = fleet.fault.condition
        return onset_s, faulty

    def run(self, driver: Driver) -> list[EpisodeRecord]:
        """Run to the horizon."""
        scenario, batch = self._scenario, len(self._fleets)
        everyone = np.ones(self._faulty.shape, dtype=np.bool_)
        answered = np.full(self._faulty.shape, int(ProbeOutcome.ANSWERED), dtype=np.int8)
        plan = driver.begin(batch)
        for tick in range(scenario.ticks):
            self._write(tick, plan, driver.capacity_move)
            condition = np.where(self._is_faulty_at(tick)[:, None], self._faulty, 0)
            self._probes.open(tick, condition, answered)
            seen = self._still.at(tick, self._probes.close(everyone))
            plan = driver.step(seen)
            if self._settled(tick):
                self._hold(tick + 1, plan)
                break
        return [self._record(index, driver.policy_id) for index in range(batch)]

    def _settled(self, tick: int) -> bool:
        """Whether every fleet has recovered: no broken replica was routed to for ``RECOVERY_S``.

        Later ticks change no lag and no recovery, so they need not be computed.
        """
        if not bool(np.isfinite(self._onset_s).all()):
            return False
        scenario = self._scenario
        owner = scenario.layout.replica_kernel
        broken = scenario.violating[owner, self._faulty]
        routed = (self._table[tick][:, :, owner] > 0.0) & self._rotation[tick][:, None, :]
        exposed = (broken & routed.transpose(0, 2, 1)).any(axis=(1, 2)) | ~self._is_faulty_at(tick)
        self._clean_s = np.where(exposed, 0.0, self._clean_s + scenario.tick_s)
        return bool((self._clean_s > RECOVERY_S).all())

    def _hold(self, tick: int, plan: RoutingPlan) -> None:
        """Keep the plan from ``tick`` on."""
        self._table[tick:], self._rotation[tick:] = plan.table, plan.in_rotation
        self._capacity += [np.zeros_like(self._capacity[-1])] * (self._scenario.ticks - tick)

    def _is_faulty_at(self, tick: int) -> NDArray[np.bool_]:
        return np.asarray(tick * self._scenario.tick_s >= self._onset_s - 1e-9)

    def _write(self, tick: int, plan: RoutingPlan, capacity_move: NDArray[np.bool_]) -> None:
        self._table[tick], self._rotation[tick] = plan.table, plan.in_rotation
        self._capacity.append(capacity_move.copy())

    def _record(self, index: int, policy: str) -> EpisodeRecord:
        scenario, fleet = self._scenario, self._fleets[index]
        layout, held = scenario.layout, self._rotation[:, index]
        return EpisodeRecord(
            **record_facts(scenario, policy, fleet.seed),
            incident=_incident(fleet, scenario),
            table=self._table[:, index],
            in_rotation=held,
            quarantined=~held,
            violating=self._violating(index),
            capacity_rows=np.repeat(
                np.stack([moves[index] for moves in self._capacity])[:, None], len(layout.slices), axis=1
            ),
            evidence_interval_s=1.0 / scenario.telemetry.probes_per_s,
            **_nothing(scenario),
        )

    def _violating(self, index: int) -> NDArray[np.bool_]:
        """Bool [T, R, S]: the ground truth, as measured on prompts that no probe uses."""
        scenario = self._scenario
        broken = scenario.violating[scenario.layout.replica_kernel, self._faulty[index]]
        faulty = np.arange(scenario.ticks) * scenario.tick_s >= self._onset_s[index] - 1e-9
        return np.asarray(faulty[:, None, None] & broken[None])


def _incident(fleet: FleetRun, scenario: CompiledScenario) -> Incident | None:
    if fleet.fault is None:
        return None
    name = f"condition-{fleet.fault.condition}"
    return Incident(
        fault=name, onset_at_s=fleet.fault.onset_s, ends_at_s=scenario.horizon_s, period_s=0.0, silent=True
    )


def _nothing(scenario: CompiledScenario) -> dict[str, Any]:
    """A record's fields about requests and accelerators: zeros of every shape, without memory of
    their own.
    """
    kernels, slices, replicas = scenario.layout.shape
    ticks = scenario.ticks
    none, zero, never = np.zeros((), dtype=np.int64), np.zeros(()), np.zeros((), dtype=np.bool_)
    counts = ("offered", "answered", "failed", "shed", "slo_missed", "exposed", "exposed_in_flight")
    tokens = ("offered_tokens", "answered_tokens", "excess_tv_tokens", "useful_tokens")
    return {
        **dict.fromkeys(counts, np.broadcast_to(none, (ticks, slices))),
        **dict.fromkeys(("answered_by", "dispatched"), np.broadcast_to(none, (ticks, replicas, slices))),
        **dict.fromkeys(tokens, np.broadcast_to(zero, (ticks, slices))),
        **dict.fromkeys(("accelerator_s", "probe_tokens"), np.broadcast_to(zero, (ticks, kernels))),
        "runtime_violating": np.broadcast_to(never, (ticks, replicas, slices)),
        "forbidden": np.broadcast_to(never, (ticks, slices, kernels)),
        "blind": np.broadcast_to(never, (ticks, replicas)),
    }


class _StillTelemetry:
    """Telemetry of idle, healthy replicas; all replicas are scraped at the same times."""

    def __init__(self, scenario: CompiledScenario, batch: int) -> None:
        kernels, slices, replicas = scenario.layout.shape
        self._tick_s, self._wait_s = scenario.tick_s, scenario.telemetry.scrape_interval_s
        self._shape = (batch, replicas)
        self._offered = np.zeros((batch, slices), dtype=np.int64)
        buckets = (len(LATENCY_FAMILIES), len(HISTOGRAM_EDGES_MS) + 1)
        self._latencies = np.zeros((batch, replicas, *buckets), dtype=np.int64)
        self._gateway = GatewayCounts.nothing(batch, slices, kernels)
        self._state = np.full(self._shape, int(ReplicaState.READY), dtype=np.int8)
        self._zeros, self._ones = np.zeros(self._shape), np.ones(self._shape)
        self._none = np.zeros(self._shape, dtype=np.int64)
        self._engine = EngineCounters.unknown(*self._shape)

    def at(self, tick: int, probes: ProbeSamples) -> FleetTelemetry:
        """The telemetry that arrives at the end of ``tick``."""
        now_s = (tick + 1) * self._tick_s
        scraped_at_s = np.floor(now_s / self._wait_s) * self._wait_s
        return FleetTelemetry(
            now_ms=np.full(self._shape[0], now_s * MS_PER_S),
            replica_state=self._state,
            scraped_at_ms=np.full(self._shape, scraped_at_s * MS_PER_S),
            running=self._zeros,
            waiting=self._zeros,
            kv_used_ratio=self._zeros,
            answered=self._none,
            failed=self._none,
            consecutive_failed=self._none,
            latency_le=self._latencies,
            gateway=self._gateway,
            fingerprint_match=self._ones,
            trace_fields_ratio=self._ones,
            offered=self._offered,
            engine=self._engine,
            outside=self._zeros,
            probes=probes,
        )
