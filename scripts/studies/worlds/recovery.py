"""Times to recovery in random worlds: ``python -m scripts.studies.worlds.recovery 0 60``.

The worlds of ``drawn`` that have a choice of kernels, with one fault that stays and a load of a quarter to
three quarters of the homes' capacity. A line per world: MTTR in seconds by policy and seed, beside that of
the informed reference, which is given the fault, and in brackets the useful tokens lost relative to it, in
percentage points. Seeds in which nothing breaks the contract, or no policy could recover, are left out, and
so are faults that break a clause of level L1 alone, which moves nothing. LEFT marks a world in which the
reference recovers and a policy does not, SLOW one in which it takes 1.5 times as long and 15 s more; COST
one in which it loses half a point.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, NamedTuple

import numpy as np
import typer

from contracts.scoring.episode import EpisodeRecord
from contracts.scoring.incident_measures import measure_incident
from contracts.scoring.measures import measure_service
from scripts.e5.configurations import INFORMED, Configuration, parse_configuration
from scripts.studies.worlds.drawn import Spec, draw_spec
from scripts.studies.worlds.harm import at_load
from simulator.fleet import run_episodes
from simulator.world.compiled_scenario import CompiledScenario

#: Factor on a drawn load: 40 to 120 % becomes 24 to 72 %.
LOAD_RATIO = 0.6
MOST_TIMES, MOST_LATER_S, MOST_SHORT_POINTS = 1.5, 15.0, 0.5
#: Faults that break clauses of level L1 alone.
WARNED_OF = ("trace_fields_missing",)


class IncidentTimes(NamedTuple):
    """One incident, under one policy and the reference."""

    mttr_s: float
    recovered: bool
    informed_s: float
    short_points: float


def choose(number: int) -> tuple[CompiledScenario, Spec] | None:
    """World ``number`` with one fault that stays; None if it has no fault, or a single kernel."""
    spec, load = draw_spec(number)
    if not spec["faults"] or len(spec["pool"]["kernels"]) == 1 or spec["faults"][0]["kind"] in WARNED_OF:
        return None
    shapes = ("shape", "intermittent")
    fault = {key: value for key, value in spec["faults"][0].items() if key not in shapes}
    return at_load(number, {**spec, "faults": [fault], "changes": []}, LOAD_RATIO * load)


def recoveries(
    scenario: CompiledScenario, policies: tuple[str, ...], seeds: tuple[int, ...]
) -> Iterator[tuple[str, list[IncidentTimes]]]:
    """Of every policy the incidents from which the reference recovers."""
    reference = _episodes(parse_configuration(INFORMED), scenario, seeds)
    for one in map(parse_configuration, policies):
        pairs = zip(_episodes(one, scenario, seeds), reference, strict=True)
        yield one.name, [found for mine, best in pairs for found in _times(mine, best)]


def _times(mine: EpisodeRecord, best: EpisodeRecord) -> Iterator[IncidentTimes]:
    """The times of one episode beside the reference's, if both exist."""
    own, reference = measure_incident(mine), measure_incident(best)
    if own is not None and reference is not None and reference.recovered and not reference.infeasible:
        short = measure_service(best).useful_ratio - measure_service(mine).useful_ratio
        yield IncidentTimes(own.mttr_s, own.recovered, reference.mttr_s, 100.0 * short)


def _episodes(one: Configuration, scenario: CompiledScenario, seeds: tuple[int, ...]) -> list[EpisodeRecord]:
    return run_episodes(scenario, one.driver(scenario), list(seeds), batch=len(seeds))


def mark(found: dict[str, list[IncidentTimes]]) -> str:
    """LEFT, SLOW, COST, or nothing."""
    every = [one for each in found.values() for one in each]
    slow = (max(MOST_TIMES * one.informed_s, one.informed_s + MOST_LATER_S) < one.mttr_s for one in every)
    time = "SLOW " if any(slow) else ""
    time = time if all(one.recovered for one in every) else "LEFT "
    return time + ("COST " if any(one.short_points > MOST_SHORT_POINTS for one in every) else "")


def told(number: int, spec: Spec, found: dict[str, list[IncidentTimes]]) -> str:
    """The line of world ``number``."""
    fault = spec["faults"][0]
    about = f"{fault['kind']} {fault.get('dose', fault.get('condition', ''))} {fault['target']}"
    times = [f"{name} {', '.join(map(_shown, each))}" for name, each in found.items()]
    informed = [round(one.informed_s) for one in next(iter(found.values()))]
    kernels = [f"{one['name']} x{one['replicas']}" for one in spec["pool"]["kernels"]]
    asked = f"{spec['telemetry']['probes_per_s']} probes/s, {spec['telemetry']['scrape_interval_s']} s"
    rest = f"{kernels}, {spec['workload']['rate_rps']} rps, {asked}"
    return f"{number}: {mark(found)}{'; '.join(times)}; informed {informed}; {about}; {rest}"


def _shown(one: IncidentTimes) -> str:
    return f"{one.mttr_s:.0f} s ({one.short_points:.2f})"


def summary(found: dict[str, list[IncidentTimes]]) -> Iterator[str]:
    """A line for each policy over all incidents."""
    for name, each in found.items():
        if not each:
            continue
        mine, best = (float(np.mean([one[place] for one in each])) for place in (0, 2))
        left = sum(not one.recovered for one in each)
        short = float(np.mean([one.short_points for one in each]))
        times = f"MTTR {mine:.1f} s, informed {best:.1f} s"
        yield f"{name}: {times}, short by {short:.2f} points, {left} of {len(each)} incidents left"


def main(
    first: Annotated[int, typer.Argument(help="Number of the first world.")],
    last: Annotated[int, typer.Argument(help="Number after the last one.")],
    policies: str = "sequential,learned",
    seeds: Annotated[int, typer.Option(min=1, help="Paired seeds of each world.")] = 2,
) -> None:
    """Print a line for every world with an incident, and one for every policy over all of them."""
    whole: dict[str, list[IncidentTimes]] = {}
    for number in range(first, last):
        chosen = choose(number)
        if chosen is None:
            continue
        scenario, spec = chosen
        found = dict(recoveries(scenario, tuple(policies.split(",")), tuple(range(1, seeds + 1))))
        if any(found.values()):
            print(told(number, spec, found), flush=True)
        for name, each in found.items():
            whole.setdefault(name, []).extend(each)
    for line in summary(whole):
        print(line)


if __name__ == "__main__":
    typer.run(main)
