"""Servers on other machines than those of their profiles: ``python -m scripts.studies.worlds.machines``.

E5's faults that make servers slow, and three of its controls, begin ten minutes later, so that the usual
step time of a replica is known. The controller believes in step times that are a quarter of the true ones, or
four times as long, or half of the least time of a step and twice the time per token, or the reverse. A row
per scenario and belief: MTTR and useful tokens of ``sequential`` by the reference for own clocks, beside a
controller with true step times.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import typer

from contracts.documents.route import HeldAgainst
from contracts.loading.shipped import SHIPPED_SUITE
from contracts.loading.uris import resolve_uri
from contracts.scoring.incident_measures import measure_incident
from contracts.scoring.measures import measure_service
from controller.options import ControllerSetup
from policies.registry import make_configuration
from scripts.e5.suite import SuiteEntry, expand_suite, load_suite
from simulator.drive import ControllerDriver
from simulator.fleet import run_episodes
from simulator.world.compiled_scenario import CompiledScenario
from simulator.world.scenario import compile_scenario

SCENARIOS = (
    *("slow-replica", "slow-zone", "slow-build-load", "throttling", "kv-pressure"),
    *("quiet", "rolling-restart", "surge"),
)
LATER_S = 600.0
#: Certified over true step times: of a step's least time, and per token.
Belief = tuple[float, float]
BELIEFS = "0.25,0.25 4,4 0.5,2 2,0.5"
AS_TRUE: Belief = (1.0, 1.0)
HELD: tuple[HeldAgainst, ...] = ("off", "certified", "usual")


def later(entry: SuiteEntry, by_s: float = LATER_S) -> CompiledScenario:
    """The scenario of ``entry``, whose faults and changes begin ``by_s`` later."""
    document = entry.scenario()
    spec = document.spec
    faults = tuple(one.model_copy(update={"onset_s": one.onset_s + by_s}) for one in spec.faults)
    changes = tuple(one.model_copy(update={"at_s": one.at_s + by_s}) for one in spec.changes)
    moved = {"faults": faults, "changes": changes, "horizon_s": spec.horizon_s + by_s}
    return compile_scenario(document.model_copy(update={"spec": spec.model_copy(update=moved)}), entry.file)


def on_other_machines(
    world: CompiledScenario, belief: Belief, held: HeldAgainst, policy: str = "sequential"
) -> ControllerSetup:
    """``policy`` in ``world`` with certified step times of ``belief`` times the true ones."""
    setup = make_configuration(policy, world.setup)
    engine = setup.fleet.engine
    if engine is None:
        raise ValueError("world: expected kernels with step times, got none; give their profiles")
    least, each = belief
    believed = replace(engine, step_s=np.array([least, each, each, each]) * engine.step_s)
    return replace(setup, fleet=replace(setup.fleet, engine=believed), own_clocks=held)


def measured(world: CompiledScenario, setup: ControllerSetup, seeds: int) -> str:
    """Mean MTTR (s; - if nothing happens) and useful tokens (percent) over seeds from 1 on."""
    records = run_episodes(world, ControllerDriver(setup), list(range(1, seeds + 1)))
    found = [measure_incident(record) for record in records]
    mttr_s = [one.mttr_s for one in found if one is not None]
    useful = 100.0 * np.mean([measure_service(record).useful_ratio for record in records])
    return f"{np.mean(mttr_s):.0f} s, {useful:.2f}" if mttr_s else f"–, {useful:.2f}"


def rows(names: tuple[str, ...], beliefs: tuple[Belief, ...], seeds: int) -> Iterator[str]:
    """Rows of the table."""
    suite, file = load_suite(resolve_uri(SHIPPED_SUITE, Path.cwd() / "machines"))
    for entry in expand_suite(suite, file):
        if entry.name in names:
            world = later(entry)
            true = measured(world, on_other_machines(world, AS_TRUE, "certified"), seeds)
            for belief in beliefs:
                found = [measured(world, on_other_machines(world, belief, held), seeds) for held in HELD]
                least, each = belief
                yield f"| {entry.name} | {least:g}, {each:g} | {true} | {' | '.join(found)} |"


def _beliefs(text: str) -> tuple[Belief, ...]:
    pairs = (pair.split(",") for pair in text.split())
    return tuple((float(least), float(each)) for least, each in pairs)


def main(scenarios: str = ",".join(SCENARIOS), seeds: int = 3, beliefs: str = BELIEFS) -> None:
    """Print the table."""
    print("| scenario | certified over true step times | as certified | clocks off | certified | usual |")
    print("|---|---:|---:|---:|---:|---:|")
    for row in rows(tuple(scenarios.split(",")), _beliefs(beliefs), seeds):
        print(row, flush=True)


if __name__ == "__main__":
    typer.run(main)
