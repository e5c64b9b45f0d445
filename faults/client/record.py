"""The undo record: written before a fault is injected, so that any process can undo the fault.

It names the replica, the file of its token (never the token) and the fault. An open record means that the
fault may be in force; it is closed when an undo is confirmed or the replica is gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from contracts.errors import DocumentError, SelvageError
from contracts.loading.files import json_text, write_pinned
from contracts.loading.untrusted import MALFORMED, json_of
from contracts.regular_files import TEXT_BYTES, read_regular

State = Literal["open", "undone", "gone"]
_SUFFIX = ".undo.json"


class RecordError(SelvageError):
    """An undo record cannot be read; the message names the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoRecord:
    """One fault on one replica."""

    url: str
    token_file: str
    fault: dict[str, Any]
    """The injected fault: name, kind, dose, trigger, live."""
    written_at_s: float
    """Seconds since 1970."""
    ttl_s: float
    state: State = "open"

    def closed(self, state: State) -> UndoRecord:
        """The same record with its outcome."""
        return replace(self, state=state)


_RECORD = TypeAdapter(UndoRecord)


def save(path: Path, record: UndoRecord) -> None:
    """Write ``record`` durably and at once; OSError if it cannot be written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_pinned(path, f"{json_text(asdict(record), indent=2)}\n".encode(), durable=True)


def load(path: Path) -> UndoRecord:
    """The record at ``path``."""
    try:
        return _RECORD.validate_python(json_of(read_regular(path, TEXT_BYTES)))
    except (DocumentError, *MALFORMED) as error:
        raise RecordError(f"{path}: expected an undo record, got {error}; undo by hand") from error


def path_for(folder: Path, fault_name: str, url: str) -> Path:
    """Path of the record of a fault on the replica at ``url``."""
    place = "".join(letter if letter.isalnum() else "-" for letter in url.partition("//")[2])
    return folder / f"{place}.{fault_name}{_SUFFIX}"


def open_records(folder: Path) -> Iterator[tuple[Path, UndoRecord]]:
    """Records below ``folder`` without a confirmed undo, sorted by name."""
    for path in sorted(folder.glob(f"*{_SUFFIX}")):
        record = load(path)
        if record.state == "open":
            yield path, record
