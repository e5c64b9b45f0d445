"""The artifact register: which (checkpoint, kernel build, contract) was promoted on which verdict.

One JSON object per line, append-only. Each entry holds the hash of the one before it, so a changed,
removed or reordered line is found by ``read_register``; a cut-off tail is found by comparing the head's
hash with one noted elsewhere. A line is read as it was written, byte for byte: another spelling of the same
entry is a changed entry. Appending rewrites the file beside itself and renames it, under a lock, so that a
reader never sees half an entry. Verdicts are never overwritten: a later one is a later line.

A verdict is *evaluated* where it was found from samples and contract when it was entered, else *claimed*; a
claimed one puts nothing into service without an override, which has a reason and an author.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Literal, get_args

from contracts.errors import DocumentError, SelvageError, refusal
from contracts.loading.files import GENESIS, canonical_sha256, canonical_text, write_pinned
from contracts.loading.untrusted import json_of
from contracts.regular_files import TEXT_BYTES, lines_of, read_regular

RecordedVerdict = Literal["pass", "fail", "inconclusive"]
Decision = Literal["promoted", "recorded"]
VerdictSource = Literal["evaluated", "claimed"]

_HEX = frozenset("0123456789abcdef")
#: Fields that were added later; older lines are without them.
_LATER = {"verdict_source", "override_author"}
_VOCABULARY: dict[str, tuple[str, ...]] = {
    "verdict": get_args(RecordedVerdict),
    "decision": get_args(Decision),
    "verdict_source": get_args(VerdictSource),
}


class PromotionRefusedError(SelvageError):
    """A build without a passing verdict was to be promoted without a reason."""

    judgement = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What is to be entered. Hashes are hex sha256."""

    checkpoint_sha256: str  # of the weights
    kernel: str
    kernel_sha256: str  # of the profile or fingerprint
    contract: str
    contract_sha256: str  # of the canonical form
    verdict: RecordedVerdict
    evidence_sha256: str  # of the evaluation output or samples that the verdict rests on
    recorded_at: str  # ISO instant, given by the caller
    verdict_source: VerdictSource = "claimed"
    promote: bool = False  # put the build into service
    override_reason: str = ""  # why in spite of the verdict, else empty
    override_author: str = ""  # the person responsible for the override, else empty

    @property
    def is_overridden(self) -> bool:
        """Whether the verdict is overridden: a person and a reason are given."""
        return bool(self.override_reason.strip() and self.override_author.strip())


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterEntry:
    """One line: a submission, what was decided, and its place in the chain."""

    sequence: int  # from 1
    recorded_at: str
    checkpoint_sha256: str
    kernel: str
    kernel_sha256: str
    contract: str
    contract_sha256: str
    verdict: RecordedVerdict
    evidence_sha256: str
    decision: Decision
    override_reason: str
    previous_sha256: str  # of the entry before, ``GENESIS`` for the first
    entry_sha256: str  # over all other fields
    verdict_source: VerdictSource | None = None  # None: entered before sources were told apart
    override_author: str | None = None  # None: likewise

    def line(self) -> str:
        """The entry as it stands in the file, without the newline."""
        return canonical_text({key: value for key, value in asdict(self).items() if value is not None})


def read_register(path: Path) -> tuple[RegisterEntry, ...]:
    """All entries of the register at ``path``, oldest first; none if there is no file yet.

    Raises ``DocumentError`` naming the first line that is malformed or breaks the chain.
    """
    return register_entries(read_regular(path, TEXT_BYTES) if path.exists() else b"", path)


