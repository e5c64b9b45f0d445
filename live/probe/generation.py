"""Generation probes: prompts at block boundaries and in between, budgets, and one probe's result."""

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

#: First numbers of generation prompts in the telemetry record, above those of golden prompts.
FIRST_NUMBER, FIRST_LONG_NUMBER = 1_000_000, 1_500_000
#: Text for a probe that yielded to other requests.
GAVE_WAY = "gave way"
#: Every prompt with this index step ends exactly at a block boundary.
_EDGE_EVERY = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationPlan:
    """One kind of probe: prompts, right answers, budget. limit_s: time limit of each of its requests."""

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
    """Send one probe; never raises for an error of the server. A probe that yielded is no evidence."""
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
    """Prompts of one or two blocks for every slice of ``golden``, with varying residues.

    The residues of a slice's prompts are spread evenly from a random start; every ``_EDGE_EVERY``-th prompt
    has whole blocks only. A prompt is left out if the golden prompts are too short to fill it, or if the
    context cannot hold its second turn.
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
    """Prompts of about two blocks; their answers fill the context except for one block."""
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
    """All tokens of each slice's prompts, concatenated; of their begin tokens only the first is kept."""
    found: dict[str, tuple[int, ...]] = {}
    for one in golden:
        before = found.get(one.slice, one.token_ids[:1])
        found[one.slice] = (*before, *one.token_ids[1:])
    return found
