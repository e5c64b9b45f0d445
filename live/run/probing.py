"""Golden prompts and the answers that are right: asked of a trusted server once, and kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from contracts.errors import DocumentError, MeasurementError, Problem
from contracts.telemetry import SampleRates
from live.measure.endpoint import Endpoint, listed_models
from live.measure.openai_backend import OpenaiBackend
from live.measure.prompts import Prompt, load_prompts
from live.measure.reference_store import stored_top_reference
from live.probe.prober import ProbePlan
from live.probe.schedule import ProbeBudget
from live.run.options import ProbeOptions


def probe_plan(
    options: ProbeOptions, slices: Sequence[str], endpoint: Endpoint, store: Path, kernel: str
) -> ProbePlan:
    """Prompts of ``slices`` with the answers of ``kernel``'s server at ``endpoint``, from ``store`` where
    they are kept for this model: a reference is asked once.

    Raises DocumentError for a slice without prompts and a server that cannot be reached or refuses the key,
    MeasurementError for one that answers without log-probabilities.
    """
    prompts = tokenised(chosen_prompts(options, slices), endpoint)
    backend = OpenaiBackend(endpoint)
    identity = ("live reference", kernel, backend.kernels[0].description)
    found = stored_top_reference(store, backend, prompts, on_prompt=lambda: None, identity=identity)
    return ProbePlan(
        prompts=prompts,
        references=found.scores,
        budget=ProbeBudget(tokens_per_s=options.tokens_per_s),
        limit_s=options.limit_s,
        seed=options.seed,
    )


def chosen_prompts(options: ProbeOptions, slices: Sequence[str]) -> list[Prompt]:
    """The first probe prompts of every slice; DocumentError where one has none."""
    every = [one for one in load_prompts(options.prompts) if one.split == "probe"]
    found = [[one for one in every if one.slice == name][: options.per_slice] for name in slices]
    lacking = [name for name, own in zip(slices, found, strict=True) if not own]
    if lacking:
        hint = "give prompts of every slice that has a home: --prompts FILE"
        problem = Problem(str(options.prompts), 0, "", f"probe prompts of {', '.join(lacking)}", "none", hint)
        raise DocumentError([problem])
    return [one for own in found for one in own]


def sample_rates(options: ProbeOptions, plan: ProbePlan, scrape_s: float) -> SampleRates:
    """How often a replica is looked at under ``plan``."""
    tokens = sum(len(one.token_ids) for one in plan.prompts) / len(plan.prompts)
    return SampleRates(probes_per_s=options.tokens_per_s / tokens, scrape_interval_s=scrape_s)


def tokenised(prompts: Sequence[Prompt], endpoint: Endpoint) -> list[Prompt]:
    """Prompts with token ids, from the server's ``/tokenize`` where the file has none."""
    if all(one.token_ids for one in prompts):
        return list(prompts)
    with endpoint.client() as client:
        return [
            one
            if one.token_ids
            else replace(
                one, token_ids=_ids(endpoint.answer(client, "POST", "/tokenize", _text(one, endpoint)))
            )
            for one in prompts
        ]


def first_model(endpoint: Endpoint) -> str:
    """Name of the first model that the server lists; MeasurementError where it lists none."""
    with endpoint.client() as client:
        names = list(listed_models(endpoint.answer(client, "GET", "/v1/models")))
    if not names:
        raise MeasurementError(f"{endpoint.base}/v1/models: no model is listed; name it: --model")
    return names[0]


def _text(prompt: Prompt, endpoint: Endpoint) -> dict[str, Any]:
    return {"prompt": prompt.text} | ({"model": endpoint.model} if endpoint.model else {})


def _ids(answer: dict[str, Any]) -> tuple[int, ...]:
    tokens = answer.get("tokens")
    if not isinstance(tokens, list) or len(tokens) < 2 or not all(isinstance(one, int) for one in tokens):
        raise MeasurementError(
            "/tokenize: the answer holds no token ids; give token_ids in the prompts' file"
        )
    return tuple(tokens)
