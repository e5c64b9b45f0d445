"""``selvage tune``: search the settings of a baseline on training episodes, choose on validation episodes."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from contracts.errors import DocumentError, Problem
from contracts.loading.uris import resolve_uri
from policies.train.recipe import RewardRecipe, load_recipe
from policies.train.tune import SPACES, Trial, best, tune
from scripts.output import ready_folder, write_json
from scripts.provenance import git_sha, package_version
from scripts.train.validation import EpisodeSet, ValidationScore, draw, evaluate

#: The recipe whose reward is the objective and whose validation seed chooses: the shipped policy's.
RECIPE = "package:contracts/library/recipes/routing.yaml"
#: Settings that go on from training to validation episodes; the policy as it stands goes with them.
FINALISTS = 5
FORMAT = 1


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(name="tune")(tune_command)


def tune_command(
    policy: Annotated[str, typer.Argument(help="Baseline to tune, e.g. hysteresis.")],
    out: Annotated[Path, typer.Option("--out", help="File for the result (JSON).")],
    steps: Annotated[int, typer.Option(help="Control ticks of training episodes to spend.")] = 1_056_000,
    seed: Annotated[int, typer.Option(help="Of the search and of the training episodes.")] = 1,
    fleets: Annotated[int, typer.Option(help="Training episodes per trial.")] = 96,
    horizon_s: Annotated[float, typer.Option(help="Length of an episode, s.")] = 301.0,
    recipe: Annotated[str, typer.Option(help="Training recipe that states the objective.")] = RECIPE,
) -> None:
    """Spend ``--steps`` ticks on trials, choose between the best few and the defaults on validation episodes.

    Equal arguments give equal results.
    """
    if policy not in SPACES:
        problem = Problem("selvage tune", 0, "POLICY", " or ".join(sorted(SPACES)), repr(policy), "name one")
        raise DocumentError([problem])
    training = EpisodeSet(seed=seed, fleets=fleets, horizon_s=horizon_s)
    words = ["selvage", "tune", policy, "--steps", str(steps), "--seed", str(seed)]
    words += ["--fleets", str(fleets), "--horizon-s", f"{horizon_s:g}", "--recipe", recipe, "--out", "FILE"]
    content = run(policy, training, steps, seed, recipe, Console(stderr=True)) | {
        "command": shlex.join(words),
        "git_sha": git_sha(),
    }
    ready_folder(out.parent)
    write_json(out, content, indent=1)
    typer.echo(content["chosen"])


def run(
    policy: str, training: EpisodeSet, steps: int, seed: int, recipe: str, console: Console
) -> dict[str, Any]:
    """Content of the result file."""
    spec = load_recipe(resolve_uri(recipe, "selvage tune")).spec
    trials = max(1, steps // training.env_steps)
    drawn = draw(training)
    found = tune(
        policy,
        lambda configuration: evaluate(configuration, drawn, spec.reward).objective,
        trials=trials,
        seed=seed,
        report=lambda trial: _say(console, trial, trials),
    )
    check = spec.validation
    validation = EpisodeSet(
        seed=check.seed, fleets=check.episodes, horizon_s=check.horizon_s, scenarios=training.scenarios
    )
    finals = _finals(found, validation, spec.reward)
    return {
        "format": FORMAT,
        "policy": policy,
        "seed": seed,
        "optuna": package_version("optuna"),
        "env_steps": trials * training.env_steps,
        "training": _plain(training),
        "validation": _plain(validation),
        "reward": spec.reward.model_dump(),
        "trials": [asdict(trial) for trial in found],
        "finals": [
            {"configuration": configuration, **score.plain()} for configuration, score in finals.items()
        ],
        "chosen": min(finals, key=lambda configuration: finals[configuration].objective),
    }


def _finals(
    found: tuple[Trial, ...], validation: EpisodeSet, reward: RewardRecipe
) -> dict[str, ValidationScore]:
    """ValidationScore on the validation episodes of the policy as it stands and of the best few."""
    configurations = dict.fromkeys(
        [found[0].configuration, *(trial.configuration for trial in best(found, FINALISTS))]
    )
    drawn = draw(validation)
    return {configuration: evaluate(configuration, drawn, reward) for configuration in configurations}


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
