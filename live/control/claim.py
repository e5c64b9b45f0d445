"""The controller's lock on a fleet, and the state that the controller keeps between starts."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from contracts.errors import DocumentError, StateError
from contracts.loading.files import write_pinned
from contracts.regular_files import TEXT_BYTES, read_regular_text
from controller.options import ControllerSetup
from controller.state import ControllerState
from controller.state_json import state_from_json, state_to_json
from live.control.loop import Turn
from live.errors import LiveError

_LOCK = "controller.lock"


@contextmanager
def controlling(folder: Path) -> Iterator[None]:
    """Hold the controller's lock of ``folder``; LiveError if another process holds it."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        message = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
        os.close(descriptor)
        raise LiveError(
            f"{folder}: another controller (process {message or 'unknown'}) is in charge; end that first"
        ) from None
    try:
        with suppress(OSError):  # the lock itself works; on a full disk only the process number is missing
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


class StateKeeper:
    """``TurnWatcher`` that saves the state: at once after a move, otherwise every ``every_s``."""

    def __init__(self, folder: Path, setup: ControllerSetup, every_s: float = 5.0, fleet: str = "") -> None:
        """``fleet``: identifies the run of servers that the state belongs to; another run's state is not
        used.
        """
        self._path, self._setup, self._every_s = _state_file(folder, fleet), setup, every_s
        self._written_at_s = float("-inf")

    def turn(self, turn: Turn) -> None:
        """Save the state if it is due. Raises OSError if the file cannot be written."""
        if turn.decision is None:
            return
        moved = bool(turn.decision.moved[0]) and turn.in_force
        if moved or turn.at_s - self._written_at_s >= self._every_s:
            self._written_at_s = float("-inf")  # if writing fails, the next turn tries again
            self.write(turn.after)
            self._written_at_s = turn.at_s

    def write(self, state: ControllerState) -> None:
        """Replace the file atomically."""
        for other in self._path.parent.glob("controller-state*.json"):
            if other != self._path:
                other.unlink(missing_ok=True)
        write_pinned(self._path, state_to_json(state, self._setup).encode(), durable=True)


def kept_state(folder: Path, setup: ControllerSetup, fleet: str = "") -> tuple[ControllerState | None, str]:
    """The state last saved in ``folder`` and ""; or None and the reason why no saved state fits."""
    try:
        if not (file := _state_file(folder, fleet)).exists():
            return None, "no state was kept"
        return state_from_json(read_regular_text(file, TEXT_BYTES), setup), ""
    except (DocumentError, StateError) as error:
        return None, str(error)


def _state_file(folder: Path, fleet: str) -> Path:
    return folder / (f"controller-state-{fleet}.json" if fleet else "controller-state.json")
