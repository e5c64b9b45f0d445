"""Several real vLLM servers for the price of one import, as a program: forked, ended when its stdin closes.

``python -m tests.support.servers.engine_fleet LOG`` reads a line of JSON per server
(``{"arguments": [...], "environment": {...}, "log": path, "told": path}``), starts it, and writes its process
id to ``told``, until its stdin ends. It is the servers' parent, because servers die with the *thread* that
started them, and threads of tests end. One such program serves all tests of a process; servers that a test
needs as users start them, from a command line, are started without it.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from live.fleet.children import Children
from live.fleet.launchers import ForkLauncher, NotYetError, ServerOrder
from live.fleet.processes import adopt_orphans, await_group_end, kill_group
from tests.support.guarded import guarded
from tests.support.paths import ROOT

_POLL_S, _START_S, _END_S = 0.1, 250.0, 30.0


@dataclass(slots=True)
class _Program:
    """The program, as long as this process; started at the first request, and again if it died."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    stack: ExitStack = field(default_factory=ExitStack)
    process: subprocess.Popen[bytes] | None = None
    log: Path = Path()

    def ask(self, order: ServerOrder) -> Path:
        """Order a server; returns the file that will hold its process id."""
        told = order.log.with_suffix(".pid")
        told.unlink(missing_ok=True)
        asked = {
            "arguments": list(order.arguments),
            "environment": dict(order.environment),
            "log": str(order.log),
            "told": str(told),
        }
        with self.lock:
            stdin = self._running().stdin
            assert stdin is not None
            stdin.write(json.dumps(asked).encode() + b"\n")
            stdin.flush()
        return told

    def answer(self, told: Path) -> int:
        """The process id in ``told``, once written; AssertionError with the program's log without one."""
        until_at_s = time.monotonic() + _START_S
        while not told.exists():
            waits = self.process is not None and self.process.poll() is None
            waits &= time.monotonic() < until_at_s
            assert waits, self.log.read_text(errors="replace")[-2000:]
            time.sleep(_POLL_S)
        return int(told.read_text())

    def _running(self) -> subprocess.Popen[bytes]:
        if self.process is None or self.process.poll() is not None:
            self.stack.close()
            folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory(prefix="selvage-engines-")))
            self.log = folder / "engines.log"
            own, forker = "tests.support.servers.engine_fleet", str(folder / "forker.log")
            command = [sys.executable, "-m", own, forker]
            environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
            self.process = self.stack.enter_context(guarded(command, self.log, environment))
            atexit.register(self.stack.close)
        return self.process


_PROGRAM = _Program()


@contextmanager
def engines(orders: Sequence[ServerOrder]) -> Iterator[Callable[[], list[int]]]:
    """Servers of ``orders``, which begin to start; all end after the block. Yields a function that waits for
    their process ids.
    """
    told = [_PROGRAM.ask(order) for order in orders]

    def processes() -> list[int]:
        return [_PROGRAM.answer(one) for one in told]

    try:
        yield processes
    finally:
        for pid in processes():
            kill_group(pid)
        for pid in processes():
            assert await_group_end(pid, _END_S), f"process group {pid} does not end"


def main(log: str) -> None:
    """Start requested servers, until the end of input."""
    adopt_orphans()
    children = Children()
    launcher = ForkLauncher(children, Path(log))
    launcher.begin()
    try:
        for line in sys.stdin:
            one = json.loads(line)
            order = ServerOrder(
                arguments=tuple(one["arguments"]), environment=one["environment"], log=Path(one["log"])
            )
            pid = _started(launcher, order)
            half = Path(one["told"]).with_suffix(".half")
            half.write_text(str(pid))
            half.rename(one["told"])
            for ended in children.ended():
                children.forget(ended)
    finally:
        launcher.close()
        children.close()


def _started(launcher: ForkLauncher, order: ServerOrder) -> int:
    while True:
        try:
            return launcher.start(order)
        except NotYetError:
            time.sleep(_POLL_S)


if __name__ == "__main__":
    main(sys.argv[1])
