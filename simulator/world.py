"""A compiled scenario: everything that one episode family needs, as frozen records and arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contracts.certified import certified_values
from contracts.compiled import CompiledContract
from contracts.detect.budget import SampleRates
from contracts.documents.scenario import TelemetrySettings
from contracts.layout import FleetLayout
from controller.setup import FleetSetup
from faults.schedule import FaultChange, FaultPlan
from simulator.capacity import Demand
from simulator.engine_records import EngineSpec
from simulator.tables import KernelTable, PromptPlan, certified_units
from simulator.workload import WorkloadSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Surge:
    """From ``at_s`` to ``ends_s`` the offered rate is ``factor`` times the scenario's.

    is_fault: it stands in the fault schedule, not among the ordinary changes.
    """

    name: str
    is_fault: bool
    at_s: float
    ends_s: float
    factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetChange:
    """An ordinary change, resolved to replicas.

    replicas: indices it concerns, in order. step_s: between replicas of a rolling restart.
    cold_start_s: from start to ready. ends_s, ratio: end and share of lost scrapes.
    """

    kind: str
    at_s: float
    replicas: tuple[int, ...]
    step_s: float
    cold_start_s: float
    ends_s: float
    ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledScenario:
    """One episode family, ready to run. Axes as in ``contracts.layout``.

    engine: what the request engine needs; its step model already carries the probes' share of the
        replicas' time.
    tables: one per kernel. violating: bool [K, Q, S], padded with the worst measured condition.
    capacity_rps: float64 [K] of one replica. home: int64 [S]. demand: mean request. fair_rps: float64
        [K], requests per second that reach one replica when all is well.
    absent: bool [R], replicas that only a later scale-up brings. stage: int64 [K], of each kernel.
    certified_loss: float64 [K, S], quality loss of the healthy kernels on certify prompts.
    plans, fault_changes: faults and their timed changes. changes: ordinary changes. surges: extra load.
    """

    name: str
    sha256: str
    layout: FleetLayout
    contract: CompiledContract
    horizon_s: float
    tick_s: float
    workload: WorkloadSpec
    telemetry: TelemetrySettings
    engine: EngineSpec
    prompts: PromptPlan
    tables: tuple[KernelTable, ...]
    violating: NDArray[np.bool_]
    capacity_rps: NDArray[np.float64]
    home: NDArray[np.int64]
    demand: Demand
    fair_rps: NDArray[np.float64]
    absent: NDArray[np.bool_]
    profile_sha256: tuple[str, ...] = ()
    stage: NDArray[np.int64] | None = None
    certified_loss: NDArray[np.float64] | None = None
    plans: tuple[FaultPlan, ...] = ()
    fault_changes: tuple[FaultChange, ...] = ()
    changes: tuple[FleetChange, ...] = ()
    surges: tuple[Surge, ...] = ()

    @property
    def ticks(self) -> int:
        """Control ticks of an episode."""
        return round(self.horizon_s / self.tick_s)

    @property
    def setup(self) -> FleetSetup:
        """What a controller of this fleet is set up with: nothing of the faults, nothing of the truth."""
        return FleetSetup(
            layout=self.layout,
            contract=self.contract,
            capacity_rps=self.capacity_rps,
            home=self.home,
            tick_s=self.tick_s,
            stage=self.stage,
            rates=SampleRates(
                probes_per_s=self.telemetry.probes_per_s,
                scrape_interval_s=self.telemetry.scrape_interval_s,
            ),
            quality_loss=self.certified_loss,
            certified_units=certified_units(self.tables, self.prompts, len(self.layout.slices)),
            certified=certified_values(
                self.prompts.probe_ids,
                self.prompts.probe_slice,
                [table.probe[0] for table in self.tables],
                self.telemetry.repeat_noise,
            ),
        )
