"""``selvage train``: train routing policies by a recipe, several seeds beside each other."""

from __future__ import annotations

import shlex
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from contracts.errors import DocumentError, refusal
from contracts.loading.shipped import SHIPPED_RECIPE
from contracts.loading.untrusted import MALFORMED, json_of
from contracts.loading.uris import resolve_uri
from contracts.regular_files import TEXT_BYTES, read_regular
from contracts.scoring.intervals import paired_difference
from policies.train.recipe import TrainingRecipe, load_recipe, seed_folder
from scripts.cli.options import LARGEST_SEED, MOST_SEEDS, options
from scripts.guard import kept_in, on_interrupt, stoppable
from scripts.output import ready_folder, write_json
from scripts.progress import show_progress
from scripts.provenance import git_sha, package_version, sources_sha256
from scripts.setup.warm import warm_with_progress
from scripts.workers import BACKEND_HELP, Workers, open_workers, refuse_unknown

#: Packages whose versions decide the weights.
PACKAGES = ("numba", "numpy", "selvage-fleet", "stable-baselines3", "torch")


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command()(options(TrainOptions)(train))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOptions:
    """The options of ``selvage train``."""

    out: Annotated[Path, typer.Option("--out", help="Folder: one sub-folder per seed, and training.json.")]
    recipe: Annotated[str, typer.Option(help="Recipe (file or package: URI).")] = SHIPPED_RECIPE
    seeds: Annotated[str, typer.Option(help="Seeds, e.g. 0-4 or 1,7.")] = "0-4"
    jobs: Annotated[int, typer.Option(min=1, help="Seeds beside each other.")] = 1
    backend: Annotated[str, typer.Option(help=BACKEND_HELP)] = "loky"
    updates: Annotated[
        int | None, typer.Option(min=0, max=1_000_000, help="PPO episodes; default: the recipe's.")
    ] = None
    algorithm: Annotated[str, typer.Option(help="ppo or recurrent-ppo; default: the recipe's.")] = ""
    compare: Annotated[bool, typer.Option(help="Validate the recipe's baselines as well.")] = True


def train(asked: TrainOptions) -> None:
    """Train every seed, or go on where its checkpoint stands.

    Ctrl-C or TERM stops after the running step; the same command goes on with the last checkpoint.
    No result depends on --jobs, --backend or interruptions.
    """
    refuse_unknown(asked.backend, "selvage train")
    wanted, file = parse_seeds(asked.seeds), str(resolve_uri(asked.recipe, "selvage train"))
    document = load_recipe(file)
    ready_folder(asked.out)
    if asked.algorithm and asked.algorithm != document.spec.ppo.algorithm:
        document, file = _with_algorithm(document, file, asked.algorithm, asked.out)
    total = document.spec.ppo.episodes if asked.updates is None else asked.updates
    with on_interrupt(lambda: _kept(asked.out)):
        warm_with_progress()
        with _bar(asked.out, wanted, total):
            results, number = _run_all(file, wanted, asked.out, asked.updates, asked.jobs, asked.backend)
    command = shlex.join(["selvage", "train", "--recipe", asked.recipe, "--seeds", asked.seeds])
    from scripts.train.inputs import training_inputs
    from scripts.train.run import baseline_scores

    finished = len(results) == len(wanted) and all(result.finished for result in results)
    configurations = document.spec.baselines if asked.compare and finished else ()
    baselines = baseline_scores(file, configurations)
    content = summary(
        document, command if asked.updates is None else f"{command} --updates {asked.updates}", results
    )
    content |= training_inputs(document, file) | {"sources_sha256": sources_sha256(), "git_sha": git_sha()}
    content["baselines"] = {
        name: score.plain() | {"gains": gains(name, score.rewards, results)}
        for name, score in baselines.items()
    }
    write_json(asked.out / "training.json", content, indent=1)
    _show(content)
    if not finished:
        typer.echo(f"interrupted: {_kept(asked.out)}", err=True)
        raise typer.Exit(128 + number)


def _kept(out: Path) -> str:
    return kept_in(out, "seed-*/checkpoint.json")


def _with_algorithm(
    recipe: TrainingRecipe, file: str, algorithm: str, out: Path
) -> tuple[TrainingRecipe, str]:
    """The recipe under another algorithm, written into ``out`` with URIs that are valid from there."""
    plain = recipe.model_dump(mode="json", by_alias=True, exclude_none=True)
    plain["spec"]["ppo"]["algorithm"] = algorithm
    uris = plain["spec"]["episodes"]["scenarios"]
    plain["spec"]["episodes"]["scenarios"] = [_absolute(uri, file) for uri in uris]
    path = out / "recipe.yaml"
    write_json(path, plain, indent=1)
    return load_recipe(path), str(path)


