"""Whether policies do harm in random worlds: ``python -m scripts.studies.worlds.harm 0 100``.

A line per world: useful tokens against ``fixed-bare`` in percentage points, by policy and seed, and what was
drawn. A world in which the mean of a policy is below -0.5 is marked HARM.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray

from contracts.scoring.measures import measure_episode
from contracts.scoring.quality import healthy_quality, pool_quality
from scripts.e5.configurations import BASELINE_CONFIGURATION, parse_configurations
from scripts.studies.worlds.drawn import MOST_RPS, Spec, draw_spec, scenario_of
from scripts.studies.worlds.wider import draw_wider
from simulator.fleet import run_episodes
from simulator.truth.scenario import demand_at, true_rps
from simulator.world.compiled_scenario import CompiledScenario
from simulator.world.scenario import compile_scenario

HARM_POINTS = -0.5
#: Points by policy, float64 [seeds].
Found = dict[str, NDArray[np.float64]]


def world(number: int, *, wider: bool = False) -> tuple[CompiledScenario, Spec]:
    """World ``number``, at its share of what its homes truly carry."""
    return at_load(number, *(draw_wider(number) if wider else draw_spec(number)))


def at_load(number: int, spec: Spec, load: float) -> tuple[CompiledScenario, Spec]:
    """World ``number`` of ``spec`` at ``load`` times what its homes truly carry."""
    calm = _compiled(number, spec)
    rate_rps = round(load * _carried_rps(calm, spec), 2)
    spec["workload"]["rate_rps"] = float(np.clip(rate_rps, 0.2, MOST_RPS))
    return _compiled(number, spec), spec


def _carried_rps(calm: CompiledScenario, spec: Spec) -> float:
    """Largest rate at which the fullest home carries its slices."""
    kernels = calm.layout.kernels
    replicas = np.bincount(calm.layout.replica_kernel, minlength=len(kernels))
    home = {one["slice"]: kernels.index(one["kernel"]) for one in spec["pool"]["home"]}
    share = np.zeros(len(kernels))
    for one in spec["workload"]["slice_mix"]:
        share[home[one["slice"]]] += one["share"]
    carried = true_rps(calm, demand_at(calm, 0.0)) * replicas
    return float((carried[share > 0.0] / share[share > 0.0]).min())


def differences(
    scenario: CompiledScenario, policies: tuple[str, ...], seeds: tuple[int, ...]
) -> Iterator[tuple[str, NDArray[np.float64]]]:
    """Policy and useful tokens less those of ``fixed-bare``, float64 [seeds], in percentage points."""
    healthy, bare = None, np.zeros(len(seeds))
    for one in parse_configurations((BASELINE_CONFIGURATION, *policies)):
        records = run_episodes(scenario, one.driver(scenario), list(seeds), batch=len(seeds))
        healthy = healthy or pool_quality([healthy_quality(record) for record in records])
        measured = [measure_episode(record, healthy) for record in records]
        useful = 100.0 * np.array([episode.service.useful_ratio for episode in measured])
        if one.name == BASELINE_CONFIGURATION:
            bare = useful
        else:
            yield one.name, useful - bare


def world_line(number: int, spec: Spec, found: Found) -> str:
    """The line of world ``number``."""
    harm = "HARM " if min(each.mean() for each in found.values()) < HARM_POINTS else ""
    by_policy = [f"{name} {each.mean():+.2f} {np.round(each, 2).tolist()}" for name, each in found.items()]
    about = [f"{one['kind']} {_dose(one)} {one['target']}" for one in spec["faults"]]
    kernels = [f"{one['name']} x{one['replicas']}" for one in spec["pool"]["kernels"]]
    rate_rps = spec["workload"]["rate_rps"]
    return f"{number}: {harm}{'; '.join(by_policy)}; {kernels}, {rate_rps} rps, {about}"


def summary(means: dict[str, list[float]]) -> Iterator[str]:
    """A line for each policy over all worlds, of the mean points of each."""
    for name, points in means.items():
        harmed = sum(each < HARM_POINTS for each in points)
        about = f"mean {np.mean(points):+.2f}, worst {min(points):+.2f} points, harm in {harmed}"
        yield f"{name}: {about} of {len(points)} worlds"


def print_worlds(
    worlds: Iterable[tuple[int, CompiledScenario, Spec]], policies: tuple[str, ...], seeds: int
) -> None:
    """Run each world in turn (number, scenario, drawn parameters) and print its line, then the summary."""
    means: dict[str, list[float]] = {}
    for number, scenario, spec in worlds:
        found = dict(differences(scenario, policies, tuple(range(1, seeds + 1))))
        print(world_line(number, spec, found), flush=True)
        for name, points in found.items():
            means.setdefault(name, []).append(float(points.mean()))
    for line in summary(means):
        print(line)


def _dose(fault: Spec) -> str:
    return str(fault.get("dose", fault.get("condition", "")))


def main(
    first: Annotated[int, typer.Argument(help="Number of the first world.")],
    last: Annotated[int, typer.Argument(help="Number after the last one.")],
    policies: str = "sequential,hysteresis,learned",
    seeds: Annotated[int, typer.Option(min=1, help="Paired seeds of each world.")] = 2,
    wider: Annotated[bool, typer.Option("--wider", help="Worlds of the wider kind.")] = False,
) -> None:
    """Print a line for every world, and one for every policy over all of them."""
    worlds = ((number, *world(number, wider=wider)) for number in range(first, last))
    print_worlds(worlds, tuple(policies.split(",")), seeds)


def _compiled(number: int, spec: Spec) -> CompiledScenario:
    return compile_scenario(scenario_of(number, spec), str(Path.cwd() / f"world-{number}.yaml"))


if __name__ == "__main__":
    typer.run(main)
