"""Real vLLM servers on the loopback interface, for as long as a test needs them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

from tests.support.guarded import Guard

_START_S = 400.0


def free_port() -> int:
    """A port that is closed now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def serving(words: Sequence[str], port: int, folder: Path) -> Iterator[str]:
    """Python of vLLM with ``words`` in ``folder``; yields its URL once it answers, and ends it afterwards.

    Raises AssertionError with the end of its log if it does not start.
    """
    from live.measure.backends.vllm_backend import vllm_python

    command = [vllm_python(), *words]
    environment = dict(os.environ, OMP_NUM_THREADS="1", VLLM_ENABLE_V1_MULTIPROCESSING="0")
    log = folder / f"server-{port}.log"
    with Guard() as guard:
        with log.open("wb") as file:
            child = subprocess.Popen(
                command, cwd=folder, stdout=file, stderr=file, env=environment, start_new_session=True
            )
        guard.watch(child.pid)
        try:
            _wait(child, f"http://127.0.0.1:{port}/health", log)
            yield f"http://127.0.0.1:{port}"
        finally:
            with suppress(ProcessLookupError):  # it may have ended by itself
                os.killpg(child.pid, signal.SIGTERM)
            child.wait(timeout=120)
            guard.forget(child.pid)


def _wait(child: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        told = log.read_text(errors="replace")[-2000:]
        assert child.poll() is None, f"the server ended at once:\n{told}"
        try:
            if httpx.get(url, timeout=2.0).status_code == 200:
                return
        except httpx.HTTPError:
            time.sleep(0.3)
    raise AssertionError(f"the server did not answer within {_START_S:.0f} s:\n{log.read_text()[-2000:]}")
