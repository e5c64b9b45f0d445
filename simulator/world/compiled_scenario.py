"""A compiled scenario: everything that one episode family needs, as frozen records and arrays."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.certified import certified_values
from contracts.compiled.contract import CompiledContract, FleetLayout
from contracts.compiled.steady_state import Demand, EngineModel
from contracts.documents.scenario import TelemetrySettings
from contracts.telemetry import SampleRates
from controller.fleet import FleetSetup
from faults.schedule import FaultChange, FaultPlan
from simulator.engine.spec import EngineSpec
from simulator.world.at_rest import BrokenAtRest
from simulator.world.tables import KernelTable, MeasuredBy, PromptRoles, certified_probe_values
from simulator.world.workload import WorkloadSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Surge:
    """Extra load for a while."""

    name: str
    is_fault: bool
    """Whether it comes from the fault schedule; otherwise it is an ordinary change."""
    at_s: float
    ends_at_s: float
    factor: float
    """Multiple of the scenario's offered rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetChange:
    """An ordinary change, resolved to replicas."""

    kind: str
    at_s: float
    replicas: tuple[int, ...]
    """Indices of the replicas concerned, in order."""
    step_s: float
    """Between replicas of a rolling restart."""
    cold_start_s: float
    """From start to ready."""
    ends_at_s: float
    """Of lost scrapes."""
    ratio: float
    """Share of lost scrapes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledScenario:
    """One episode family, ready to run.

    Axes as in ``contracts.compiled.contract``: R replicas, S slices, K kernels; Q measured conditions.
    """

    name: str
    sha256: str
    """Of the document."""
    layout: FleetLayout
    contract: CompiledContract
    horizon_s: float
    tick_s: float
    workload: WorkloadSpec
    telemetry: TelemetrySettings
    engine: EngineSpec
    """Its step model already includes the probes' share of the replicas' time."""
    prompts: PromptRoles
    tables: tuple[KernelTable, ...]
    """[K]"""
    violating: NDArray[np.bool_]
    """[K, Q, S], padded with the worst measured condition."""
    capacity_rps: NDArray[np.float64]
    """[K], capacity of one replica as the controller is told, under the declared mean request."""
    engine_model: EngineModel
    """What a controller is told about the engines: the certified step times and the declared request."""
    home: NDArray[np.int64]
    """[S], kernel that serves the slice while everything is healthy."""
    demand: Demand
    """The true mean request."""
    fair_rps: NDArray[np.float64]
    """[K], requests per second that reach one replica while everything is healthy."""
    absent: NDArray[np.bool_]
    """[R], replicas that only a later scale-up adds."""
    profile_sha256: tuple[str, ...] = ()
    """[K], of the measured profiles, which pin samples and prompts."""
    pool_sha256: str = ""
    """Of the pool, wherever it is defined."""
    trace_sha256: str | None = None
    """Of the trace file with the requests; None without one."""
    measured_by: MeasuredBy = field(default_factory=MeasuredBy)
    stage: NDArray[np.int64] | None = None
    """[K], stage of each kernel's promotion."""
    certified_loss: NDArray[np.float64] | None = None
    """[K, S], quality loss of the healthy kernels on certify prompts."""
    plans: tuple[FaultPlan, ...] = ()
    fault_changes: tuple[FaultChange, ...] = ()
    """Timed changes of the plans' intensities."""
    changes: tuple[FleetChange, ...] = ()
    surges: tuple[Surge, ...] = ()
    at_rest: tuple[BrokenAtRest, ...] = ()
    """Clauses that home kernels break without any fault."""

    @property
    def ticks(self) -> int:
        """Control ticks of an episode."""
        return round(self.horizon_s / self.tick_s)

    @property
    def setup(self) -> FleetSetup:
        """The set-up of a controller of this fleet: without faults and without ground truth."""
        return FleetSetup(
            layout=self.layout,
            contract=self.contract,
            capacity_rps=self.capacity_rps,
            engine=self.engine_model,
            home=self.home,
            tick_s=self.tick_s,
            stage=self.stage,
            rates=SampleRates(
                probes_per_s=self.telemetry.probes_per_s,
                scrape_interval_s=self.telemetry.scrape_interval_s,
                gateway_interval_s=self.tick_s,
            ),
            quality_loss=self.certified_loss,
            certified_observations=certified_probe_values(self.tables, self.prompts, len(self.layout.slices)),
            certified=certified_values(
                self.prompts.probe_ids,
                self.prompts.probe_slice,
                [table.probe[0] for table in self.tables],
                self.telemetry.repeat_noise,
            ),
        )
