"""Generation probes of a run: the kinds that the contract needs, their prompts, their share of tokens."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import httpx

from contracts.documents import KernelContract
from contracts.errors import MeasurementError
from contracts.metrics import GENERATION_COLUMNS, metric
from live.bounded_http import whole_answer
from live.measure.endpoint import Endpoint
from live.measure.prompts import Prompt
from live.probe.answers import Line
from live.probe.generation import GenerationPlan, Lengths, long_prompts, short_prompts
from live.probe.golden_answers import golden_answers
from live.probe.kinds import ProbeOffer, offers_for
from live.probe.schedule import Lane, ProbeBudget
from live.run.options import ProbeOptions

#: vLLM's block size of the prefix cache on GPUs, and a context length, if a server does not state them.
_BLOCK, _CONTEXT = 16, 2048
_SAYS_S = 10.0
_BLOCK_SIZE = re.compile(r'^vllm:cache_config_info\{[^}]*\bblock_size="(\d+)"', re.MULTILINE)


def generation_columns(contract: KernelContract) -> tuple[str, ...]:
    """Columns of generation probes that clauses of ``contract`` are judged by."""
    found = [metric(clause.metric).column(clause.estimator) for clause in contract.spec.clauses]
    return tuple(name for name in dict.fromkeys(found) if name in GENERATION_COLUMNS)


def generation_plans(
    options: ProbeOptions,
    columns: Sequence[str],
    golden: Sequence[Prompt],
    endpoint: Endpoint,
    store: Path,
    kernel: str,
) -> tuple[GenerationPlan, ...]:
    """Plans of the kinds that measure ``columns``; no requests are sent if there are none.

    The right answers are those of ``kernel``'s server at ``endpoint``, requested once and kept in ``store``.
    Raises MeasurementError if no prompt fits its context, or an answer does not end well.
    """
    offers = offers_for(columns)
    if not offers:
        return ()
    with endpoint.client() as client:
        line = Line(client, endpoint.base, endpoint.model)
        lengths = server_lengths(line, options)
        short, long = short_prompts(golden, lengths), long_prompts(golden, lengths)
        if not short:
            raise MeasurementError(
                f"{endpoint.base}: no generation probe of {lengths.block} tokens or more fits: give more"
                " prompts of each slice, or drop the clauses on generations"
            )
        questions = [one.question() for one in short]
        identity = (kernel, *endpoint.model_identity(client), str(lengths))
        kept = golden_answers(store, line, questions, identity)
    prompts = {Lane.SHORT: short, Lane.LONG: long}
    shares = sum(offer.share for offer in offers)
    return tuple(
        GenerationPlan(
            kind=offer.kind,
            prompts=prompts[offer.kind.lane],
            golden=kept,
            budget=ProbeBudget(tokens_per_s=options.generation_tokens_per_s * offer.share / shares),
            limit_s=_limit_s(offer, options),
        )
        for offer in offers
        if prompts[offer.kind.lane]
    )


def server_lengths(line: Line, options: ProbeOptions) -> Lengths:
    """Block size and context length as the server at ``line`` states them, else defaults."""
    block = _BLOCK_SIZE.search(_text(line, "/metrics"))
    context = re.search(r'"max_model_len":\s*(\d+)', _text(line, "/v1/models"))
    positions = int(context.group(1)) if context else _CONTEXT
    return Lengths(
        block=int(block.group(1)) if block else _BLOCK,
        context=min(positions, options.long_tokens),
        seed=options.seed,
    )


def _text(line: Line, path: str) -> str:
    """The server's answer at ``path``; "" if there is none."""
    try:
        answer = whole_answer(line.client, "GET", f"{line.url}{path}", _SAYS_S)
    except httpx.HTTPError:
        return ""
    return answer.text if answer.status_code == httpx.codes.OK else ""


def _limit_s(offer: ProbeOffer, options: ProbeOptions) -> float:
    return options.long_limit_s if offer.kind.lane is Lane.LONG else options.limit_s
