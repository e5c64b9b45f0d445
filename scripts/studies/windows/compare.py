"""Sequential detection and windows at equal false switches: matched, chosen, compared on fresh seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from contracts.scoring.intervals import Interval, paired_ratio
from policies.warm import warm
from scripts.studies.windows.cases import (
    ONSET_TO_S,
    FaultCase,
    HealthySwitches,
    Times,
    Watch,
    cases,
    count_false,
    matched,
    measure_times,
)
from scripts.studies.windows.match import Matched
from simulator.probe_fleet import probe_world
from simulator.world.compiled_scenario import CompiledScenario
from simulator.world.limit import at_limit

#: Forms of the sequential detector at the contract's own budget, and the repeat noise of each.
FORMS = (
    ("sequential:spread=0", 0.0),
    ("sequential", 0.0),
    ("sequential:prior=1", 0.0),
    ("sequential", 0.05),
    ("sequential:prior=1", 0.05),
)
#: Windows that are tuned: length in seconds and least observations of a judgement. A replica gives a slice
#: one in five seconds, so short windows need few of them to judge at all; the contract's own number is 20.
WINDOWS = (
    (10, 5), (15, 5), (20, 5), (30, 5), (30, 20), (45, 5), (45, 20), (60, 5), (60, 20), (90, 20), (120, 20),
    (180, 20), (300, 20),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Amount of simulation. target: number of false switches at which settings are matched."""

    control_fleets: int = 36
    control_s: float = 1800.0
    target: int = 36
    tuning_seeds: int = 4
    seeds: int = 20
    form_seeds: int = 6
    most_s: float = 900.0
    windows: tuple[tuple[int, int], ...] = WINDOWS
    forms: tuple[tuple[str, float], ...] = FORMS


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowConfiguration:
    """One policy after matching; tuning: its lags on the seeds of tuning."""

    watch: Watch
    found: Matched
    tuning: Times

    @property
    def worst(self) -> float:
        """Largest mean lag of any case, on the seeds of tuning."""
        return float(np.nanmean(self.tuning.lag, axis=1).max())

    @property
    def mean(self) -> float:
        """Mean over cases of the mean lag, on the seeds of tuning."""
        return float(np.nanmean(self.tuning.lag, axis=1).mean())


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowComparison:
    """Data of the figures, the table and the plot.

    configurations: every window and, last, sequential. final: by name (``sequential``, ``least_worst``,
    ``least_mean``), its configuration, its times on fresh seeds and its false switches on a fresh control.
    forms: by spec and repeat noise, times at the contract's own budget.
    """

    cases: tuple[FaultCase, ...]
    configurations: tuple[WindowConfiguration, ...]
    final: dict[str, tuple[WindowConfiguration, Times, HealthySwitches]]
    forms: dict[tuple[str, float], Times]
    lower_bound_s: float


def windows(size: Size) -> tuple[Watch, ...]:
    """The family of windows that is tuned."""
    return tuple(
        Watch(spec=f"hysteresis:window_s={length},min_samples={least}") for length, least in size.windows
    )


def compare(size: Size) -> WindowComparison:
    """Match, choose, and measure every fault on fresh seeds."""
    control = at_limit(probe_world(size.control_s))
    world = probe_world(ONSET_TO_S + size.most_s)
    of, first = cases(world), range(1, 1 + size.control_fleets)
    tuning = range(1001, 1001 + size.tuning_seeds)
    configurations = []
    for watch in (*windows(size), Watch(spec="sequential")):
        found = matched(control, watch, first, size.target)
        times = measure_times(world, watch, found.setting, of, tuning, size.most_s)
        configurations.append(WindowConfiguration(watch=watch, found=found, tuning=times))
    reached = [
        configuration for configuration in configurations[:-1] if configuration.found.reached
    ] or configurations[:-1]
    chosen = {
        "sequential": configurations[-1],
        "least_worst": min(reached, key=lambda configuration: configuration.worst),
        "least_mean": min(reached, key=lambda configuration: configuration.mean),
    }
    once = {configuration.watch: configuration for configuration in chosen.values()}
    fresh = {watch: _fresh(control, world, configuration, of, size) for watch, configuration in once.items()}
    final = {name: (configuration, *fresh[configuration.watch]) for name, configuration in chosen.items()}
    return WindowComparison(
        cases=of,
        configurations=tuple(configurations),
        final=final,
        forms=forms(of, size),
        lower_bound_s=lower_bound_s(world),
    )


def forms(of: Sequence[FaultCase], size: Size) -> dict[tuple[str, float], Times]:
    """Times of every form of the detector at the contract's budget, on fresh seeds."""
    seeds = range(7001, 7001 + size.form_seeds)
    found = {}
    for spec, noise in size.forms:
        world = probe_world(ONSET_TO_S + size.most_s, noise)
        budget = world.contract.false_switch_budget_per_slice_month
        looseness = math.log10(budget)
        found[spec, noise] = measure_times(world, Watch(spec=spec), looseness, of, seeds, size.most_s)
    return found


def lower_bound_s(world: CompiledScenario) -> float:
    """Interval of one replica's probes plus one tick: no policy acts sooner."""
    return 1.0 / world.telemetry.probes_per_s + world.tick_s


def _fresh(
    control: CompiledScenario,
    world: CompiledScenario,
    configuration: WindowConfiguration,
    of: Sequence[FaultCase],
    size: Size,
) -> tuple[Times, HealthySwitches]:
    """Times and false switches of ``configuration`` on seeds not used for any choice."""
    seeds, others = range(5001, 5001 + size.seeds), range(3001, 3001 + size.control_fleets)
    times = measure_times(world, configuration.watch, configuration.found.setting, of, seeds, size.most_s)
    return times, count_false(control, configuration.watch, configuration.found.setting, others)


def ratio(mine: NDArray[np.float64], theirs: NDArray[np.float64], name: str) -> Interval:
    """Ratio of mean times over seeds, paired; ``mine`` and ``theirs`` float64 [seeds]."""
    return paired_ratio(mine[:, None], theirs[:, None], name=f"windows/{name}")


def verdict(found: Interval) -> str:
    """``faster`` or ``slower`` if the interval proves it, else ``level``."""
    if found.ci_high < 1.0:
        return "faster"
    return "slower" if found.ci_low > 1.0 else "level"


@lru_cache(maxsize=1)
def shipped_result() -> WindowComparison:
    """The comparison at its shipped size, once per process."""
    warm()
    return compare(Size())
