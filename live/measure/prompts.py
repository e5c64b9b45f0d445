"""Golden prompts: fixed token ids per slice, split by id into certify, probe and traffic.

File format: JSON lines, one prompt each, sorted by id::

    {"id": 7, "slice": "code", "split": "probe", "document": "abc.py@512", "token_ids": [...], "text": "..."}

A user's file needs ``slice`` and one of ``text`` or ``token_ids`` per line; ids and splits are given to
prompts that have none, splits in turn within each slice, so each slice has all three. Run
``python -m live.measure.prompts --model DIR --out FILE`` to draw prompts from held-out documents.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from contracts.assess.samples import SPLITS
from contracts.documents.envelope import INT64_MAX
from contracts.errors import DocumentError, Problem, refusal
from contracts.loading.files import write_pinned
from contracts.loading.untrusted import json_line_problem, json_of, unique_keys
from contracts.regular_files import TEXT_BYTES, read_regular_text
from contracts.rng import stream
from live.measure.checkpoint import read_config, read_tokenizer
from live.measure.corpus import SLICES, CorpusText, build_corpus

SHIPPED_PROMPTS = Path(__file__).resolve().parents[2] / "contracts" / "library" / "profiles" / "prompts.jsonl"
LONG_SLICE = "long_context"
_MOST_LINES = 100_000
#: Pattern that documents allow for the name of a slice.
_SLICE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One golden prompt. ``token_ids`` starts with the begin token; empty until tokenised."""

    id: int
    slice: str
    split: str
    document: str
    token_ids: tuple[int, ...]
    text: str

    @property
    def positions(self) -> int:
        """Positions with a next token, hence with a log-probability: one less than the tokens."""
        return len(self.token_ids) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptPlan:
    """How many prompts to draw. Counts are per slice and split; tokens include the begin token."""

    seed: int = 0
    short_count: int = 48
    short_tokens: int = 64
    long_count: int = 20
    long_tokens: int = 448


def draw_prompts(documents: Sequence[CorpusText], tokenizer: Any, plan: PromptPlan) -> list[Prompt]:
    """Windows of held-out ``documents``, spread over documents, ids in drawing order."""
    prompts: list[Prompt] = []
    for name in (*SLICES, LONG_SLICE):
        long = name == LONG_SLICE
        wanted = (plan.long_count if long else plan.short_count) * len(SPLITS)
        tokens = (plan.long_tokens if long else plan.short_tokens) - 1
        members = [d for d in documents if d.slice in (("code", "prose") if long else (name,))]
        windows = _distinct(_windows(members, tokenizer, tokens))
        if len(windows) < wanted:
            raise ValueError(f"slice {name}: {len(windows)} windows of {tokens} tokens, {wanted} wanted")
        order = stream(plan.seed, "prompts", name).permutation(wanted)
        for turn, index in enumerate(order):
            place, ids = windows[index]
            text = str(tokenizer.decode(list(ids), skip_special_tokens=True))
            number, split = len(prompts), SPLITS[turn % len(SPLITS)]
            prompts.append(
                Prompt(id=number, slice=name, split=split, document=place, token_ids=(0, *ids), text=text)
            )
    return prompts


def _windows(
    documents: Sequence[CorpusText], tokenizer: Any, tokens: int
) -> list[tuple[str, tuple[int, ...]]]:
    """Disjoint windows: one of every document first, then a second one of each, and so on."""
    rounds: dict[int, list[tuple[str, tuple[int, ...]]]] = {}
    for document in documents:
        ids = tokenizer.encode(document.text).ids
        for turn, start in enumerate(range(0, len(ids) - tokens, 2 * tokens)):
            window = tuple(int(token) for token in ids[start : start + tokens])
            rounds.setdefault(turn, []).append((f"{document.name}@{start}", window))
    return [window for turn in sorted(rounds) for window in rounds[turn]]


