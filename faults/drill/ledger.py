"""The durable record of a running drill next to its fleet, and the lock that excludes a second drill.

It is written before anything is injected and closed when the undo is confirmed. If the runner died, the next
process finds it open and undoes the faults named by the undo records next to it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contracts.errors import DocumentError
from contracts.loading.files import json_text, write_pinned
from contracts.loading.untrusted import MALFORMED, json_of
from contracts.regular_files import TEXT_BYTES, read_regular
from faults.client import record as records
from faults.client.replica import Undone, undo_record
from faults.client.wire import DrillError, DrillRefusedError

_NOTE, _LOCK, RECORDS = "drill.json", "drill.lock", "records"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillLedger:
    """The record of the drill ``name`` in ``folder``; the folder belongs to one fleet."""

    folder: Path
    name: str

    @property
    def records(self) -> Path:
        """Folder of the undo records of single faults."""
        return self.folder / RECORDS

    def open(self) -> None:
        """Record that the drill is running. On OSError nothing may be injected."""
        self._write("open")

    def close(self, how: str) -> None:
        """Record that every fault was undone."""
        self._write(how)

    def _write(self, state: str) -> None:
        note = {"drill": self.name, "pid": os.getpid(), "state": state}
        text = f"{json_text(note, indent=2)}\n"
        self.folder.mkdir(parents=True, exist_ok=True)
        write_pinned(self.folder / _NOTE, text.encode(), durable=True)


@contextmanager
def only_drill(folder: Path) -> Iterator[None]:
    """Lock the fleet of ``folder`` for one runner; DrillError while another runner holds it."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            running = pending(folder) or {}
            raise DrillError(
                f"{folder}: a drill runs there already ({running.get('drill', 'it begins')}, "
                f"process {running.get('pid', 'unknown')}); wait for its end, or end it with Ctrl-C"
            ) from None
        yield
    finally:
        os.close(descriptor)


def pending(folder: Path) -> dict[str, Any] | None:
    """The record of a drill without a confirmed undo, or None. DrillError for a broken record."""
    path = folder / _NOTE
    try:
        if not path.exists():
            return None
        note = json_of(read_regular(path, TEXT_BYTES))
        return dict(note) if note["state"] == "open" else None
    except (DocumentError, *MALFORMED) as error:
        raise DrillError(f"{path}: expected the note of a drill, got {error}; restart the fleet") from None


def take_back(folder: Path) -> list[str]:
    """Undo the faults that a dead runner left in force in ``folder``; one line per fault. Idempotent.

    The caller holds ``only_drill``. DrillError if an undo is not confirmed; the record then stays open.
    """
    note = pending(folder)
    told, unclean = [], []
    for path, kept in records.open_records(folder / RECORDS):
        try:
            undone = undo_record(path)
        except DrillRefusedError:  # another server has that address now: our replica and its faults are gone
            records.save(path, kept.closed("gone"))
            undone = Undone(clean=False, gone=True)
        how = "gone with its replica" if undone.gone else "undone" if undone.clean else "NOT clean"
        told.append(f"{kept.fault['name']} at {kept.url}: {how}")
        unclean += [] if undone.gone or undone.clean else [kept.url]
    if unclean:
        raise DrillError(f"not as before: {', '.join(unclean)}; restart these replicas")
    if note is not None:
        DrillLedger(folder=folder, name=str(note.get("drill", ""))).close("undone by another process")
    return told


class NoLedger:
    """Does nothing: a simulation leaves nothing to undo."""

    def open(self) -> None:
        """Does nothing."""

    def close(self, how: str) -> None:
        """Does nothing."""
