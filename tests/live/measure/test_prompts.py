"""Golden prompts: splits, file format, refusals."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from contracts.assess.samples import SPLITS
from contracts.errors import DocumentError
from live.measure.checkpoint import SHIPPED_MODEL
from live.measure.corpus import CorpusText
from live.measure.prompt_sets import load_distinct
from live.measure.prompts import (
    SHIPPED_PROMPTS,
    Prompt,
    PromptPlan,
    draw_prompts,
    load_prompts,
    save_prompts,
    tokenise,
)


class WordTokenizer:
    """One token per word; decodes to the words' lengths."""

    def encode(self, text: str) -> WordTokenizer:
        self.ids = [len(word) for word in text.split()]
        return self

    def decode(self, ids: list[int], skip_special_tokens: bool = True) -> str:
        assert skip_special_tokens
        return " ".join(map(str, ids))


def documents() -> list[CorpusText]:
    """Four different documents per slice."""
    return [
        CorpusText(
            slice=name, name=f"{name}-{i}", text=" ".join("w" * (1 + j * (i + j) % 97) for j in range(400))
        )
        for name in ("code", "prose", "json", "numbers")
        for i in range(4)
    ]


def test_no_shipped_prompt_is_in_two_splits() -> None:
    """A prompt id occurs once and each slice has prompts in every split."""
    prompts = load_prompts(SHIPPED_PROMPTS)
    assert len({prompt.id for prompt in prompts}) == len(prompts)
    counts = Counter((prompt.slice, prompt.split) for prompt in prompts)
    assert {name for name, _ in counts} == {"code", "prose", "json", "numbers", "long_context"}
    for name in {name for name, _ in counts}:
        assert len({counts[name, split] for split in SPLITS}) == 1
        assert counts[name, "certify"] >= 16


def test_no_two_shipped_prompts_share_their_tokens() -> None:
    """Thresholds, detection and truth share no sample even under different ids."""
    prompts = load_prompts(SHIPPED_PROMPTS)
    assert len({prompt.token_ids for prompt in prompts}) == len(prompts)


def test_long_context_prompts_are_long() -> None:
    """A long-context prompt has at least 384 tokens, any other at most 64."""
    for prompt in load_prompts(SHIPPED_PROMPTS):
        long = prompt.slice == "long_context"
        assert len(prompt.token_ids) >= 384 if long else len(prompt.token_ids) <= 64


def test_prompts_read_back_as_written(tmp_path: Path) -> None:
    """load(save(prompts)) is prompts, and equal prompts give equal hashes."""
    plan = PromptPlan(short_count=2, short_tokens=8, long_count=1, long_tokens=32)
    prompts = draw_prompts(documents(), WordTokenizer(), plan)
    digest = save_prompts(tmp_path / "a.jsonl", prompts)
    assert load_prompts(tmp_path / "a.jsonl") == prompts
    assert save_prompts(tmp_path / "b.jsonl", prompts) == digest
    assert not list(tmp_path.glob("*.tmp"))


def test_a_user_file_gets_ids_and_splits(tmp_path: Path) -> None:
    """Lines without id and split receive unused ids and splits in turn within their slice."""
    path = tmp_path / "mine.jsonl"
    rows = [{"slice": "chat", "text": f"hello {i}"} for i in range(6)] + [
        {"slice": "x", "text": "y", "id": 0}
    ]
    path.write_text("\n".join(json.dumps(row) for row in rows))
    prompts = load_prompts(path)
    assert len({prompt.id for prompt in prompts}) == 7
    chat = [prompt.split for prompt in prompts if prompt.slice == "chat"]
    assert Counter(chat) == dict.fromkeys(SPLITS, 2)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("{not json", "JSON object per line"),
        ("[1]", "a JSON object"),
        ('{"slice": "a"}', "one of text, token_ids"),
        ('{"slice": 3, "text": "a"}', "a slice name"),
        ('{"slice": "a", "token_ids": [1, -2]}', "integers >= 0"),
        ('{"slice": "a", "token_ids": [1, "2"]}', "integers >= 0"),
        ('{"slice": "a", "text": "b", "split": "train"}', "one of certify"),
        ('{"slice": "a", "text": "b", "colour": 1}', "a known key"),
        ('{"slice": "a", "text": "b", "id": true}', "an integer"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, expected: str) -> None:
    """A malformed prompt is refused with file, line and what was expected."""
    path = tmp_path / "bad.jsonl"
    path.write_text('{"slice": "a", "text": "fine"}\n' + line + "\n")
    with pytest.raises(DocumentError) as caught:
        load_prompts(path)
    assert f"{path}:2" in str(caught.value)
    assert expected in str(caught.value)


