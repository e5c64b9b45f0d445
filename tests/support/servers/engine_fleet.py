"""Several real vLLM servers at the price of one import, as a program: forked, and gone when its stdin ends.

``python -m tests.support.servers.engine_fleet LOG`` reads one line of JSON, a list of orders
(``{"arguments": [...], "environment": {...}, "log": path}``), starts a server for each, and waits for the end
of its stdin. It is the servers' parent, so that no thread of a test is: servers die with the *thread* that
started them.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from live.fleet.children import Children
from live.fleet.launchers import ForkLauncher, NotYetError, ServerOrder
from live.fleet.processes import adopt_orphans
from tests.support.guarded import guarded
from tests.support.paths import ROOT

_POLL_S = 0.1


@contextmanager
def engines(orders: Sequence[ServerOrder], log: Path) -> Iterator[None]:
    """Servers of ``orders``, which begin to start; all are gone after the block."""
    command = [
        sys.executable,
        "-m",
        "tests.support.servers.engine_fleet",
        str(log.with_suffix(".forker.log")),
    ]
    told = [
        {"arguments": list(one.arguments), "environment": dict(one.environment), "log": str(one.log)}
        for one in orders
    ]
    with guarded(command, log, {**os.environ, "PYTHONPATH": str(ROOT)}) as parent:
        assert parent.stdin is not None
        parent.stdin.write(json.dumps(told).encode() + b"\n")
        parent.stdin.flush()
        yield


def main(log: str) -> None:
    """Start what is asked for, and wait until nobody wants it any more."""
    orders = [
        ServerOrder(arguments=tuple(one["arguments"]), environment=one["environment"], log=Path(one["log"]))
        for one in json.loads(sys.stdin.readline())
    ]
    adopt_orphans()
    children = Children()
    launcher = ForkLauncher(children, Path(log))
    launcher.begin()
    try:
        for order in orders:
            _start(launcher, order)
        print(f"{len(orders)} servers were forked", flush=True)
        sys.stdin.read()
    finally:
        launcher.close()
        children.close()


def _start(launcher: ForkLauncher, order: ServerOrder) -> None:
    while True:
        try:
            launcher.start(order)
        except NotYetError:
            time.sleep(_POLL_S)
        else:
            return


if __name__ == "__main__":
    main(sys.argv[1])
