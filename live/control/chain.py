"""Append-only files of JSON lines in a hash chain, readable after a crash at any byte.

A line is ``{..., "previous": HASH, "sha256": HASH}``: ``sha256`` covers the text of the line without that
field, and ``previous`` is the hash of the line before. A line that is altered, removed or moved breaks the
chain at that point. Lines missing at the end cannot be detected. A last line without a newline was torn by a
crash: it is cut off and reported, and the chain continues.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contracts.errors import DocumentError, StateError, refusal
from contracts.loading.files import GENESIS, json_text
from contracts.loading.untrusted import MALFORMED, json_of
from contracts.regular_files import read_regular

#: Largest file that is read, in bytes.
MOST_BYTES = 2**30
#: Kind of the lines about alarms of passive signals.
PASSIVE = "passive"
#: Kind of the lines about scrapes that report less than they could.
SCRAPES = "scrapes"
_TAIL = ', "sha256": "'
_TAIL_CHARACTERS = len(_TAIL) + 64 + len('"}')


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """The lines of a file. torn_bytes: length of a last line that a crash cut off; 0 without one."""

    rows: tuple[dict[str, Any], ...]
    last_sha256: str
    whole_bytes: int
    torn_bytes: int


def sealed(row: dict[str, Any], previous: str) -> tuple[str, str]:
    """``row`` as a line without its newline, and its hash."""
    body = json_text({**row, "previous": previous})
    digest = hashlib.sha256(body.encode()).hexdigest()
    return f'{body[:-1]}{_TAIL}{digest}"}}', digest


def read_chain(path: Path, previous: str | None = None) -> Chain:
    """Read every whole line of ``path`` and check it; DocumentError names the first line that does not fit.

    previous: hash that the first line must continue from; None accepts any, as when a file continues another.
    """
    content = read_regular(path, MOST_BYTES)
    whole, _, torn = content.rpartition(b"\n")
    rows: list[dict[str, Any]] = []
    last = previous
    for number, line in enumerate(whole.split(b"\n") if whole else [], 1):
        row, last = _checked(line, last, path, number)
        rows.append(row)
    return Chain(
        rows=tuple(rows),
        last_sha256=GENESIS if last is None else last,
        whole_bytes=len(content) - len(torn),
        torn_bytes=len(torn),
    )


def _checked(line: bytes, previous: str | None, path: Path, number: int) -> tuple[dict[str, Any], str]:
    try:
        text = line.decode()
        row = json_of(text)
        stated, follows = row["sha256"], row["previous"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise _broken(path, number, "a JSON object with previous and sha256", "none") from None
    digest = hashlib.sha256(f"{text[:-_TAIL_CHARACTERS]}}}".encode()).hexdigest()
    if stated != digest or not text.endswith(f'{_TAIL}{digest}"}}'):
        raise _broken(path, number, f"sha256 {digest[:12]}… of this line", f"{str(stated)[:12]}…")
    if previous is not None and follows != previous:
        raise _broken(path, number, f"previous {previous[:12]}…", f"{str(follows)[:12]}…")
    return row, digest


def _broken(path: Path, number: int, expected: str, actual: str) -> DocumentError:
    hint = "the log was altered, or lines are missing before this one: what follows proves nothing"
    return refusal(path, expected, actual, hint, line=number)


class ChainWriter:
    """Appends to one file, whole lines only. ``repaired_bytes``: length of a torn line that was cut at the
    start.
    """

    def __init__(self, path: Path, previous: str = GENESIS) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        found = read_chain(path)
        self.last_sha256 = found.last_sha256 if found.rows else previous
        self.size = found.whole_bytes
        self.lines = len(found.rows)
        self.repaired_bytes = found.torn_bytes
        if found.torn_bytes:
            os.ftruncate(self._descriptor, self.size)

    def close(self) -> None:
        """Close the file; repeated calls have no effect."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def append(self, row: dict[str, Any], *, durable: bool = False) -> None:
        """Append ``row``. durable: wait until it is on disk.

        Raises OSError if it cannot be written completely, as on a full disk; the file is then unchanged.
        """
        text, digest = sealed(row, self.last_sha256)
        content = f"{text}\n".encode()
        try:
            written = 0
            while written < len(content):
                written += os.write(self._descriptor, content[written:])
            if durable:
                os.fdatasync(self._descriptor)
        except OSError:
            os.ftruncate(self._descriptor, self.size)
            raise
        self.last_sha256, self.size, self.lines = digest, self.size + len(content), self.lines + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingRecords:
    """Turns that a log does not contain. from_s None: since the beginning; turns None: unknown number."""

    from_s: float | None
    to_s: float
    turns: int | None

    def __str__(self) -> str:
        """One sentence for people."""
        if self.from_s is None:
            return f"records before {self.to_s:.0f} s are missing: older files were removed, or are not given"
        return f"{self.turns} records from {self.from_s:.0f} to {self.to_s:.0f} s could not be written"

    def covers(self, at_s: float) -> bool:
        """Whether the records of ``at_s`` are missing."""
        return (self.from_s is None or at_s >= self.from_s) and at_s < self.to_s


def missing_records(rows: Sequence[Mapping[str, Any]]) -> tuple[MissingRecords, ...]:
    """What is missing before and between ``rows``, which are the rows of whole files of a decision log.

    Raises StateError if a line states it in an unknown form.
    """
    try:
        return tuple(_missing(rows))
    except MALFORMED as error:
        raise StateError(f"decision log: expected what is missing, got {error!r}"[:300]) from None


def _missing(rows: Sequence[Mapping[str, Any]]) -> Iterator[MissingRecords]:
    first = next((row for row in rows if row.get("kind") == "tick"), None)
    if first is not None and rows[0].get("previous") != GENESIS:
        yield MissingRecords(from_s=None, to_s=float(first["now_s"]), turns=None)
    for told in (row.get("missing") for row in rows if row.get("kind") == "start"):
        if told:
            yield MissingRecords(
                from_s=float(told["from_s"]), to_s=float(told["to_s"]), turns=int(told["turns"])
            )