def _absolute(uri: str, file: str) -> str:
    return uri if uri.startswith("package:") else str(resolve_uri(uri, file).resolve())


def parse_seeds(text: str) -> tuple[int, ...]:
    """``0-4`` or ``1,7`` to numbers; DocumentError for anything else."""
    try:
        first, dash, last = text.partition("-")
        numbers = range(int(first), int(last) + 1) if dash else [int(part) for part in text.split(",")]
        fits = 0 < len(numbers) <= MOST_SEEDS
    except (ValueError, OverflowError):
        fits = False
    if not fits or not 0 <= min(numbers) <= max(numbers) <= LARGEST_SEED or len(set(numbers)) != len(numbers):
        raise refusal("selvage train", "e.g. 0-4 or 1,7", repr(text), "try 0-4", path="--seeds")
    return tuple(numbers)


def summary(recipe: TrainingRecipe, command: str, results: list[Any]) -> dict[str, Any]:
    """Content of ``training.json`` beside its hashes: command, recipe, versions, and every seed's result."""
    return {
        "command": command,
        "recipe": recipe.metadata.name,
        "versions": {name: package_version(name) for name in PACKAGES},
        "runs": [
            {
                "seed": result.seed,
                "env_steps": result.env_steps,
                "chosen_at": result.chosen_at,
                "score": result.score,
                "finished": result.finished,
            }
            for result in results
        ],
    }


def gains(configuration: str, rewards: tuple[float, ...], results: list[Any]) -> list[dict[str, float]]:
    """Reward of every seed minus that of ``configuration``, paired by validation episode, with 95 %
    limits.
    """
    other = np.array([rewards]).T
    found = []
    for result in results:
        gain = paired_difference(np.array([result.rewards]).T, other, name=f"{configuration}|{result.seed}")
        found.append({"seed": result.seed, "mean": gain.mean, "ci_low": gain.ci_low, "ci_high": gain.ci_high})
    return found


def _run_all(
    file: str, seeds: tuple[int, ...], out: Path, updates: int | None, jobs: int, backend: str
) -> tuple[list[Any], int]:
    """Results of ``seeds``, fewer if a signal stopped the run, and the signal's number."""
    from scripts.train.run import train_in_worker, train_seed

    folders = [str(seed_folder(out, seed)) for seed in seeds]
    if jobs == 1 and backend == "loky":
        results: list[Any] = []
        with stoppable() as stopped:
            for seed, folder in zip(seeds, folders, strict=True):
                results += [] if stopped.flag else [train_seed(file, seed, folder, updates)]
        return results, stopped.number
    with open_workers(Workers(jobs=jobs, backend=backend), threads=1) as run:
        tasks = [(file, seed, folder, updates) for seed, folder in zip(seeds, folders, strict=True)]
        done = sorted(run(train_in_worker, tasks), key=lambda pair: pair[0])
        return [result for _, result in done], int(signal.SIGINT)


@contextmanager
def _bar(out: Path, seeds: tuple[int, ...], total: int) -> Iterator[None]:
    """Progress over all seeds on stderr, fed by the checkpoints, so that it sees seeds in other processes."""
    done = threading.Event()
    with show_progress("training", total * len(seeds)) as progress:

        def follow() -> None:
            while not done.wait(1.0):
                updates = [_updates(seed_folder(out, seed)) for seed in seeds]
                text = ", ".join(f"seed {seed} at {n}" for seed, n in zip(seeds, updates, strict=True))
                progress.update(f"training, of {total} updates {text}", done=sum(updates))

        watcher = threading.Thread(target=follow, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()


def _updates(folder: Path) -> int:
    try:
        return int(json_of(read_regular(folder / "checkpoint.json", TEXT_BYTES))["updates"])
    except (DocumentError, *MALFORMED):
        return 0


def _show(content: dict[str, Any]) -> None:
    baselines = content["baselines"]
    table = Table(title="Validation episodes: reward per tick, 95 % limits", title_justify="left")
    for head in ("seed", "reward", "chosen at update", "env steps", "finished"):
        table.add_column(head, justify="right")
    for name in baselines:
        table.add_column(f"minus {name}")
    for place, run in enumerate(content["runs"]):
        table.add_row(
            str(run["seed"]),
            f"{run['score']:.5f}",
            str(run["chosen_at"]),
            str(run["env_steps"]),
            "yes" if run["finished"] else "no",
            *(_gain(score["gains"][place]) for score in baselines.values()),
        )
    for name, score in baselines.items():
        table.add_row(name, f"{score['reward']:.5f}", "–", "–", "–")
    Console(width=160).print(table)


def _gain(gain: dict[str, float]) -> str:
    return f"{gain['mean']:+.5f} ({gain['ci_low']:.5f} to {gain['ci_high']:.5f})"