def test_a_bad_id_is_told_with_its_line(tmp_path: Path) -> None:
    """Blank lines count as lines of the file."""
    path = tmp_path / "bad.jsonl"
    path.write_text('\n\n{"slice": "a", "text": "b", "id": 1}\n\n{"slice": "a", "text": "c", "id": 1}\n')
    with pytest.raises(DocumentError, match=f"{path}:5 id: expected an id used once"):
        load_prompts(path)


@pytest.mark.parametrize("copies", ["behind one another", "behind all"])
def test_a_prompt_that_stands_twice_in_a_slice_counts_once(copies: str, tmp_path: Path) -> None:
    """Copies are left out before splits are given, told with their lines, and no split loses its prompts."""
    path, texts = tmp_path / "mine.jsonl", [f"hello {i}" for i in range(6)]
    rows = [text for text in texts for _ in range(3)] if copies == "behind one another" else texts * 3
    path.write_text("\n".join(json.dumps({"slice": "chat", "text": text}) for text in rows))
    prompts, said = load_distinct(path)
    assert [prompt.text for prompt in prompts] == texts
    assert Counter(prompt.split for prompt in prompts) == dict.fromkeys(SPLITS, 2)
    assert len(said) == 1
    assert "Slice chat: each of 12 lines stands there a second time" in said[0]
    assert ("lines 2, 3, 5" if copies == "behind one another" else "lines 7, 8, 9") in said[0]


def test_a_prompt_of_two_slices_stays_and_is_told(tmp_path: Path) -> None:
    """Each slice is judged by its own prompts; pooled use reports that they are shared."""
    path = tmp_path / "mine.jsonl"
    rows = [("chat", "a"), ("chat", "b"), ("sql", "b"), ("sql", "c")]
    path.write_text("\n".join(json.dumps({"slice": name, "text": text}) for name, text in rows))
    prompts, said = load_distinct(path)
    assert len(prompts) == 4
    assert said == [
        "Slices chat and sql share 1 of their prompts (line 3): each is judged by its own, and what is pooled"
        " over slices knows less than it counts."
    ]


def test_shipped_prompts_stand_once() -> None:
    """Nothing is left out of the shipped file, and nothing said."""
    assert load_distinct(SHIPPED_PROMPTS) == (load_prompts(SHIPPED_PROMPTS), [])


def test_an_id_used_twice_is_refused(tmp_path: Path) -> None:
    """Two prompts with one id could stand in two splits, so the file is refused."""
    path = tmp_path / "twice.jsonl"
    path.write_text('{"slice": "a", "text": "b", "id": 1}\n' * 2)
    with pytest.raises(DocumentError, match="an id used once"):
        load_prompts(path)


def test_too_few_windows_are_said() -> None:
    """A slice with too little held-out text is an error, not a smaller slice."""
    plan = PromptPlan(short_count=1000, short_tokens=8, long_count=1, long_tokens=32)
    with pytest.raises(ValueError, match="slice code"):
        draw_prompts(documents(), WordTokenizer(), plan)


@pytest.mark.needs("transformers")
@pytest.mark.parametrize(
    ("prompt", "wanted"),
    [
        (Prompt(id=7, slice="code", split="probe", document="", token_ids=(0, 2048), text=""), "vocabulary"),
        (Prompt(id=7, slice="code", split="probe", document="", token_ids=(0,), text=""), "two tokens"),
        (Prompt(id=7, slice="code", split="probe", document="", token_ids=(1,) * 4000, text=""), "positions"),
    ],
)
def test_prompts_that_the_model_cannot_score_are_refused(prompt: Prompt, wanted: str) -> None:
    """Tokens outside the vocabulary, a single token and too long a prompt are named before anything runs."""
    with pytest.raises(DocumentError, match=wanted) as caught:
        tokenise([prompt], SHIPPED_MODEL, keep_ids=True)
    assert caught.value.problems[0].path == "prompt 7"