def _distinct(windows: list[tuple[str, tuple[int, ...]]]) -> list[tuple[str, tuple[int, ...]]]:
    """The first window of each content, because some generated documents contain equal windows."""
    first: dict[tuple[int, ...], str] = {}
    for place, ids in windows:
        first.setdefault(ids, place)
    return [(place, ids) for ids, place in first.items()]


def dump_prompts(prompts: Sequence[Prompt]) -> str:
    """The JSON lines of ``prompts``."""
    return "".join(
        json.dumps(
            {
                "id": prompt.id,
                "slice": prompt.slice,
                "split": prompt.split,
                "document": prompt.document,
                "token_ids": list(prompt.token_ids),
                "text": prompt.text,
            }
        )
        + "\n"
        for prompt in prompts
    )


def save_prompts(path: Path, prompts: Sequence[Prompt]) -> str:
    """Write the prompts file atomically; returns its sha256."""
    return write_pinned(path, dump_prompts(prompts).encode())


def load_prompts(path: Path) -> list[Prompt]:
    """Read a prompts file; ids and splits are filled in. Raises DocumentError naming file and line."""
    return with_ids_and_splits(path, written_prompts(path))


def written_prompts(path: Path) -> list[tuple[int, Prompt]]:
    """Line number and prompt of each line of a prompts file, as written: id -1 and split "" if missing.

    Raises DocumentError that names file and line.
    """
    text = read_regular_text(path, TEXT_BYTES).removesuffix("\n")
    if (found := text.count("\n") + 1) > _MOST_LINES:
        raise _refusal(path, 0, "", f"at most {_MOST_LINES} lines", str(found))
    lines = text.split("\n")
    prompts: list[tuple[int, Prompt]] = []
    problems: list[Problem] = []
    for number, line in enumerate(lines, 1):
        try:
            prompts += [(number, _parse(path, number, line))] if line.strip() else []
        except DocumentError as error:
            problems += error.problems
    if problems:
        raise DocumentError(problems[:20])
    if not prompts:
        raise _refusal(path, 0, "", "at least one prompt", "none")
    return prompts


def tokenise(prompts: Sequence[Prompt], model: Path, *, keep_ids: bool) -> list[Prompt]:
    """Prompts with token ids of the model's own tokenizer; with ``keep_ids``, given ids stay."""
    tokenizer, settings = read_tokenizer(model), read_config(model)
    begin = settings.get("bos_token_id")
    lead = [begin] if isinstance(begin, int) else []
    done: list[Prompt] = []
    for prompt in prompts:
        if prompt.token_ids and (keep_ids or not prompt.text):
            done.append(prompt)
            continue
        ids = [*lead, *tokenizer.encode(prompt.text, add_special_tokens=False).ids]
        done.append(replace(prompt, token_ids=tuple(ids)))
    problems = [problem for prompt in done if (problem := _misfit(prompt, settings))]
    if problems:
        raise DocumentError(problems[:20])
    return done


def _misfit(prompt: Prompt, settings: dict[str, Any]) -> Problem | None:
    """Why the model with these ``settings`` cannot score ``prompt``; None if it can."""
    most, words = settings.get("max_position_embeddings"), settings.get("vocab_size")
    count, largest = len(prompt.token_ids), max(prompt.token_ids, default=0)
    if prompt.positions < 1:
        wanted, found = "two tokens or more", f"{count}"
    elif isinstance(words, int) and largest >= words:
        wanted, found = f"token ids below the model's vocabulary of {words}", f"{largest}"
    elif isinstance(most, int) and count > most:
        wanted, found = f"at most the model's {most} positions", f"{count} tokens"
    else:
        return None
    return Problem("prompts", 0, f"prompt {prompt.id}", wanted, found, "correct or leave out this prompt")


