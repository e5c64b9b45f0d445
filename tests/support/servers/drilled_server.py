"""A real vLLM server of the shipped model that was started for drills, and faults that show at once."""

from __future__ import annotations

import http.client
import json
import os
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from contracts.documents.scenario import ScheduledFault
from faults.client.launch import DrillArguments, drill_arguments
from faults.client.replica import ReplicaFaults
from faults.client.wire import DrillError, HttpAnswer, call
from faults.inside import gate
from live.fleet.launchers import ServerOrder
from live.fleet.processes import group_members
from live.measure.checkpoint import SHIPPED_MODEL
from tests.faults.inside.test_document import scheduled
from tests.support.guarded import guarded
from tests.support.servers.engine_fleet import engines

START_S = 250.0
BLOCK = 32
PROMPT = tuple(range(50, 110))
TTL_S = 60.0
SLICE = "x-selvage-slice"
#: vLLM would put each rank on a NUMA node of its own; this machine may have one.
UNBOUND = {"VLLM_CPU_OMP_THREADS_BIND": "nobind"}
ENGINE_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}


@dataclass
class Server:
    """A running server, and the control of its faults."""

    url: str
    faults: ReplicaFaults
    started: DrillArguments
    records: Path
    process: int
    """Process id of the server; its engine and the engine's workers are descendants."""
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(16))

    def answer(self, prompt: tuple[int, ...] = PROMPT, tokens: int = 16, **more: Any) -> HttpAnswer:
        """Greedy answer to ``prompt``; ``headers`` go with the request, the rest into its body."""
        headers = more.pop("headers", None)
        body = {
            "model": "shipped",
            "prompt": list(prompt),
            "max_tokens": tokens,
            "temperature": 0.0,
            "ignore_eos": True,
            **more,
        }
        return call(f"{self.url}/v1/completions", body, within_s=60.0, headers=headers)

    def text(self, prompt: tuple[int, ...] = PROMPT, tokens: int = 16, **more: Any) -> str:
        """Text of the greedy answer."""
        return str(self.answer(prompt, tokens, **more).content["choices"][0]["text"])

    def stream(self, tokens: int, *, read: int | None = None) -> bytes:
        """A streamed answer; the client disconnects after ``read`` bytes."""
        port = int(self.url.rpartition(":")[2])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60.0)
        body = {
            "model": "shipped",
            "prompt": list(PROMPT),
            "max_tokens": tokens,
            "temperature": 0.0,
            "ignore_eos": True,
            "stream": True,
        }
        connection.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
        answer = connection.getresponse()
        try:
            return answer.read(read)
        finally:
            answer.close()
            connection.close()


def engine_command(host: str, port: int, model: str, started: DrillArguments) -> list[str]:
    """A vLLM server of the shipped model, called ``model``, as drills start one."""
    from live.measure.backends.vllm_backend import vllm_python

    words = engine_arguments(host, port, model, "float16")
    return [vllm_python(), "-m", "vllm.entrypoints.openai.api_server", *words, *started.arguments]


def engine_arguments(host: str, port: int, model: str, dtype: str) -> list[str]:
    """Arguments of a vLLM server of the shipped model, without those that enable drills."""
    # Not bfloat16: on a processor with AMX vllm-cpu 0.32.0 then chooses its AMX attention, and crashes.
    return [
        "--model", str(SHIPPED_MODEL), "--host", host, "--port", str(port), "--served-model-name", model,
        "--enforce-eager", "--dtype", dtype, "--max-model-len", "1024", "--kv-cache-memory-bytes", "16M",
        "--block-size", str(BLOCK), "--max-num-seqs", "16",
    ]  # fmt: skip


@contextmanager
def drilled_server(
    folder: Path, door: int = 0, more: tuple[str, ...] = (), *, forked: bool = True
) -> Iterator[Server]:
    """A vLLM server in half precision that was started for drills, warm; killed at the end.

    door: port for drills, 0 for its own. more: further arguments. forked: as fleets on a CPU start servers,
    which takes a second; otherwise by its command line, as on a GPU and in a pod.
    """
    started = drill_arguments(folder / "drill")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    own = {gate.PORT: str(door), gate.REPLICA: "pod-0"} if door else {}
    log = folder / "server.log"
    words = engine_arguments("127.0.0.1", port, "shipped", "float16")
    order = ServerOrder(
        arguments=(*words, *started.arguments, *more),
        environment=ENGINE_ENVIRONMENT | UNBOUND | started.environment | own,
        log=log,
    )
    with ExitStack() as stack:
        process = stack.enter_context(_forked(order) if forked else _by_command(order))
        url = f"http://127.0.0.1:{port}"
        await_server(process, url, log)
        steered = f"http://127.0.0.1:{door}" if door else url
        faults = ReplicaFaults(steered, started.token_file, folder / "records")
        records = folder / "records"
        running = Server(url=url, faults=faults, started=started, records=records, process=process)
        running.text()
        yield running


@contextmanager
def _forked(order: ServerOrder) -> Iterator[int]:
    with engines([order]) as processes:
        (process,) = processes()
        yield process


@contextmanager
def _by_command(order: ServerOrder) -> Iterator[int]:
    from live.measure.backends.vllm_backend import vllm_python

    command = [vllm_python(), "-m", "vllm.entrypoints.openai.api_server", *order.arguments]
    with guarded(command, order.log, os.environ | order.environment) as child:
        yield child.pid


def await_server(process: int, url: str, log: Path) -> None:
    """Wait until the server at ``url`` answers; the test fails with the end of ``log`` if it does not."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if not group_members(process):
            pytest.fail(f"the server ended at once:\n{log.read_text(errors='replace')[-2000:]}")
        try:
            if call(f"{url}/health", within_s=2.0).status == 200:
                return
        except DrillError:
            time.sleep(0.3)
    pytest.fail(f"the server did not answer within {START_S:.0f} s")


def measured(kind: str, **live: Any) -> ScheduledFault:
    """A numeric fault; ``live`` gives its size."""
    return scheduled(kind, condition="as-measured", live=live)


def token_fault(**trigger: Any) -> ScheduledFault:
    """A fault that shows at once in the text of the struck server."""
    return scheduled("repeat_token", live={"token": 7}, trigger=trigger)
