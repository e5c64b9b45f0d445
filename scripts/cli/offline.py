"""``selvage offline``: log incidents as transitions, hand them on as a dataset, learn and judge from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from contracts.loading.files import json_text, sha256_of
from policies.offline.recipes import ConservativeRecipe, FittedRecipe
from policies.offline.transitions import Transitions, load_all, save_transitions
from scripts.cli.options import LARGEST_SEED, MOST_SEEDS, name_of_document, options
from scripts.guard import on_interrupt
from scripts.output import ready_folder
from scripts.progress import show_progress

LOGS = "Folder of logs written by `selvage offline record`, or the decision log of a controller."
USUAL, USUAL_JUDGE = ConservativeRecipe(), FittedRecipe()


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command()(options(RecordOptions)(record))
    app.command()(dataset)
    app.command()(train)
    app.command()(evaluate)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordOptions:
    """Options of ``selvage offline record``."""

    scenario: Annotated[str, typer.Argument(help="Scenario or suite document, or package:...")]
    out: Annotated[Path, typer.Option("--out", help="Folder for one .npz per episode.")]
    policy: Annotated[
        str, typer.Option(help="Policy configuration that drives: name or name:key=value,...")
    ] = "hysteresis"
    explore: Annotated[
        float,
        typer.Option(min=0.0, max=1.0, help="Probability of a random open kernel, per slice and tick, 0..1."),
    ] = 0.02
    seeds: Annotated[int, typer.Option(min=1, max=MOST_SEEDS, help="Episodes per scenario.")] = 4
    first_seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="First seed.")] = 0
    drawn: Annotated[
        int, typer.Option(min=0, help="Draw so many training incidents around SCENARIO instead.")
    ] = 0
    meta: Annotated[str, typer.Option(help="MetaContract that supervises the policy; default: none.")] = ""


def record(asked: RecordOptions) -> None:
    """Drive simulated incidents and log what a controller saw, chose and got, by telemetry alone.

    With --explore above 0 the logs hold propensities, so that other policies can be judged from them.
    """
    from policies.supervised import load_meta, refuse_other_artefact
    from scripts.train.offline_logs import record_incidents, scenarios_of

    if asked.meta:
        refuse_other_artefact(asked.policy, load_meta(asked.meta, "selvage offline")[0], asked.meta)
    first, out = asked.first_seed, asked.out
    todo, chosen = scenarios_of(asked.scenario, asked.drawn, first), list(range(first, first + asked.seeds))
    ready_folder(out)
    with on_interrupt(lambda: _kept_logs(out)), show_progress("logging", len(todo)) as progress:
        for one in todo:
            for log in record_incidents(one, asked.policy, chosen, asked.explore, first, asked.meta):
                save_transitions(out / f"{log.header.episode}-seed{log.header.seed}.npz", log)
            progress.update(advance=1.0)
    typer.echo(json_text(summarise(load_all(sorted(out.glob("*.npz"))))))


def _kept_logs(out: Path) -> str:
    count = sum(1 for _ in out.glob("*.npz"))
    kept = f"{count} whole logs are in {out}" if count else "nothing was kept"
    return f"{kept}; the same command begins anew, and fewer --seeds take less time"


def dataset(
    logs: Annotated[Path, typer.Argument(help=LOGS)],
    root: Annotated[Path, typer.Option("--root", help="Folder of Minari datasets.")],
    name: Annotated[str, typer.Option(help="Id of the dataset.")] = "selvage/incidents-v0",
) -> None:
    """Write LOGS as a Minari dataset, with costs and propensities in its infos."""
    loaded = read_logs(logs)  # before the imports, which take seconds
    from policies.offline.data import write_minari  # needs the extra ``rl``
    from scripts.train.offline_logs import layout_of

    typer.echo(str(write_minari(loaded, name, root, layout_of(loaded))))


def train(
    logs: Annotated[Path, typer.Argument(help=LOGS)],
    out: Annotated[Path, typer.Option("--out", help="Folder for the artefact.")],
    steps: Annotated[int, typer.Option(min=1, help="Gradient steps.")] = USUAL.steps,
    cost_weight: Annotated[
        float,
        typer.Option(min=0.0, help="Penalty per request beyond a soft clause's budget, in units of reward."),
    ] = USUAL.cost_weight,
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Seed of weights and batches.")] = 1,
    name: Annotated[str, typer.Option(help="Name of the artefact.", callback=name_of_document)] = "offline",
    judge_steps: Annotated[int, typer.Option(min=1, help="Gradient steps of fitted Q.")] = USUAL_JUDGE.steps,
) -> None:
    """Train a conservative policy from LOGS alone and judge it by every second log, left out of training.

    The artefact has no certificate: `selvage policy certify` decides whether it may drive.
    """
    loaded = read_logs(logs)  # before the imports, which take seconds
    from scripts.train.offline_fit import fit, hashes, judge, write_offline  # needs the extra ``rl``
    from scripts.train.offline_logs import layout_of

    ready_folder(out)
    learned, kept = loaded[::2], loaded[1::2] or loaded
    recipe = ConservativeRecipe(steps=steps, cost_weight=cost_weight, seed=seed)
    with on_interrupt(lambda: "nothing was kept; fewer --steps and --judge-steps take less time"):
        with show_progress("training", steps) as progress:
            content, history = fit(
                learned, layout_of(loaded), recipe, lambda done: progress.update(done=done)
            )
        evaluation = judge(content, kept, FittedRecipe(seed=seed, steps=judge_steps))
    command = f"selvage offline train LOGS --steps {steps} --cost-weight {cost_weight:g} --seed {seed}"
    manifest = write_offline(out, name, content, hashes(logs), evaluation, seed, command)
    report = {"manifest": str(manifest), "last_losses": history[-1], "evaluation": evaluation}
    typer.echo(json_text(report))


def evaluate(
    logs: Annotated[Path, typer.Argument(help=LOGS)],
    artefact: Annotated[str, typer.Argument(help="Manifest of the policy; package:... for shipped ones.")],
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Seed of the evaluation.")] = 1,
    judge_steps: Annotated[int, typer.Option(min=1, help="Gradient steps of fitted Q.")] = USUAL_JUDGE.steps,
) -> None:
    """Print what LOGS say that ARTEFACT would have earned, and how far they can say it."""
    loaded = read_logs(logs)  # before the imports, which take seconds
    from policies.artefacts import load_artefact

    judged = load_artefact(artefact, allow_uncertified=True)
    from scripts.train.offline_fit import hashes, judge  # needs the extra ``rl``

    inputs = {"artefact_sha256": sha256_of(judged.file), "logs_sha256": hashes(logs)}
    recipe = FittedRecipe(seed=seed, steps=judge_steps)
    typer.echo(json_text(judge(judged.content, loaded, recipe) | inputs))


def read_logs(folder: Path) -> list[Transitions]:
    """Every log in ``folder``, in the order of their names; of a decision log each start in it."""
    if not any(folder.glob("decisions-*.jsonl")):
        return load_all(sorted(folder.glob("*.npz")))
    from scripts.train.offline_decisions import decided  # compiles

    return decided(folder)


def summarise(logs: Sequence[Transitions]) -> dict[str, object]:
    """Episodes, ticks, mean reward and cost by telemetry, and whether propensities are known."""
    return {
        "episodes": len(logs),
        "ticks": sum(log.ticks for log in logs),
        "policies": sorted({log.header.policy_id for log in logs}),
        "meta_contract_sha256": sorted({log.header.meta_contract_sha256 or "" for log in logs} - {""}),
        "reward_mean": float(np.concatenate([log.reward for log in logs]).mean()),
        "cost_mean": float(np.concatenate([log.cost for log in logs]).mean()),
        "propensities": all(log.has_propensity for log in logs),
    }
