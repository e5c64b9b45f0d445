"""Whether policies do harm in random worlds: ``python -m scripts.studies.worlds.harm 0 100``.

A line per world: useful tokens against ``fixed-bare`` in percentage points, by policy and seed, and what was
drawn. A world in which the mean of a policy is below -0.5 is marked HARM. With ``--json`` the lines go to
stderr, and stdout has one object, of which ``scripts.studies.worlds.page`` makes the tables of docs/harm.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from contracts.loading.files import json_text
from contracts.scoring.measures import measure_episode
from contracts.scoring.quality import healthy_quality, pool_quality
from scripts.e5.configurations import BASELINE_CONFIGURATION, parse_configurations
from scripts.provenance import git_sha
from scripts.studies.worlds.drawn import MOST_RPS, Spec, draw_spec, scenario_of
from scripts.studies.worlds.wider import draw_wider
from simulator.fleet import run_episodes
from simulator.truth.scenario import demand_at, true_rps
from simulator.world.compiled_scenario import CompiledScenario
from simulator.world.scenario import compile_scenario

HARM_POINTS = -0.5
#: Points by policy, float64 [seeds].
Found = dict[str, NDArray[np.float64]]
#: Options that both commands have.
Policies = Annotated[str, typer.Option(help="Comma-separated policies, compared with fixed-bare.")]
Seeds = Annotated[int, typer.Option(min=1, help="Paired seeds of each world.")]
Only = Annotated[str, typer.Option(help="Comma-separated numbers of worlds, in place of FIRST and LAST.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one object; the lines go to stderr.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldsRun:
    """Random worlds that run together.

    kind: how they are drawn. numbers: of the worlds. chosen: named one by one and not a range, so that no
    share of them says anything of other worlds.
    """

    kind: str
    numbers: tuple[int, ...]
    policies: tuple[str, ...]
    seeds: int
    chosen: bool = False

    @classmethod
    def of(cls, kind: str, numbers: range, only: str, policies: str, seeds: int) -> WorldsRun:
        """From the options of a command; ``only`` has precedence over ``numbers``."""
        chosen = tuple(int(each) for each in only.split(",") if each)
        return cls(
            kind=kind,
            numbers=chosen or tuple(numbers),
            policies=tuple(policies.split(",")),
            seeds=seeds,
            chosen=bool(chosen),
        )


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
    return f"{number}: {harm}{'; '.join(by_policy)}; {drawn(spec)}"


def drawn(spec: Spec) -> str:
    """What was drawn: kernels with their replicas, load, faults."""
    kernels = ", ".join(f"{one['name']} x{one['replicas']}" for one in spec["pool"]["kernels"])
    faults = "; ".join(_fault(one) for one in spec["faults"]) or "no fault"
    return f"{kernels}; {spec['workload']['rate_rps']:g} requests/s; {faults}"


def _fault(one: Spec) -> str:
    dose = one.get("dose", one.get("condition", ""))
    where = " ".join(f"{key} {value}" for key, value in one["target"].items())
    lasts = f", {one['duration_s']:g} s" if "duration_s" in one else ""
    if turns := one.get("intermittent"):
        lasts = f", {turns['duty_ratio'] * turns['period_s']:g} of {turns['period_s']:g} s"
    return f"{one['kind']} {dose} on {where}{lasts}".replace("  ", " ")


def summary(means: dict[str, list[float]]) -> Iterator[str]:
    """A line for each policy over all worlds, of the mean points of each."""
    for name, points in means.items():
        harmed = sum(each < HARM_POINTS for each in points)
        about = f"mean {np.mean(points):+.2f}, worst {min(points):+.2f} points, harm in {harmed}"
        yield f"{name}: {about} of {len(points)} worlds"


def print_worlds(
    run: WorldsRun, worlds: Iterable[tuple[CompiledScenario, Spec]], *, as_json: bool = False
) -> None:
    """Run ``worlds`` (scenario, drawn parameters), which have the numbers of ``run``, each in turn; print a
    line of each, then the summary or the object.
    """
    means: dict[str, list[float]] = {}
    rows: list[dict[str, Any]] = []
    for number, (scenario, spec) in zip(run.numbers, worlds, strict=True):
        found = dict(differences(scenario, run.policies, tuple(range(1, run.seeds + 1))))
        typer.echo(world_line(number, spec, found), err=as_json)
        points = {name: each.tolist() for name, each in found.items()}
        rows.append({"number": number, "points": points, "drawn": drawn(spec)})
        for name, each in found.items():
            means.setdefault(name, []).append(float(each.mean()))
    if as_json:
        told = {"kind": run.kind, "chosen": run.chosen, "seeds": run.seeds, "git_sha": git_sha()}
        typer.echo(json_text({**told, "worlds": rows}))
        return
    for line in summary(means):
        typer.echo(line)


def main(
    first: Annotated[int, typer.Argument(help="Number of the first world.")] = 0,
    last: Annotated[int, typer.Argument(help="Number after the last one.")] = 0,
    policies: Policies = "sequential,hysteresis,learned",
    seeds: Seeds = 2,
    only: Only = "",
    wider: Annotated[bool, typer.Option("--wider", help="Worlds of the wider kind.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print a line for every world, and one for every policy over all of them."""
    run = WorldsRun.of("wider" if wider else "drawn", range(first, last), only, policies, seeds)
    print_worlds(run, (world(number, wider=wider) for number in run.numbers), as_json=as_json)


def _compiled(number: int, spec: Spec) -> CompiledScenario:
    return compile_scenario(scenario_of(number, spec), str(Path.cwd() / f"world-{number}.yaml"))


if __name__ == "__main__":
    typer.run(main)