def register_entries(content: bytes, path: Path) -> tuple[RegisterEntry, ...]:
    """All entries in the ``content`` of the register that messages call ``path``; DocumentError likewise."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _broken(path, 0, "a readable register", str(error)) from None
    entries: list[RegisterEntry] = []
    if text and not text.endswith("\n"):
        raise _broken(path, text.count("\n") + 1, "a complete last line", "a cut-off line")
    for number, line in enumerate(lines_of(text[:-1]) if text else (), start=1):
        entry = _parse(path, number, line)
        _check_chain(path, number, entry, entries[-1] if entries else None)
        entries.append(entry)
    return tuple(entries)


def append_entry(path: Path, submission: Submission) -> RegisterEntry:
    """Enter ``submission`` and return the new head.

    Raises ``PromotionRefusedError``, with nothing written, when a build without a passing verdict is to
    be promoted without a reason, and ``DocumentError`` for malformed hashes or a broken register.
    """
    _check(path, submission)
    _refuse_unproven(submission)
    path = Path(os.path.realpath(path))  # a link is followed once; what it points to is locked and replaced
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path):
            entries = read_register(path)
            entry = _next_entry(submission, entries)
            lines = "".join(f"{each.line()}\n" for each in (*entries, entry))
            write_pinned(path, lines.encode(), durable=True)
    except OSError as error:
        raise _broken(path, 0, "a register that can be written", str(error)) from None
    return entry


def _refuse_unproven(submission: Submission) -> None:
    """PromotionRefusedError for a promotion without an evaluated pass and without a reason."""
    proven = submission.verdict == "pass" and submission.verdict_source == "evaluated"
    if submission.promote and not proven and not submission.is_overridden:
        raise PromotionRefusedError(
            f"the verdict on {submission.kernel} is {submission.verdict!r}, {submission.verdict_source}: not "
            "promoted; give --override-reason and --override-author to promote it all the same, and both are "
            "kept"
        )


def _next_entry(submission: Submission, entries: tuple[RegisterEntry, ...]) -> RegisterEntry:
    content = asdict(submission)
    promoted = content.pop("promote")
    content |= {
        "sequence": len(entries) + 1,
        "decision": "promoted" if promoted else "recorded",
        "previous_sha256": entries[-1].entry_sha256 if entries else GENESIS,
    }
    return RegisterEntry(**content, entry_sha256=_entry_hash(content))


def _entry_hash(content: dict[str, object]) -> str:
    """Hash over everything in the line but the hash itself."""
    rest = {key: value for key, value in content.items() if key != "entry_sha256"}
    return canonical_sha256(rest)


def _parse(path: Path, number: int, line: str) -> RegisterEntry:
    try:
        content = json_of(line)
        written = canonical_text(content)
    except (ValueError, RecursionError):
        raise _broken(path, number, "a JSON object", "unreadable text") from None
    names = {field.name for field in fields(RegisterEntry)}
    if not isinstance(content, dict) or set(content) not in (names, names - _LATER):
        raise _broken(path, number, f"the keys {', '.join(sorted(names))}", "others")
    wrong = [name for name in content if type(content[name]) is not (int if name == "sequence" else str)]
    if wrong:
        raise _broken(path, number, "text in every field but sequence", f"another type in {sorted(wrong)[0]}")
    if written != line:
        raise _broken(path, number, "the line as it was written", "another spelling of it")
    if _entry_hash(content) != content["entry_sha256"]:
        raise _broken(path, number, "an entry that matches its hash", "a changed entry")
    for name, known in _VOCABULARY.items():
        if content.get(name, known[0]) not in known:
            raise _broken(path, number, f"{name} as one of {', '.join(known)}", f"{content[name]!r:.40}")
    return RegisterEntry(**content)


def _check_chain(path: Path, number: int, entry: RegisterEntry, before: RegisterEntry | None) -> None:
    expected = before.entry_sha256 if before else GENESIS
    if entry.previous_sha256 != expected or entry.sequence != number:
        raise _broken(path, number, "the entry that follows the line before", "a gap or another order")


def _check(path: Path, submission: Submission) -> None:
    for name in ("checkpoint_sha256", "kernel_sha256", "contract_sha256", "evidence_sha256"):
        value = getattr(submission, name)
        if len(value) != 64 or not set(value) <= _HEX:
            raise _broken(path, 0, f"64 hex digits as {name}", repr(value)[:80])
    if submission.verdict not in get_args(RecordedVerdict):
        raise _broken(
            path, 0, f"a verdict of {', '.join(get_args(RecordedVerdict))}", repr(submission.verdict)
        )


def _broken(path: Path, line: int, expected: str, actual: str) -> DocumentError:
    hint = "restore the register from a copy whose head hash you know" if line else "correct it and try again"
    return refusal(path, expected, actual, hint, line=line)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One writer at a time; the lock file stays, because removing it would race."""
    with path.with_name(f".{path.name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
