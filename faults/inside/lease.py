"""The dead-man lease, kept in a file that every process of the replica reads for itself.

The API process writes it; the engine's process reads it even while its loop hangs, and after the API process
died. Instants are of the monotonic clock, which all processes of a machine share. No file, or one that
cannot be read, is a lease that has ended.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

LONGEST_S = 3600.0
_LEASE = "lease.json"
_CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Lease:
    """Until when faults may act, and which of them are called back before that."""

    ends_at_s: float = 0.0
    undone: tuple[str, ...] = ()

    def left_s(self) -> float:
        """Seconds until it ends, never negative."""
        return max(self.ends_at_s - time.monotonic(), 0.0)

    def allows(self, name: str) -> bool:
        """True while the fault called ``name`` may act."""
        return self.left_s() > 0.0 and name not in self.undone


def read_lease(folder: Path) -> Lease:
    """The lease in force in ``folder``."""
    try:
        plain = json.loads((folder / _LEASE).read_text())
        return Lease(float(plain["ends_at_s"]), tuple(str(name) for name in plain["undone"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError, OverflowError):
        return Lease()


def write_lease(folder: Path, lease: Lease) -> None:
    """Put ``lease`` in force, at once for all readers."""
    temporary = folder / f".{_LEASE}.{os.getpid()}"
    temporary.write_text(json.dumps({"ends_at_s": lease.ends_at_s, "undone": list(lease.undone)}))
    os.replace(temporary, folder / _LEASE)


def lease_for(ttl_s: float, undone: tuple[str, ...] = ()) -> Lease:
    """A lease of ``ttl_s`` seconds from now; at most ``LONGEST_S``."""
    return Lease(time.monotonic() + min(max(ttl_s, 0.0), LONGEST_S), undone)


def note_cancel(folder: Path) -> None:
    """Tell the engine that a client went away before its answer was complete."""
    (folder / _CANCELLED).touch()


def was_cancelled(folder: Path) -> bool:
    """True once a request was cancelled since the last ``forget_cancels``."""
    return (folder / _CANCELLED).exists()


def forget_cancels(folder: Path) -> None:
    """Start the condition "after a cancelled request" afresh."""
    (folder / _CANCELLED).unlink(missing_ok=True)
