"""Checks sets of golden prompts: missing splits, and duplicate prompts.

Every prompt counts as one independent sample. A duplicate in a slice repeats the same numbers, so confidence
limits would be too narrow. If the duplicates were in different splits, thresholds, detection and ground truth
would share data. Therefore the first copy is measured and the others are left out.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from pathlib import Path

from contracts.assess.samples import SPLITS
from live.measure.prompts import Prompt, with_ids_and_splits, written_prompts

#: Most lines that a note lists.
_MOST_NAMED = 5
Lines = Sequence[tuple[int, Prompt]]


def load_distinct(path: Path) -> tuple[list[Prompt], list[str]]:
    """The prompts file at ``path`` with each prompt of a slice once, and notes about duplicates.

    Splits are assigned in turn to the remaining prompts. Raises DocumentError that names file and line.
    """
    first: dict[tuple[str, Hashable], tuple[int, Prompt]] = {}
    twice: dict[str, list[int]] = {}
    for line, prompt in written_prompts(path):
        key = (prompt.slice, _content(prompt))
        if key in first:
            twice.setdefault(prompt.slice, []).append(line)
        else:
            first[key] = (line, prompt)
    kept = list(first.values())
    said = [_repeated(name, lines) for name, lines in twice.items()]
    return with_ids_and_splits(path, kept), [*said, *_shared(kept)]


def missing_splits(prompts: Sequence[Prompt]) -> list[str]:
    """For each slice that lacks a split, a note on what it cannot be used for."""
    there = {(prompt.slice, prompt.split) for prompt in prompts}
    slices = dict.fromkeys(prompt.slice for prompt in prompts)
    lacking = {name: [split for split in SPLITS if (name, split) not in there] for name in slices}
    return [
        f"Slice {name} has no {' and no '.join(splits)} prompts: it can be judged, but not simulated."
        for name, splits in lacking.items()
        if splits
    ]


def _content(prompt: Prompt) -> Hashable:
    """The content of ``prompt`` that is sent: its token ids if it has them, else its text."""
    return prompt.token_ids or prompt.text


def _repeated(name: str, lines: Sequence[int]) -> str:
    several = "1 line stands" if len(lines) == 1 else f"each of {len(lines)} lines stands"
    return (
        f"Slice {name}: {several} there a second time ({_named(lines)}) and counts once, because copies are"
        " no further samples."
    )


def _shared(kept: Lines) -> list[str]:
    """A note about prompts in several slices; they stay, because each slice is judged by its own prompts."""
    slices: dict[Hashable, dict[str, int]] = {}
    for line, prompt in kept:
        slices.setdefault(_content(prompt), {})[prompt.slice] = line
    found: dict[tuple[str, ...], list[int]] = {}
    for places in slices.values():
        if len(places) > 1:
            found.setdefault(tuple(places), []).append(max(places.values()))
    return [
        f"Slices {' and '.join(names)} share {len(lines)} of their prompts ({_named(lines)}): each is judged"
        " by its own, and what is pooled over slices knows less than it counts."
        for names, lines in found.items()
    ]


def _named(lines: Sequence[int]) -> str:
    more = ", ..." if len(lines) > _MOST_NAMED else ""
    return f"line{'s' if len(lines) > 1 else ''} {', '.join(map(str, lines[:_MOST_NAMED]))}{more}"