def _parse(path: Path, number: int, line: str) -> Prompt:
    try:
        row = json_of(line, unique_keys)
    except (ValueError, RecursionError) as error:
        raise _refusal(path, number, "", "one JSON object per line", json_line_problem(error)) from None
    if not isinstance(row, dict):
        raise _refusal(path, number, "", "a JSON object", type(row).__name__)
    for key, kind, wanted in _FIELDS:
        if key in row and (not isinstance(row[key], kind) or isinstance(row[key], bool)):
            raise _refusal(path, number, key, wanted, repr(row[key])[:60])
    unknown = sorted(set(row) - {key for key, _, _ in _FIELDS})
    if unknown:
        raise _refusal(path, number, unknown[0], "a known key", "an unknown one")
    if not 0 <= row.get("id", 0) <= INT64_MAX:
        raise _refusal(path, number, "id", f"0 to {INT64_MAX}", f"{row['id']}"[:40])
    ids = row.get("token_ids", [])
    if any(not isinstance(token, int) or isinstance(token, bool) or token < 0 for token in ids):
        raise _refusal(path, number, "token_ids", "integers >= 0", repr(ids)[:60])
    if not row.get("slice") or not (ids or row.get("text")):
        given = ", ".join(key if row[key] else f"{key} (empty)" for key in sorted(row))
        raise _refusal(path, number, "", "slice and one of text, token_ids", given)
    if not _SLICE.fullmatch(row["slice"]):
        wanted = "a name of letters, digits, '-', '_' and '.', at most 63, a letter or digit at both ends"
        raise _refusal(path, number, "slice", wanted, repr(row["slice"])[:80])
    return Prompt(
        id=row.get("id", -1),
        slice=row["slice"],
        split=row.get("split", ""),
        document=row.get("document", ""),
        token_ids=tuple(ids),
        text=row.get("text", ""),
    )


_FIELDS: tuple[tuple[str, type, str], ...] = (
    ("id", int, "an integer"),
    ("slice", str, "a slice name"),
    ("split", str, f"one of {', '.join(SPLITS)}"),
    ("document", str, "text"),
    ("token_ids", list, "a list of integers"),
    ("text", str, "text"),
)


def with_ids_and_splits(path: Path, prompts: Sequence[tuple[int, Prompt]]) -> list[Prompt]:
    """``prompts`` of lines of the file at ``path``, by id; missing ids and splits are assigned.

    Raises DocumentError for a duplicate id and for an unknown split.
    """
    taken = {prompt.id for _, prompt in prompts}
    fresh = (number for number in range(len(prompts) + len(taken)) if number not in taken)
    turns: dict[str, Iterator[str]] = {}
    done: list[Prompt] = []
    seen: set[int] = set()
    for line, prompt in prompts:
        turn = turns.setdefault(prompt.slice, _in_turn())
        split = prompt.split or next(turn)
        number = prompt.id if prompt.id >= 0 else next(fresh)
        if split not in SPLITS:
            raise _refusal(path, line, "split", f"one of {', '.join(SPLITS)}", split)
        if number in seen:
            raise _refusal(path, line, "id", "an id used once", str(number))
        seen.add(number)
        done.append(replace(prompt, id=number, split=split))
    return sorted(done, key=lambda prompt: prompt.id)


def _in_turn() -> Iterator[str]:
    while True:
        yield from SPLITS


def _refusal(path: Path, line: int, key: str, expected: str, actual: str) -> DocumentError:
    return refusal(path, expected, actual, "see the prompts file in docs/profiles.md", path=key, line=line)


def main(arguments: list[str] | None = None) -> None:
    """Draw the shipped prompts from the held-out documents of the training corpus."""
    from tokenizers import Tokenizer

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=SHIPPED_PROMPTS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    tokenizer: Any = Tokenizer.from_file(str(options.model / "tokenizer.json"))
    plan = PromptPlan(seed=options.seed)
    save_prompts(options.out, draw_prompts(build_corpus(options.seed).held_out, tokenizer, plan))


if __name__ == "__main__":
    main()
