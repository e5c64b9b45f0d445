"""``selvage offline``: log incidents as transitions, hand them on as a dataset, learn and judge from them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.progress import track

from contracts.documents import Suite
from contracts.loader import load_text
from contracts.transitions import Transitions, load_all, save_transitions
from contracts.uris import resolve_uri
from controller.features import Encoder
from policies.choosing import InputLayout
from scripts.e5_suite import expand_suite, load_suite
from scripts.offline_logs import record_incidents
from scripts.output import ready_folder
from simulator.env_core import KERNELS_MAX
from simulator.randomise import EpisodeSpace, draw_episode, load_base
from simulator.scenario import compile_scenario, load_scenario
from simulator.world import CompiledScenario


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command()(record)
    app.command()(dataset)


def record(
    scenario: Annotated[str, typer.Argument(help="Scenario or suite document, or package:...")],
    out: Annotated[Path, typer.Option("--out", help="Folder for one .npz per episode.")],
    policy: Annotated[str, typer.Option(help="Arm that drives: name or name:key=value,...")] = "hysteresis",
    explore: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Chance per slice and tick of another open kernel.")
    ] = 0.02,
    seeds: Annotated[int, typer.Option(min=1, help="Episodes per scenario.")] = 4,
    first_seed: Annotated[int, typer.Option(min=0, help="First seed.")] = 0,
    drawn: Annotated[
        int, typer.Option(min=0, help="Draw so many training incidents around SCENARIO instead.")
    ] = 0,
) -> None:
    """Drive simulated incidents and log what a controller saw, chose and got, by telemetry alone.

    With --explore above 0 the logs hold propensities, so that other policies can be judged from them.
    """
    ready_folder(out)
    chosen = list(range(first_seed, first_seed + seeds))
    todo, console = _scenarios(scenario, drawn, first_seed), Console(stderr=True)
    for one in track(todo, description="logging", console=console, transient=True):
        for log in record_incidents(one, policy, chosen, explore, explore_seed=first_seed):
            save_transitions(out / f"{log.header.episode}-seed{log.header.seed}.npz", log)
    typer.echo(json.dumps(summarise(load_all(sorted(out.glob("*.npz")))), sort_keys=True))


def dataset(
    logs: Annotated[Path, typer.Argument(help="Folder of logs written by `selvage offline record`.")],
    root: Annotated[Path, typer.Option("--root", help="Folder of Minari datasets.")],
    name: Annotated[str, typer.Option(help="Id of the dataset.")] = "selvage/incidents-v0",
) -> None:
    """Write LOGS as a Minari dataset, with costs and propensities in its infos."""
    from policies.offline_data import write_minari  # needs the extra ``rl``

    loaded = read_logs(logs)
    typer.echo(str(write_minari(loaded, name, root, layout_of(loaded))))


def read_logs(folder: Path) -> list[Transitions]:
    """Every log in ``folder``, in the order of their names."""
    return load_all(sorted(folder.glob("*.npz")))


def layout_of(logs: Sequence[Transitions]) -> InputLayout:
    """What the observations of ``logs`` are made of."""
    return InputLayout(encoder=Encoder(kernels_max=KERNELS_MAX, slices=logs[0].choice.shape[1]))


def summarise(logs: Sequence[Transitions]) -> dict[str, object]:
    """Episodes, ticks, mean reward and cost by telemetry, and whether propensities are known."""
    return {
        "episodes": len(logs),
        "ticks": sum(log.ticks for log in logs),
        "policies": sorted({log.header.policy_id for log in logs}),
        "reward_mean": float(np.concatenate([log.reward for log in logs]).mean()),
        "cost_mean": float(np.concatenate([log.cost for log in logs]).mean()),
        "propensities": all(log.has_propensity for log in logs),
    }


def _scenarios(text: str, drawn: int, seed: int) -> list[CompiledScenario]:
    """The scenario, or every scenario of the suite, that ``text`` names; or episodes drawn around it."""
    path = resolve_uri(text, "selvage offline")
    if drawn:
        base, space = load_base(path), EpisodeSpace()
        episodes = [draw_episode(base, space, seed, 0, number, "train") for number in range(drawn)]
        return [_named(episode.scenario, number) for number, episode in enumerate(episodes)]
    document = load_text(path.read_text(), str(path))
    if not isinstance(document, Suite):
        return [load_scenario(path)]
    suite, file = load_suite(path)
    entries = expand_suite(suite, file)
    return [compile_scenario(entry.scenario(), entry.file) for entry in entries]


def _named(scenario: CompiledScenario, number: int) -> CompiledScenario:
    return replace(scenario, name=f"{scenario.name}-drawn{number:04d}")
