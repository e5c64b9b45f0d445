"""The artifact register: append-only, chained, and closed to builds without a passing verdict."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.assess.register import (
    PromotionRefusedError,
    RegisterEntry,
    Submission,
    append_entry,
    read_register,
)
from contracts.errors import DocumentError
from contracts.loading.files import GENESIS, canonical_sha256, canonical_text

SUBMISSION = Submission(
    checkpoint_sha256="a" * 64,
    kernel="bf16",
    kernel_sha256="b" * 64,
    contract="serving-pool",
    contract_sha256="c" * 64,
    verdict="pass",
    evidence_sha256="d" * 64,
    recorded_at="2026-01-01T00:00:00+00:00",
    verdict_source="evaluated",
    promote=True,
)


def filled(path: Path, count: int) -> list[RegisterEntry]:
    """A register of ``count`` entries."""
    return [append_entry(path, replace(SUBMISSION, kernel=f"k{place}")) for place in range(count)]


def test_entries_are_read_in_order_and_chained(tmp_path: Path) -> None:
    """Appended entries are read oldest first, each with the hash of the one before."""
    path = tmp_path / "deep" / "register.jsonl"
    entries = filled(path, 3)
    assert list(read_register(path)) == entries
    assert [entry.previous_sha256 for entry in entries] == [GENESIS, *(e.entry_sha256 for e in entries[:2])]
    assert [entry.sequence for entry in entries] == [1, 2, 3]
    assert not list(path.parent.glob("*.tmp"))


def test_appending_changes_no_earlier_byte(tmp_path: Path) -> None:
    """The old bytes are a prefix of the new ones."""
    path = tmp_path / "register.jsonl"
    filled(path, 2)
    before = path.read_bytes()
    append_entry(path, SUBMISSION)
    assert path.read_bytes().startswith(before)


@pytest.mark.parametrize("verdict", ["fail", "inconclusive"])
def test_no_promotion_without_a_pass(verdict: Any, tmp_path: Path) -> None:
    """A failed or undecided build is not promoted, and nothing is written.

    With a reason and an author it is promoted, and both are recorded.
    """
    path = tmp_path / "register.jsonl"
    bad = replace(SUBMISSION, verdict=verdict)
    for reason, author in (("", "Ada"), ("   ", "Ada"), ("a reason", ""), ("a reason", " ")):
        with pytest.raises(PromotionRefusedError, match="--override-reason"):
            append_entry(path, replace(bad, override_reason=reason, override_author=author))
    assert not path.exists()
    entry = append_entry(path, replace(bad, override_reason="the other is worse", override_author="Ada"))
    assert (entry.decision, entry.verdict) == ("promoted", verdict)
    assert (entry.override_reason, entry.override_author) == ("the other is worse", "Ada")


def test_a_claimed_pass_promotes_nothing(tmp_path: Path) -> None:
    """A pass without an evaluation is recorded as claimed, and promoted only by an override."""
    path = tmp_path / "register.jsonl"
    claim = replace(SUBMISSION, verdict_source="claimed")
    with pytest.raises(PromotionRefusedError, match="claimed"):
        append_entry(path, claim)
    entry = append_entry(path, replace(claim, promote=False))
    assert (entry.decision, entry.verdict_source) == ("recorded", "claimed")


def rehashed(content: dict[str, Any]) -> str:
    """A line of ``content`` with a valid hash, as a forger would write it."""
    rest = {key: value for key, value in content.items() if key != "entry_sha256"}
    return canonical_text({**rest, "entry_sha256": canonical_sha256(rest)})


@pytest.mark.parametrize(
    "change", [{"verdict": "splendid"}, {"decision": "blessed"}, {"verdict_source": "dreamt"}]
)
def test_values_come_from_the_vocabulary(change: dict[str, str], tmp_path: Path) -> None:
    """Another verdict, decision or source is refused even if its line hashes correctly."""
    path = tmp_path / "register.jsonl"
    entry = filled(path, 1)[0]
    path.write_text(rehashed(json.loads(entry.line()) | change) + "\n", encoding="utf-8")
    with pytest.raises(DocumentError, match=next(iter(change))):
        read_register(path)


@pytest.mark.parametrize("how", ["spaces", "carriage returns", "a key twice", "a number for a number"])
def test_a_line_is_read_only_as_it_was_written(how: str, tmp_path: Path) -> None:
    """The same entry in another spelling counts as a changed line."""
    path = tmp_path / "register.jsonl"
    line = filled(path, 1)[0].line()
    spelt = {
        "spaces": line.replace(",", ", ", 1),
        "carriage returns": f"{line}\r",
        "a key twice": line.replace("{", '{"kernel":"other",', 1),
        "a number for a number": line.replace('"sequence":1', '"sequence":1.0'),
    }[how]
    path.write_bytes(spelt.encode() + b"\n")
    with pytest.raises(DocumentError, match=r"register\.jsonl:1"):
        read_register(path)


def test_entries_without_the_later_fields_still_hold(tmp_path: Path) -> None:
    """A line without the later fields is read, and the chain continues after it."""
    path = tmp_path / "register.jsonl"
    old = json.loads(filled(path, 1)[0].line())
    del old["verdict_source"], old["override_author"]
    path.write_text(rehashed(old) + "\n", encoding="utf-8")
    append_entry(path, SUBMISSION)
    first, second = read_register(path)
    assert (first.verdict_source, second.verdict_source) == (None, "evaluated")


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    """Appending through a symbolic link changes its target, under the target's lock."""
    path, link = tmp_path / "register.jsonl", tmp_path / "link.jsonl"
    filled(path, 1)
    link.symlink_to(path.name)
    append_entry(link, SUBMISSION)
    assert link.is_symlink()
    assert len(read_register(path)) == 2
    assert sorted(one.name for one in tmp_path.glob(".*.lock")) == [".register.jsonl.lock"]


