"""False switches without a fault, at loads that are shares of the fleet's true capacity.

The worlds are the controls ``load-60``, ``load-80``, ``load-95`` and ``load-110`` of E5's stress part, for
two hours each; their rates are there beside the capacities that ``selvage bench capacity`` measured.
They have no fault, so every switch not required by capacity is false, and so is every
quarantine. Rates are per slice-month, with exact Poisson limits.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from pathlib import Path

from contracts.errors import refusal
from contracts.loading.shipped import STRESS_SUITE
from contracts.loading.uris import resolve_uri
from contracts.scoring.intervals import poisson_rate
from contracts.scoring.switches import SwitchMeasures, measure_switches
from contracts.units import SECONDS_PER_DAY, SECONDS_PER_MONTH
from policies.registry import make_configuration
from scripts.e5.suite import SuiteEntry, expand_suite, load_suite
from simulator.drive import ControllerDriver
from simulator.fleet import run_episodes
from simulator.world.compiled_scenario import CompiledScenario
from simulator.world.scenario import compile_scenario

POLICIES = ("sequential", "hysteresis")
#: Seeds that no suite uses.
SEED = 970001
HORIZON_S = 7200.0
#: Fleets in lock-step; changes no result.
BATCH = 12
DAYS = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadControls:
    """Counts of one policy at one load."""

    false_switches: int  # including false quarantines
    capacity_moves: int
    slice_months: float

    def figures(self) -> dict[str, object]:
        """Counts and the rate with its limits, flat."""
        rate = poisson_rate(self.false_switches, self.slice_months)
        return {
            "slice_days": round(self.slice_months * SECONDS_PER_MONTH / SECONDS_PER_DAY, 2),
            "false_switches": self.false_switches,
            "capacity_moves": self.capacity_moves,
            "per_slice_month": round(rate.mean, 3),
            "ci_low": round(rate.ci_low, 3),
            "ci_high": round(rate.ci_high, 3),
        }


def load_controls(loads: tuple[str, ...], policies: tuple[str, ...], days: float) -> dict[str, object]:
    """Figures of every policy at every load, flat, over at least ``days`` slice-days each."""
    suite, file = load_suite(resolve_uri(STRESS_SUITE, Path.cwd() / "selvage bench"))
    entries = {entry.name: entry for entry in expand_suite(suite, file)}
    flat: dict[str, object] = {"seed": SEED, "horizon_s": HORIZON_S, "suite": suite.metadata.name}
    for load in loads:
        world = _world(entries, load)
        flat[f"{load}/rate_rps"] = float(world.workload.profile.at(0.0))
        for policy in policies:
            found = _count(world, policy, days).figures()
            flat |= {f"{load}/{policy}/{name}": value for name, value in found.items()}
    return flat


def _world(entries: dict[str, SuiteEntry], load: str) -> CompiledScenario:
    entry = entries.get(f"load-{load}")
    if entry is None:
        known = ",".join(name.removeprefix("load-") for name in entries if name.startswith("load-"))
        raise refusal("selvage bench controls", known, load, "choose from these", path="--load")
    document = entry.scenario()
    spec = document.spec.model_copy(update={"horizon_s": HORIZON_S})
    return compile_scenario(document.model_copy(update={"spec": spec}), entry.file)


def _count(world: CompiledScenario, policy: str, days: float) -> LoadControls:
    """One policy in as many fleets as the days require."""
    each_s = world.horizon_s * len(world.layout.slices)
    seeds = range(SEED, SEED + ceil(days * SECONDS_PER_DAY / each_s - 1e-9))
    driver = ControllerDriver(make_configuration(policy, world.setup))
    found: list[SwitchMeasures] = []
    for first in range(0, len(seeds), BATCH):
        records = run_episodes(world, driver, seeds[first : first + BATCH], batch=BATCH)
        found += [measure_switches(record) for record in records]
    return LoadControls(
        false_switches=sum(one.false_switches for one in found),
        capacity_moves=sum(one.capacity_moves for one in found),
        slice_months=sum(one.slice_months for one in found),
    )
