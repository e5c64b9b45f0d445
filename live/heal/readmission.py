"""Re-admission of replicas after quarantine: no traffic until they are verified, then traffic in steps.

The controller's decisions are unchanged; this only limits the traffic share of a replica meanwhile. Replicas
that were being re-admitted when the controller ended start over under the next controller.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

from contracts.errors import SelvageError, StateError
from contracts.loading.files import write_pinned
from contracts.loading.untrusted import json_of
from contracts.regular_files import TEXT_BYTES, read_regular_text
from controller.healing.records import HealingPhase, HealingTerms
from live.heal.playbook import Mender, Playbook

_AT_ONCE = 4


class Readmissions:
    """``live.control.loop.ReturnWatch`` over playbooks. Call ``close`` at the end.

    find: replica name -> its mender. kept: file with the names of replicas being re-admitted; those of them
    in ``known`` start over after a restart of the controller. None: nothing is kept.
    """

    def __init__(
        self,
        find: Callable[[str], Mender],
        terms: HealingTerms,
        kept: Path | None = None,
        known: Iterable[str] = (),
        threads: Executor | None = None,
    ) -> None:
        self._find, self._terms, self._kept = find, terms, kept
        self._threads = threads or ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="heal")
        self._books: dict[str, Playbook] = {}
        self._pending = _pending(kept) & frozenset(known)
        self._written: list[str] = []
        self._told = ""

    @property
    def shares(self) -> Mapping[str, float]:
        """Traffic share, 0..1, of every replica that is being re-admitted."""
        return {name: book.share for name, book in self._books.items()}

    @property
    def lines(self) -> tuple[str, ...]:
        """A line for every replica that is being re-admitted."""
        return tuple(f"{name}: {book.line}" for name, book in sorted(self._books.items()))

    def close(self) -> None:
        """Start no further action; actions under way are not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def turn(self, now_s: float, ended: Iterable[str], away: Iterable[str]) -> tuple[str, ...]:
        """One tick at ``now_s``; returns a line for each change. A file that cannot be written is reported
        once and tried again.

        ended: replicas with a quarantine that ended in this tick; away: replicas in quarantine, whose
        re-admission stops.
        """
        gone = set(away)
        begun, self._pending = (self._pending | set(ended)) - gone, frozenset(self._pending & gone)
        self._books = {name: book for name, book in self._books.items() if name not in gone}
        lines = []
        for name in sorted(begun):
            self._books[name] = Playbook(self._find(name), self._terms, self._threads, now_s)
            lines.append(f"{name}: {self._books[name].line}")
        for name, book in list(self._books.items()):
            if book.turn(now_s):
                lines.append(f"{name}: {book.line}")
            if book.state.phase is HealingPhase.HEALED:
                del self._books[name]
        return (*lines, *self._keep())

    def _keep(self) -> tuple[str, ...]:
        """Write the names of replicas being re-admitted if they changed; returns lines to report."""
        names = sorted(self._books)
        if self._kept is None or names == self._written:
            return ()
        try:
            write_pinned(self._kept, f"{json.dumps(names)}\n".encode())
        except OSError as error:
            message = (
                f"{self._kept}: not written ({error.strerror or error}); a restart would not go on with it"
            )
            fresh, self._told = message != self._told, message
            return (message,) if fresh else ()
        self._written, self._told = names, ""
        return ()


def replicas_returning(path: Path) -> list[str]:
    """Names of the replicas in the file; StateError if the file is not valid."""
    try:
        found = json_of(read_regular_text(path, TEXT_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise StateError(f"{path}: expected names of replicas, got {error!r}"[:300]) from None
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise StateError(f"{path}: expected a list of names of replicas")
    return found


def _pending(kept: Path | None) -> frozenset[str]:
    """Replicas that were being re-admitted when the last controller ended; none if the file is unreadable."""
    if kept is None or not kept.exists():
        return frozenset()
    try:
        return frozenset(replicas_returning(kept))
    except SelvageError:
        return frozenset()
