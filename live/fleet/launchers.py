"""Starts server processes: forked from a process that has imported vLLM, or spawned as new interpreters."""

from __future__ import annotations

import json
import os
import select
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from live.errors import LiveError
from live.fleet.children import Children
from live.fleet.plan import has_gpu
from live.measure.backends.vllm_backend import vllm_python

_SERVER = Path(__file__).with_name("vllm_server.py")
_FORK_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOrder:
    """One server to start: its arguments, its log, and environment variables added to the common ones."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    log: Path


class NotYetError(LiveError):
    """A server cannot be started right now; try again soon."""


class Launcher(Protocol):
    """Starts servers as children of this process."""

    how: str

    def start(self, order: ServerOrder) -> int:
        """Process id of the new server, which leads its own process group. Raises LiveError or
        NotYetError.
        """

    def close(self) -> None:
        """Start no further servers."""


class SpawnLauncher:
    """One new interpreter per server: slow, but works on every device."""

    how = "spawn"

    def __init__(self, children: Children) -> None:
        self._children = children

    def start(self, order: ServerOrder) -> int:
        """Start a server with the interpreter that has vLLM."""
        command = server_command("serve", order.arguments)
        return self._children.start(command, order.log, server_environment() | dict(order.environment))

    def close(self) -> None:
        """Nothing to close."""


class ForkLauncher:
    """Servers forked from a process that imported vLLM once; CPU builds only. Restarts that process if
    needed.

    The calling process must adopt orphans (``live.fleet.processes.adopt_orphans``).
    """

    how = "fork"

    def __init__(self, children: Children, log: Path) -> None:
        self._children = children
        self._log = log
        self._door: socket.socket | None = None
        self._pid = 0
        self._ready = False

    def begin(self) -> None:
        """Start the forking process without waiting for it."""
        ours, theirs = socket.socketpair()
        with theirs:
            command = server_command("fork", (str(theirs.fileno()),))
            self._pid = self._children.start(command, self._log, server_environment(), (theirs.fileno(),))
        self._door, self._ready = ours, False
        ours.settimeout(_FORK_S)

    def start(self, order: ServerOrder) -> int:
        """Fork a server. NotYetError while the forking process imports, also after it had to be restarted."""
        request = {
            "arguments": list(order.arguments),
            "environment": dict(order.environment),
            "log": str(order.log),
            "supervisor": os.getpid(),
        }
        try:
            self.require_ready()
            pid = int(self._ask(request)["pid"])
        except NotYetError:
            raise
        except LiveError as error:
            self.close()
            self.begin()
            raise NotYetError(f"{error}; started anew") from None
        self._children.adopt(pid)
        return pid

    def require_ready(self) -> None:
        """NotYetError while it imports; LiveError if it ended, as on a device that does not allow forks."""
        if self._ready or self._door is None:
            return
        if not select.select([self._door], [], [], 0.0)[0]:
            raise NotYetError("the process that forks servers is still importing")
        self._ready = bool(self._ask(None).get("ready"))

    def close(self) -> None:
        """End the forking process; servers that it forked continue."""
        if self._door is not None:
            self._door.close()
            self._door = None
        if self._pid:
            self._children.kill(self._pid)
            self._children.forget(self._pid)
            self._pid = 0

    def _ask(self, request: dict[str, Any] | None) -> dict[str, Any]:
        """Send a request (None: only listen) and return the answer."""
        try:
            if self._door is None:
                raise OSError("not started")
            if request is not None:
                self._door.sendall(json.dumps(request).encode() + b"\n")
            text = b""
            while not text.endswith(b"\n"):
                part = self._door.recv(4096)
                if not part:
                    raise OSError("it ended")
                text += part
        except OSError as error:
            raise LiveError(f"the process that forks servers: {error}; see {self._log}") from None
        answer: dict[str, Any] = json.loads(text)
        return answer


def server_command(verb: str, arguments: Sequence[str]) -> list[str]:
    """Command of a server process; ``-P`` keeps this folder off its import path."""
    return [vllm_python(), "-P", str(_SERVER), verb, *arguments]


def server_environment() -> dict[str, str]:
    """Environment of every server: one thread, no usage reports, without this project's PYTHONPATH."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment.setdefault("OMP_NUM_THREADS", "1")
    environment.update(
        VLLM_NO_USAGE_STATS="1",
        DO_NOT_TRACK="1",
        SELVAGE_PARENT=str(os.getpid()),
    )
    if not has_gpu():
        environment["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # engine and worker in one process
    return environment
