"""Processes of a test that end with it, however it ends: a guard kills what a killed pytest leaves behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.paths import ROOT

#: Of the live fleet: it kills the groups that it was told when its stdin ends, which any death of us makes
#: happen, whichever thread started it.
_GUARD = ROOT / "live" / "fleet" / "watchdog.py"


class Guard:
    """Kills the groups that it watches when this process is gone; use as a context."""

    def __enter__(self) -> Guard:
        """Start the guard process; no group is watched yet."""
        self._process = subprocess.Popen(
            [sys.executable, "-I", str(_GUARD)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        """Kill the groups that are still watched, and end."""
        _close(self._process)
        self._process.wait(timeout=120)

    def watch(self, group: int) -> None:
        """Watch over the process group ``group``."""
        self._tell(f"+{group}")

    def forget(self, group: int) -> None:
        """That group has ended."""
        self._tell(f"-{group}")

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()


@contextmanager
def guarded(
    command: Sequence[str], log: Path, environment: Mapping[str, str], ask_first_s: float = 0.0
) -> Iterator[subprocess.Popen[bytes]]:
    """``command`` in a group of its own, its output in ``log``; all of the group is gone after the block.

    ask_first_s: so long it may take to end by TERM before it is killed. stdin is a pipe that ends with us.
    """
    with Guard() as guard:
        with log.open("ab") as stream:
            child = subprocess.Popen(
                list(command),
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=stream,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                start_new_session=True,
            )
        guard.watch(child.pid)
        try:
            yield child
        finally:
            _end(child, ask_first_s)
            guard.forget(child.pid)


def _end(child: subprocess.Popen[bytes], ask_first_s: float) -> None:
    if ask_first_s and child.poll() is None:
        child.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            child.wait(timeout=ask_first_s)
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)  # an engine outlives the server that started it
    child.wait(timeout=120)
    _close(child)


def _close(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    with suppress(OSError):
        process.stdin.close()
