"""Probes that generate, put together: prompts over block edges and residues, budgets, one probe's result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from contracts.rng import stream
from contracts.telemetry import ProbeOutcome
from live.bounded_http import monotonic_unix_s
from live.measure.prompts import Prompt
from live.probe.answers import YieldedError
from live.probe.golden_answers import GoldenAnswers
from live.probe.kinds import Asking, GenerationPrompt, ProbeKind
from live.probe.prefill import ProbeAnswer, ProbeResult, timed_outcome
from live.probe.schedule import ProbeBudget

#: Numbers of generation prompts in the telemetry record begin here, above those of golden prompts.
FIRST_NUMBER, FIRST_LONG_NUMBER = 1_000_000, 1_500_000
#: What is told of a probe that made room for others.
GAVE_WAY = "gave way"
#: Every so many-th prompt ends exactly at a block's edge.
_EDGE_EVERY = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationPlan:
    """One kind: what it asks, what is right, what it may cost. limit_s: of each of its requests."""

    kind: ProbeKind
    prompts: Sequence[GenerationPrompt]
    golden: GoldenAnswers
    budget: ProbeBudget
    limit_s: float

    def __post_init__(self) -> None:
        if not self.prompts or not self.limit_s > 0.0:
            raise ValueError(f"{self.kind.name}: expected prompts and a limit > 0, got {self.limit_s:g} s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Lengths of generation probes in tokens. block: of the server's prefix cache; context: of its model."""

    block: int = 16
    context: int = 2048
    answer: int = 24
    per_slice: int = 8
    long_per_slice: int = 1
    seed: int = 0


def generate(plan: GenerationPlan, prompt: GenerationPrompt, asking: Asking) -> ProbeAnswer:
    """Ask once; never raises for what a server does. A probe that gave way is no evidence."""
    try:
        return timed_outcome(lambda: ProbeResult(None, plan.kind.probe(prompt, asking)), plan.limit_s)
    except YieldedError:
        return ProbeAnswer(
            sent_at_s=monotonic_unix_s(),
            latency_ms=float("nan"),
            outcome=ProbeOutcome.NONE,
            values=None,
            told=GAVE_WAY,
        )


def short_prompts(golden: Sequence[Prompt], lengths: Lengths) -> list[GenerationPrompt]:
    """Prompts of one or two blocks of every slice of ``golden``, over the residues by turns.

    The residues of a slice's prompts are spread evenly from a drawn start; every ``_EDGE_EVERY``-th prompt is
    of whole blocks. Those that golden prompts cannot fill, or whose second turn the context does not hold,
    are left out.
    """
    found: list[GenerationPrompt] = []
    for name, tokens in _joined(golden).items():
        rng = stream(lengths.seed, "generation_lengths", name)
        start = int(rng.integers(lengths.block))
        for turn in range(lengths.per_slice):
            residue = (start + turn * lengths.block // lengths.per_slice) % lengths.block
            residue = 0 if turn % _EDGE_EVERY == _EDGE_EVERY - 1 else residue
            length = lengths.block * int(rng.integers(1, 3)) + residue
            at = 1 + turn * lengths.block
            if 2 * (length + lengths.answer) < lengths.context and at + length <= len(tokens):
                ids = (tokens[0], *tokens[at : at + length - 1])
                found.append(_prompt(FIRST_NUMBER + len(found), name, ids, lengths.answer))
    return found


def long_prompts(golden: Sequence[Prompt], lengths: Lengths) -> list[GenerationPrompt]:
    """Prompts of about two blocks whose answers fill the context but for one block."""
    found: list[GenerationPrompt] = []
    for name, tokens in _joined(golden).items():
        for turn in range(lengths.long_per_slice):
            length = 2 * lengths.block + 1 + turn
            answer = lengths.context - length - lengths.block
            if answer > lengths.answer and length <= len(tokens):
                found.append(_prompt(FIRST_LONG_NUMBER + len(found), name, tokens[:length], answer))
    return found


def _prompt(number: int, name: str, token_ids: tuple[int, ...], answer: int) -> GenerationPrompt:
    return GenerationPrompt(number=number, slice=name, token_ids=token_ids, max_tokens=answer)


def _joined(golden: Sequence[Prompt]) -> dict[str, tuple[int, ...]]:
    """All tokens of each slice's prompts, one after the other; of what begins each, the first alone."""
    found: dict[str, tuple[int, ...]] = {}
    for one in golden:
        before = found.get(one.slice, one.token_ids[:1])
        found[one.slice] = (*before, *one.token_ids[1:])
    return found
