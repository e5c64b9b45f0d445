"""One vLLM server of the shipped model that accepts faults, with simulated users; for benchmarks."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np

from contracts.errors import MeasurementError
from contracts.rng import stream
from faults.client.launch import drill_arguments
from faults.client.replica import ReplicaFaults
from live.errors import LiveError
from live.fleet.launchers import server_command, server_environment
from live.load import SLICE_HEADER
from live.measure.checkpoint import SHIPPED_MODEL
from live.measure.prompts import Prompt
from live.measure.steps.streamed_answers import payloads

NAME = "shipped"
BLOCK_TOKENS, CONTEXT_TOKENS = 32, 1024
_START_S, _POLL_S = 300.0, 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillServer:
    """Its address and the client that steers its faults."""

    url: str
    faults: ReplicaFaults


@contextmanager
def drill_server(folder: Path) -> Iterator[DrillServer]:
    """A warm float16 server that ends with this process at the latest.

    Raises LiveError if it does not start; its log is ``folder / "server.log"``.
    """
    started = drill_arguments(folder / "drill")
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        port = int(door.getsockname()[1])
    command = server_command("serve", (
        "--model", str(SHIPPED_MODEL), "--host", "127.0.0.1", "--port", str(port),
        "--served-model-name", NAME, "--enforce-eager", "--dtype", "float16",
        "--max-model-len", str(CONTEXT_TOKENS), "--kv-cache-memory-bytes", "64M",
        "--block-size", str(BLOCK_TOKENS), "--max-num-seqs", "16", *started.arguments,
    ))  # fmt: skip
    log = folder / "server.log"
    with log.open("wb") as file:
        child = subprocess.Popen(
            command,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=server_environment() | started.environment,
            start_new_session=True,
        )
    try:
        url = f"http://127.0.0.1:{port}"
        _await(child, url, log)
        yield DrillServer(url=url, faults=ReplicaFaults(url, started.token_file, folder / "records"))
    finally:
        with suppress(ProcessLookupError):  # SIGKILL, because its engine may hang on purpose
            os.killpg(child.pid, signal.SIGKILL)
        child.wait(timeout=60)


def _await(child: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline_at_s = time.monotonic() + _START_S
    while time.monotonic() < deadline_at_s:
        if child.poll() is not None:
            raise LiveError(f"the server ended at once; see {log}")
        with suppress(httpx.HTTPError):
            if httpx.get(f"{url}/health", timeout=2.0, trust_env=False).status_code == httpx.codes.OK:
                return
        time.sleep(_POLL_S)
    raise LiveError(f"the server did not answer within {_START_S:g} s; see {log}")


@contextmanager
def send_user_load(url: str, prompts: Sequence[Prompt], seed: int, count: int = 3) -> Iterator[None]:
    """Context with the load of ``count`` concurrent users, each in a closed loop.

    Three in four requests are streamed, one in eight of those is cancelled early, and one in sixteen requests
    asks for a grammar. The users know nothing of faults or probes, and their answers are not judged.
    """
    ended = threading.Event()
    rngs = [stream(seed, "users", str(number)) for number in range(count)]
    threads = [threading.Thread(target=_user, args=(url, prompts, rng, ended), daemon=True) for rng in rngs]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def _user(url: str, prompts: Sequence[Prompt], rng: np.random.Generator, ended: threading.Event) -> None:
    with httpx.Client(timeout=5.0, trust_env=False) as client:
        while not ended.is_set():
            with suppress(httpx.HTTPError, MeasurementError):
                _request(client, url, prompts[int(rng.integers(len(prompts)))], rng)
            ended.wait(float(rng.exponential(0.2)))


def _request(client: httpx.Client, url: str, prompt: Prompt, rng: np.random.Generator) -> None:
    tokens = list(prompt.token_ids[: int(rng.integers(8, len(prompt.token_ids) + 1))])
    leaves, grammar, whole = (rng.random() < 1.0 / one_in for one_in in (8.0, 16.0, 4.0))
    body: dict[str, object] = {
        "model": NAME,
        "prompt": tokens,
        "max_tokens": int(rng.integers(8, 48)),
        "temperature": 0.7,
        "seed": int(rng.integers(2**31)),
        "stream": not whole,
    }
    if grammar:
        body["structured_outputs"] = {"regex": "(yes|no), [0-9]{1,4}"}
    headers = {SLICE_HEADER: prompt.slice}
    if whole:
        client.post(f"{url}/v1/completions", json=body, headers=headers)
        return
    with client.stream("POST", f"{url}/v1/completions", json=body, headers=headers) as answer:
        for count, _ in enumerate(payloads(answer)):
            if leaves and count >= 2:
                return
