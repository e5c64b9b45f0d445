"""Golden prompts, their right answers from a trusted server, and the pace of probes.

A replica with fewer than ``CROWDED`` requests has spare capacity, and is probed at its whole budget. Above
that, probes compete with users, so they use at most ``SHARE`` of the tokens that the replica serves. Measured
on the shipped model: a token of a prefill probe takes at most 2.8 times the CPU time that a saturated replica
spends on a users' token, log-probabilities included, and a scrape takes 5.3 ms (docs/live.md). So a share of
0.005 costs at most 1.4 %, and with a scrape each second less than 2 % of a core.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from contracts.errors import MeasurementError, refusal
from contracts.telemetry import SampleRates
from live.measure.backends.openai_backend import OpenaiBackend
from live.measure.endpoint import Endpoint, listed_models
from live.measure.prompts import Prompt, load_prompts
from live.measure.reference_store import stored_top_reference
from live.observe.metrics import EngineReading
from live.probe.prober import ProbePlan
from live.probe.schedule import ProbeBudget
from live.run.options import ProbeOptions


def probe_plan(
    options: ProbeOptions, slices: Sequence[str], endpoint: Endpoint, store: Path, kernel: str
) -> ProbePlan:
    """Prompts of ``slices`` with the answers of ``kernel``'s server at ``endpoint``.

    Stored answers for this model are read from ``store``, so a reference is asked once. Raises DocumentError
    for a slice without prompts, and for a server that is unreachable or refuses the key. Raises
    MeasurementError for answers without log-probabilities.
    """
    prompts = tokenised(chosen_prompts(options, slices), endpoint)
    backend = OpenaiBackend(endpoint)
    with endpoint.client() as client:
        identity = ("live reference", kernel, *endpoint.model_identity(client))
    found = stored_top_reference(store, backend, prompts, on_prompt=lambda: None, identity=identity)
    return ProbePlan(
        prompts=prompts,
        references=found.scores,
        budget=ProbeBudget(tokens_per_s=options.tokens_per_s),
        limit_s=options.limit_s,
        seed=options.seed,
    )


def chosen_prompts(options: ProbeOptions, slices: Sequence[str]) -> list[Prompt]:
    """The first probe prompts of every slice; DocumentError for a slice without any."""
    every = [one for one in load_prompts(options.prompts) if one.split == "probe"]
    found = [[one for one in every if one.slice == name][: options.per_slice] for name in slices]
    lacking = [name for name, own in zip(slices, found, strict=True) if not own]
    if lacking:
        hint = "give prompts of every slice that has a home: --prompts FILE"
        raise refusal(options.prompts, f"probe prompts of {', '.join(lacking)}", "none", hint)
    return [one for own in found for one in own]


def sample_rates(options: ProbeOptions, plan: ProbePlan, scrape_s: float) -> SampleRates:
    """How often a replica is probed and scraped under ``plan``."""
    tokens = sum(len(one.token_ids) for one in plan.prompts) / len(plan.prompts)
    return SampleRates(probes_per_s=options.tokens_per_s / tokens, scrape_interval_s=scrape_s)


def tokenised(prompts: Sequence[Prompt], endpoint: Endpoint) -> list[Prompt]:
    """Prompts with token ids; missing ones are taken from the server's ``/tokenize``."""
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
    """Name of the first model that the server lists; MeasurementError if it lists none."""
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


#: Running and waiting requests from which on a replica is crowded.
CROWDED = 16.0
#: Largest ratio of probe tokens to the tokens that a crowded replica serves.
SHARE = 0.005
#: Least part of its budget at which a replica is probed: a replica that is not probed is unknown.
LEAST_PACE = 0.1
_TOKENS = ("prompt_tokens", "generation_tokens")


@dataclass(slots=True)
class ProbeLoadLimiter:
    """Listens to scrapes. budget_tokens_per_s: of all probes of a replica at full pace."""

    budget_tokens_per_s: float
    _last: dict[str, EngineReading] = field(default_factory=dict)

    def paces(self, readings: Mapping[str, EngineReading]) -> dict[str, float]:
        """Replica -> part of the budget, ``LEAST_PACE`` to 1, for the replicas that were scraped.

        Missing counters, the first scrape of a process and a decreased counter give the full pace.
        """
        found = {name: self._pace(self._last.get(name), now) for name, now in readings.items()}
        self._last |= readings
        return found

    def _pace(self, last: EngineReading | None, now: EngineReading) -> float:
        requests = now.gauges.get("running", 0.0) + now.gauges.get("waiting", 0.0)
        if last is None or not requests >= CROWDED:
            return 1.0
        served = served_tokens_per_s(last, now)
        if served is None:
            return 1.0
        return min(1.0, max(LEAST_PACE, SHARE * served / self.budget_tokens_per_s))


def served_tokens_per_s(last: EngineReading, now: EngineReading) -> float | None:
    """Prompt and answer tokens per second between two scrapes; None if unknown."""
    passed_s = now.read_at_s - last.read_at_s
    if not all(name in one.counters for name in _TOKENS for one in (last, now)) or not passed_s > 0.0:
        return None
    risen = [now.counters[name] - last.counters[name] for name in _TOKENS]
    return sum(risen) / passed_s if min(risen) >= 0.0 else None
