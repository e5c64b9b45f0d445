"""Inputs of a training run or a search: the hashes that its result prints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from contracts.errors import refusal
from contracts.loading.files import canonical_sha256
from contracts.loading.loader import document_sha256
from contracts.loading.uris import resolve_uri
from contracts.plugins import loaded_sha256
from policies.registry import configuration_sha256
from policies.train.recipe import TrainingRecipe
from scripts.partial_results import world_facts
from simulator.env.base import load_base


def training_inputs(recipe: TrainingRecipe, file: Path | str) -> dict[str, Any]:
    """sha256 of every input of ``recipe``, read from ``file``.

    Scenarios by URI, each with its pool, trace, contract and profiles, which pin their samples; of policies
    the detector, the teacher and the baselines, settings and files. Null: no plug-in was used.
    Raises DocumentError for unreadable files and for unknown policies.
    """
    spec = recipe.spec
    uses = {spec.episodes.detector, spec.behaviour_cloning.teacher, *spec.baselines}
    found = {
        "recipe_sha256": document_sha256(recipe),
        "scenario_sha256": scenarios_sha256(spec.episodes.scenarios, file),
        "policy_sha256": {one: _policy(one, str(file)) for one in sorted(uses)},
        "plugins_sha256": loaded_sha256(),
    }
    return found | {"inputs_sha256": canonical_sha256(found)}


def scenarios_sha256(uris: tuple[str | Path, ...], file: Path | str) -> dict[str, str]:
    """By URI, found from ``file``: sha256 over the scenario and all its inputs."""
    worlds = {str(uri): load_base(resolve_uri(str(uri), file)).compiled for uri in uris}
    return {uri: canonical_sha256(world_facts(world)) for uri, world in worlds.items()}


def _policy(spec: str, file: str) -> str:
    try:
        return configuration_sha256(spec)
    except ValueError as error:
        raise refusal(
            file, "policies with their settings", str(error), "see docs/policies.md", path="spec"
        ) from None