def test_a_verdict_can_be_recorded_without_promotion(tmp_path: Path) -> None:
    """Recording a failure needs no reason."""
    entry = append_entry(tmp_path / "r.jsonl", replace(SUBMISSION, verdict="fail", promote=False))
    assert entry.decision == "recorded"


@given(st.integers(0, 10**6), st.characters(exclude_categories=["Cs"]))
def test_any_changed_character_is_detected(
    tmp_path_factory: pytest.TempPathFactory, place: int, other: str
) -> None:
    """Replacing any one character of the file makes it unreadable as a register."""
    path = tmp_path_factory.mktemp("register") / "register.jsonl"
    filled(path, 3)
    text = path.read_text(encoding="utf-8")
    at = place % len(text)
    changed = text[:at] + other + text[at + 1 :]
    path.write_bytes(changed.encode())
    if changed != text:
        with pytest.raises(DocumentError, match=r"register\.jsonl"):
            read_register(path)


@pytest.mark.parametrize("order", [(1, 2), (0, 2), (1, 0, 2), (0, 0, 1, 2)])
def test_removed_and_reordered_lines_are_detected(order: tuple[int, ...], tmp_path: Path) -> None:
    """Missing, doubled or reordered lines break the chain at a named line."""
    path = tmp_path / "register.jsonl"
    filled(path, 3)
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(lines[place] for place in order), encoding="utf-8")
    with pytest.raises(DocumentError, match=r"register\.jsonl:[12]: expected the entry that follows"):
        read_register(path)


@pytest.mark.parametrize("text", ["{}\n", "[1]\n", "nonsense\n", "\n", '{"sequence": 1', "[" * 9000 + "\n"])
def test_malformed_registers_are_refused(text: str, tmp_path: Path) -> None:
    """A file that is no register raises a DocumentError, and appending leaves it unchanged."""
    path = tmp_path / "register.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DocumentError, match=r"register\.jsonl:1"):
        append_entry(path, SUBMISSION)
    assert path.read_text(encoding="utf-8") == text


def test_types_are_checked(tmp_path: Path) -> None:
    """A number where a hash belongs is refused even if its own hash is right."""
    path = tmp_path / "register.jsonl"
    entry = filled(path, 1)[0]
    path.write_text(json.dumps(json.loads(entry.line()) | {"kernel": 3}) + "\n", encoding="utf-8")
    with pytest.raises(DocumentError, match="another type in kernel"):
        read_register(path)


@pytest.mark.parametrize("bad", [{"kernel_sha256": "B" * 64}, {"contract_sha256": "c"}, {"verdict": "fine"}])
def test_bad_submissions_are_refused(bad: dict[str, str], tmp_path: Path) -> None:
    """Hashes must be 64 lower-case hex digits and the verdict a known one; nothing is written."""
    changes: dict[str, Any] = dict(bad)
    with pytest.raises(DocumentError):
        append_entry(tmp_path / "r.jsonl", replace(SUBMISSION, **changes))
    assert not (tmp_path / "r.jsonl").exists()


def test_an_unwritable_place_is_a_document_error(tmp_path: Path) -> None:
    """A register below a file cannot be written; the error says so, without a traceback."""
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(DocumentError, match="can be written"):
        append_entry(tmp_path / "file" / "register.jsonl", SUBMISSION)
