"""The prompts of a comparison: the shipped ones, more of the same kind, or a user's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from contracts.errors import refusal
from live.measure.corpus import CorpusText, build_corpus
from live.measure.prompt_sets import load_distinct
from live.measure.prompts import SHIPPED_PROMPTS, Prompt, PromptPlan, draw_prompts, tokenise

#: Documents per slice from the corpus's training part, for each multiple of the shipped prompts.
_MORE_DOCUMENTS = 60


def kld_prompts(
    positions: int,
    model: Path,
    *,
    own: Path | None,
    other_model: bool,
    say: Callable[[str], None] = lambda line: None,  # noqa: ARG005 - the default reports nothing
) -> list[Prompt]:
    """Prompts of at least ``positions`` positions (0: all of the file), spread over slices.

    The shipped file is used if it is large enough; otherwise windows of the corpus, including its training
    part, because numerical differences do not depend on what the model has seen. A user's ``own`` file is
    used as far as it goes, with each distinct prompt of a slice once; ``say`` reports duplicates. Raises
    DocumentError for prompts that the model cannot score.
    """
    listed, repeated = load_distinct(own or SHIPPED_PROMPTS)
    for line in repeated:
        say(line)
    if own is None and positions > sum(prompt.positions for prompt in listed):
        listed = _drawn(positions, sum(prompt.positions for prompt in listed), model)
    ready = tokenise(listed, model, keep_ids=own is not None or not other_model)
    return spread(ready, positions) if positions else ready


def spread(prompts: Sequence[Prompt], positions: int) -> list[Prompt]:
    """The first prompts of every slice, always from the slice with the fewest positions, until enough."""
    queues: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        queues.setdefault(prompt.slice, []).append(prompt)
    taken = dict.fromkeys(queues, 0)
    chosen: list[Prompt] = []
    while queues and sum(taken.values()) < positions:
        name = min(queues, key=lambda each: taken[each])
        prompt = queues[name].pop(0)
        chosen.append(prompt)
        taken[name] += prompt.positions
        if not queues[name]:
            del queues[name]
    return sorted(chosen, key=lambda prompt: prompt.id)


def _drawn(positions: int, shipped: int, model: Path) -> list[Prompt]:
    """Prompts drawn as the shipped ones were, but more."""
    from tokenizers import Tokenizer

    tokenizer: Any = Tokenizer.from_file(str(model / "tokenizer.json"))
    factor = -(-positions // shipped)
    plan = PromptPlan()
    corpus = build_corpus(plan.seed)
    more = replace(plan, short_count=factor * plan.short_count, long_count=factor * plan.long_count)
    documents = [*corpus.held_out, *_few(corpus.train, factor * _MORE_DOCUMENTS)]
    try:
        return draw_prompts(documents, tokenizer, more)
    except ValueError as error:
        step = "ask for fewer, or give a file of your own by --prompts"
        raise refusal("--positions", "as many as the corpus has", f"{positions}: {error}", step) from None


def _few(documents: Sequence[CorpusText], most: int) -> list[CorpusText]:
    """The first ``most`` documents of every slice, because tokenising all of them takes minutes."""
    seen: dict[str, int] = {}
    few: list[CorpusText] = []
    for document in documents:
        seen[document.slice] = seen.get(document.slice, 0) + 1
        few += [document] if seen[document.slice] <= most else []
    return few
