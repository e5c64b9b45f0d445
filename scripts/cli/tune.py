"""``selvage tune``: search the settings of a baseline on training episodes, choose on validation episodes."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from contracts.errors import refusal
from contracts.loading.shipped import SHIPPED_RECIPE
from contracts.loading.uris import resolve_uri
from contracts.plugins import loaded_sha256
from policies.supervised import meta_sha256
from policies.train.recipe import load_recipe
from policies.train.tune import SPACES, Trial, best, tune
from scripts.cli.options import LARGEST_SEED, options
from scripts.guard import kept_in, on_interrupt
from scripts.output import ready_file, write_json
from scripts.partial_results import KeptResults, parts_folder
from scripts.progress import show_progress
from scripts.provenance import git_sha, package_version, sources_sha256
from scripts.setup.warm import warm_with_progress
from scripts.train.inputs import scenarios_sha256
from scripts.train.pieces import PiecewiseSearch
from scripts.train.validation import EpisodeSet
from scripts.workers import BACKEND_HELP, Workers, open_workers, refuse_unknown

#: Settings that advance from training to validation episodes; the default policy is added.
FINALISTS = 5
FORMAT = 1


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(name="tune")(options(TuneOptions)(tune_command))


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneOptions:
    """The argument and the options of ``selvage tune``."""

    policy: Annotated[str, typer.Argument(help="Baseline to tune, e.g. hysteresis.")]
    out: Annotated[Path, typer.Option("--out", help="File for the result (JSON).")]
    steps: Annotated[int, typer.Option(min=1, help="Control ticks of training episodes to spend.")] = (
        1_056_000
    )
    seed: Annotated[
        int, typer.Option(min=0, max=LARGEST_SEED, help="Seed of the search and of the training episodes.")
    ] = 1
    fleets: Annotated[int, typer.Option(min=1, help="Training episodes per trial.")] = 96
    horizon_s: Annotated[float, typer.Option(min=10.0, max=86_400.0, help="Length of an episode, s.")] = 301.0
    recipe: Annotated[str, typer.Option(help="Training recipe that states the objective.")] = SHIPPED_RECIPE
    meta: Annotated[
        str, typer.Option(help="MetaContract that keeps the policy in every episode; default: none.")
    ] = ""
    jobs: Annotated[int, typer.Option(min=1, help="Jobs beside each other.")] = 1
    backend: Annotated[str, typer.Option(help=BACKEND_HELP)] = "loky"

    @property
    def training(self) -> EpisodeSet:
        """The training episodes of every trial."""
        return EpisodeSet(seed=self.seed, fleets=self.fleets, horizon_s=self.horizon_s)


def tune_command(asked: TuneOptions) -> None:
    """Spend ``--steps`` ticks on trials, choose between the best few and the defaults on validation episodes.

    Equal arguments give equal results, whatever --jobs and --backend; a stopped run goes on from what it has
    finished.
    """
    if asked.policy not in SPACES:
        expected = " or ".join(sorted(SPACES))
        raise refusal("selvage tune", expected, repr(asked.policy), "name one", path="POLICY")
    refuse_unknown(asked.backend, "selvage tune")
    words = ["selvage", "tune", asked.policy, "--steps", str(asked.steps), "--seed", str(asked.seed)]
    words += ["--fleets", str(asked.fleets), "--horizon-s", f"{asked.horizon_s:g}"]
    words += ["--recipe", asked.recipe, *(["--meta", asked.meta] if asked.meta else []), "--out", "FILE"]
    meta_sha256(asked.meta)  # refused before anything runs
    ready_file(asked.out)
    kept = KeptResults(parts_folder(asked.out))
    with on_interrupt(lambda: kept_in(parts_folder(asked.out))):
        content = run(asked, kept, Console(stderr=True))
    content |= {"command": shlex.join(words)}
    content |= {"git_sha": git_sha(), "sources_sha256": sources_sha256()}
    write_json(asked.out, content, indent=1)
    kept.forget()
    typer.echo(content["chosen"])


def run(asked: TuneOptions, kept: KeptResults, console: Console) -> dict[str, Any]:
    """Content of the result file; ``kept`` has the scores of a run that was stopped."""
    spec = load_recipe(resolve_uri(asked.recipe, "selvage tune")).spec
    trials, check = max(1, asked.steps // asked.training.env_steps), spec.validation
    validation = EpisodeSet(seed=check.seed, fleets=check.episodes, horizon_s=check.horizon_s)
    warm_with_progress()
    with (
        open_workers(Workers(jobs=asked.jobs, backend=asked.backend)) as runner,
        show_progress("tuning", trials + FINALISTS + 1) as progress,
    ):
        search = PiecewiseSearch(
            episodes=asked.training,
            reward=spec.reward,
            run=runner,
            kept=kept,
            pieces=asked.jobs,
            meta=asked.meta,
            on_done=lambda share: progress.update(advance=share),
        )
        found = tune(
            asked.policy,
            lambda configuration: search.score(configuration).objective,
            trials=trials,
            seed=asked.seed,
            report=lambda trial: _say(console, trial, trials),
        )
        finals = replace(search, episodes=validation).scores(_finalists(found))
    return _content(asked, found, validation, spec.reward.model_dump()) | {
        "finals": [
            {"configuration": configuration, **score.plain()} for configuration, score in finals.items()
        ],
        "chosen": min(finals, key=lambda configuration: finals[configuration].objective),
    }


def _content(
    asked: TuneOptions, found: tuple[Trial, ...], validation: EpisodeSet, reward: dict[str, Any]
) -> dict[str, Any]:
    """The search's space, episodes, and every trial."""
    trials = max(1, asked.steps // asked.training.env_steps)
    return {
        "format": FORMAT,
        "policy": asked.policy,
        "scenario_sha256": scenarios_sha256(asked.training.scenarios, "selvage tune"),
        "meta_contract_sha256": meta_sha256(asked.meta),
        "plugins_sha256": loaded_sha256(),
        "seed": asked.seed,
        "optuna": package_version("optuna"),
        "env_steps": trials * asked.training.env_steps,
        "training": _plain(asked.training),
        "validation": _plain(validation),
        "reward": reward,
        "trials": [asdict(trial) for trial in found],
    }


def _finalists(found: tuple[Trial, ...]) -> list[str]:
    """The default policy, and the best few."""
    best_few = (trial.configuration for trial in best(found, FINALISTS))
    return list(dict.fromkeys([found[0].configuration, *best_few]))


def _plain(episodes: EpisodeSet) -> dict[str, Any]:
    return {
        "scenarios": [str(uri) for uri in episodes.scenarios],
        "seed": episodes.seed,
        "fleets": episodes.fleets,
        "rounds": episodes.rounds,
        "horizon_s": episodes.horizon_s,
        "split": episodes.split,
    }


def _say(console: Console, trial: Trial, trials: int) -> None:
    console.print(f"{trial.number + 1}/{trials} {trial.objective:.5f} {trial.configuration}", highlight=False)
