"""The two compared policies, and the faults on which they are compared: shared by the benchmark and its page.

Both policies are the same hysteresis; only the detector of clauses differs. A window is one setting of
length, least number of observations and confidence; the sequential detector has its budget.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from contracts.rng import stream
from contracts.scoring.incident_measures import measure_incident
from contracts.scoring.switches import measure_switches
from policies.registry import make_configuration
from scripts.studies.windows.match import BracketSearch, Matched, match
from simulator.drive import ControllerDriver
from simulator.probe_fleet import Fault, FleetRun, run_fleets
from simulator.world.compiled_scenario import CompiledScenario

SEED = 11
#: Onsets are this long after the start, so that every window has every phase relative to them.
ONSET_FROM_S, ONSET_TO_S = 120, 420
#: log10 of 1 - confidence, and of the budget per slice-month.
WINDOW_SEARCH = BracketSearch(strict=-8.0, loose=math.log10(0.5), start=-2.0)
SEQUENTIAL_SEARCH = BracketSearch(strict=0.0, loose=9.0, start=5.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """The detector of clauses: a spec of ``policies.registry`` without its looseness."""

    spec: str

    @property
    def sequential(self) -> bool:
        """Its looseness is a budget; else a confidence."""
        return self.spec.startswith("sequential")

    @property
    def search(self) -> BracketSearch:
        """Where its looseness is searched."""
        return SEQUENTIAL_SEARCH if self.sequential else WINDOW_SEARCH

    def driver(self, scenario: CompiledScenario, looseness: float) -> ControllerDriver:
        """Driver at ``looseness``."""
        fleet = scenario.setup
        if self.sequential:
            return ControllerDriver(make_configuration(self.spec, fleet, budget=10.0**looseness))
        contract = replace(fleet.contract, alarm_confidence=1.0 - 10.0**looseness)
        return ControllerDriver(make_configuration(self.spec, replace(fleet, contract=contract)))


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultCase:
    """One fault: a measured condition (name, index) of a kernel, on all of its replicas or on one."""

    kernel: int
    condition: int
    name: str
    whole: bool

    @property
    def label(self) -> str:
        """For tables and keys."""
        return f"{self.name}, {'kernel' if self.whole else 'one replica'}"


def cases(scenario: CompiledScenario) -> tuple[FaultCase, ...]:
    """Every measured condition of a home kernel that breaks the contract on a slice living there."""
    found = []
    for kernel in sorted(set(scenario.home.tolist())):
        lives = scenario.home == kernel
        for condition, name in enumerate(scenario.tables[kernel].conditions):
            if bool((scenario.violating[kernel, condition] & lives).any()):
                named = f"{scenario.layout.kernels[kernel]} {name}"
                found += [
                    FaultCase(kernel=kernel, condition=condition, name=named, whole=whole)
                    for whole in (True, False)
                ]
    return tuple(found)


def fleets_of(scenario: CompiledScenario, case: FaultCase, seeds: Sequence[int]) -> list[FleetRun]:
    """One fleet per seed; the seed gives the onset and, for single replicas, which replica."""
    own = np.flatnonzero(scenario.layout.replica_kernel == case.kernel)
    runs = []
    for seed in seeds:
        onset_s = float(stream(SEED, "onset", seed).integers(ONSET_FROM_S, ONSET_TO_S))
        hit = own if case.whole else own[seed % own.size : seed % own.size + 1]
        fault = Fault(replicas=tuple(hit.tolist()), condition=case.condition, onset_s=onset_s)
        runs.append(FleetRun(seed=seed, fault=fault))
    return runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Seconds from onset, float64 [cases, seeds], NaN where a false switch had left the kernel before.

    lag: to the first action. mttr: to recovery. Both are censored at ``most_s`` after the onset or later.
    missed: bool, no action; open: bool, no recovery.
    """

    lag: NDArray[np.float64]  # [cases, seeds], s to the first action
    mttr: NDArray[np.float64]  # [cases, seeds], s to recovery
    missed: NDArray[np.bool_]  # [cases, seeds], no action
    open: NDArray[np.bool_]  # [cases, seeds], no recovery


def measure_times(
    scenario: CompiledScenario,
    watch: Watch,
    looseness: float,
    of: Sequence[FaultCase],
    seeds: Sequence[int],
    most_s: float,
) -> Times:
    """Detection lag and MTTR of every case and seed, capped at ``most_s``."""
    fleets = [run for case in of for run in fleets_of(scenario, case, seeds)]
    records = run_fleets(scenario, watch.driver(scenario, looseness), fleets)
    found = [measure_incident(record) for record in records]
    shape = (len(of), len(seeds))
    lag, mttr = np.full(len(found), np.nan), np.full(len(found), np.nan)
    missed, open_ = np.zeros(len(found), dtype=np.bool_), np.zeros(len(found), dtype=np.bool_)
    for index, one in enumerate(found):
        if one is None or one.mitigated:
            continue
        missed[index] = not one.detected or one.detection_lag_s > most_s
        open_[index] = not one.recovered or one.mttr_s > most_s
        lag[index] = most_s if missed[index] else one.detection_lag_s
        mttr[index] = most_s if open_[index] else one.mttr_s
    return Times(
        lag=lag.reshape(shape),
        mttr=mttr.reshape(shape),
        missed=missed.reshape(shape),
        open=open_.reshape(shape),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthySwitches:
    """False switches (quarantines among them) of fleets without a fault."""

    episodes: int
    quarantines: int
    slice_months: float


def count_false(
    control: CompiledScenario, watch: Watch, looseness: float, seeds: Sequence[int]
) -> HealthySwitches:
    """False switches over ``control`` with these seeds."""
    records = run_fleets(control, watch.driver(control, looseness), [FleetRun(seed=seed) for seed in seeds])
    found = [measure_switches(record) for record in records]
    return HealthySwitches(
        episodes=sum(one.false_switches for one in found),
        quarantines=sum(one.false_quarantines for one in found),
        slice_months=sum(one.slice_months for one in found),
    )


def matched(control: CompiledScenario, watch: Watch, seeds: Sequence[int], target: int) -> Matched:
    """Looseness at which ``watch`` shows ``target`` false switches."""
    return match(
        lambda x: count_false(control, watch, x, seeds).episodes,
        target,
        watch.search,
        above=not watch.sequential,
    )
