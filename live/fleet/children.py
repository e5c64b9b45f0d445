"""The supervisor's child processes: each leads its own process group, is watched by a guard, and is
reaped.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from signal import Signals

from live.fleet.processes import kill_group

_GUARD = Path(__file__).with_name("watchdog.py")


class Children:
    """Starts processes and notices their ends. Their process groups die with this process, however it ends.

    Start them from the main thread: the parent-death signal is sent when the parent's *thread* ends.
    """

    def __init__(self) -> None:
        self._groups: set[int] = set()
        self._started: dict[int, subprocess.Popen[bytes]] = {}
        self._guard: subprocess.Popen[bytes] | None = None
        self._keep_guard()

    def start(
        self,
        command: Sequence[str],
        log: Path,
        environment: Mapping[str, str],
        pass_fds: tuple[int, ...] = (),
    ) -> int:
        """Start ``command`` as leader of a new process group, with output appended to ``log``; its process
        id.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as stream:
            child = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                pass_fds=pass_fds,
                start_new_session=True,
            )
        self._started[child.pid] = child
        self.adopt(child.pid)
        return child.pid

    def adopt(self, pid: int) -> None:
        """Watch the process group that ``pid`` leads."""
        self._groups.add(pid)
        self._tell(f"+{pid}")

    def forget(self, pid: int) -> None:
        """Stop watching the process group of ``pid``, which has ended."""
        self._groups.discard(pid)
        self._tell(f"-{pid}")

    def ended(self) -> dict[int, int]:
        """Exit codes of children, adopted ones included, that ended since the last call; negative:
        by signal.
        """
        found: dict[int, int] = {}
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    break
                found[pid] = os.waitstatus_to_exitcode(status)
        for pid, code in found.items():
            child = self._started.pop(pid, None)
            if child is not None:
                child.returncode = code
        if self._guard is not None and self._guard.pid in found:
            self._guard.returncode = found.pop(self._guard.pid)
            self._keep_guard()
        return found

    def kill(self, pid: int, number: Signals = Signals.SIGKILL) -> None:
        """Send a signal to the whole process group of ``pid``."""
        kill_group(pid, number)

    def close(self) -> None:
        """Kill every remaining process group, wait for the leaders, and end the guard."""
        for group in list(self._groups):
            kill_group(group)
            self.forget(group)
            with suppress(ChildProcessError):
                os.waitpid(group, 0)
        for child in self._started.values():
            child.returncode = -Signals.SIGKILL
        self._started.clear()
        guard, self._guard = self._guard, None
        if guard is not None and guard.stdin is not None:
            with suppress(OSError):
                guard.stdin.close()
            guard.wait(timeout=10)

    def _keep_guard(self) -> None:
        """Start a guard, and tell it every process group that exists already."""
        if self._guard is not None and self._guard.stdin is not None:
            with suppress(OSError):
                self._guard.stdin.close()
        self._guard = subprocess.Popen(
            [sys.executable, "-I", str(_GUARD)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        for group in self._groups:
            self._tell(f"+{group}")

    def _tell(self, line: str) -> None:
        if self._guard is not None and self._guard.stdin is not None:
            with suppress(OSError):  # the guard died; the next call of ``ended`` starts another
                self._guard.stdin.write(f"{line}\n".encode())
                self._guard.stdin.flush()
