"""One vLLM API server, or a process that forks such servers fast. EDGE: runs inside a vLLM process.

Imports only the standard library and vllm (and torch through it).

``vllm_server.py serve ARGUMENTS...`` is vLLM's API server, which dies with its parent.
``vllm_server.py fork FD`` imports vLLM once, then forks a server for each line of JSON received on the socket
``FD`` (``{"arguments": [...], "environment": {...}, "log": path, "supervisor": pid}``, answered by
``{"pid": n}``). A start takes one second instead of twenty, and most memory is shared. It ends when the
socket is closed.

Nothing may outlive the supervisor. Each process asks the operating system to kill it when its parent ends:
the API server, its engine, and the engine's workers. A forked server becomes a child of the supervisor (which
adopts orphans), so servers survive the forking process. Without this, the engine of a killed API server would
live on and keep its port.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import signal
import socket
import sys
import time
import traceback
from typing import Any

_PR_SET_PDEATHSIG = 1
_ADOPTION_S = 10.0
#: Modules that a server of a small model imports anyway; missing ones are skipped.
_PRELOADED = (
    "transformers",
    "uvloop",
    "torch._dynamo",
    "vllm.entrypoints.generate.api_router",
    "vllm.entrypoints.launchers.cli_args",
    "vllm.entrypoints.openai.chat_completion.serving",
    "vllm.entrypoints.openai.completion.serving",
    "vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors",
    "vllm.model_executor.model_loader",
    "vllm.model_executor.models.llama",
    "vllm.v1.attention.backends.cpu_attn",
    "vllm.v1.core.sched.scheduler",
    "vllm.v1.engine.async_llm",
    "vllm.v1.engine.core",
    "vllm.v1.executor.uniproc_executor",
    "vllm.v1.structured_output",
    "vllm.v1.worker.cpu_worker",
)


def die_with(parent: int) -> None:
    """Be killed when the process ``parent`` ends, or at once if it has ended already. Linux."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def children_die_with_us() -> None:
    """Every process forked from now on dies with its parent."""
    known: list[int] = []
    os.register_at_fork(
        before=lambda: known.append(os.getpid()),
        after_in_parent=known.clear,
        after_in_child=lambda: die_with(known[-1]),
    )


def serve(arguments: list[str]) -> None:
    """Run vLLM's API server with ``arguments`` until it ends."""
    from vllm.entrypoints.launchers.api_server.entry import main as run_server

    sys.argv = ["api_server", *arguments]
    run_server()


def fork_engines() -> None:
    """Let the CPU platform fork its engine, although vLLM would spawn it: it is single-threaded at that
    point.
    """
    from vllm.platforms import cpu, current_platform

    if current_platform.device_type != "cpu":
        raise SystemExit("forked servers need a CPU build of vLLM; start them singly")
    checked: Any = cpu.CpuPlatform.check_and_update_config.__func__

    def check_then_fork(cls: Any, config: Any) -> None:
        checked(cls, config)
        os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "fork"

    cpu.CpuPlatform.check_and_update_config = classmethod(check_then_fork)


def inspect_models_here() -> None:
    """Let vLLM inspect a model's class in this process, not in a subprocess that imports everything again.

    The subprocess is meant for devices that must not be opened before a fork; a CPU is no such device.
    """
    registry = importlib.import_module("vllm.model_executor.models.registry")
    if hasattr(registry, "_run_in_subprocess"):
        vars(registry)["_run_in_subprocess"] = lambda look: look()


def preload() -> None:
    """Import the modules that every server needs."""
    for name in _PRELOADED:
        try:
            importlib.import_module(name)
        except ImportError as error:
            print(f"not preloaded: {name}: {error}", flush=True)


def fork_server(order: dict[str, Any], door: socket.socket) -> int:
    """Fork a server that becomes a child of the supervisor; returns its process id."""
    read, write = os.pipe()
    middle = os.fork()
    if middle:
        os.close(write)
        with os.fdopen(read) as told:
            text = told.read()
        os.waitpid(middle, 0)
        return int(text)
    os.close(read)
    server = os.fork()
    if server:
        os.write(write, str(server).encode())
        os._exit(0)
    os.close(write)
    # Not ``close``: the file object on the socket would keep it open, and the supervisor would miss our end.
    os.close(door.detach())
    _become_server(order)
    return 0


def _become_server(order: dict[str, Any]) -> None:
    code = 1
    try:
        log = os.open(order["log"], os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.setsid()
        _await_adoption(order["supervisor"])
        children_die_with_us()
        os.environ.update(order["environment"])
        staged = order["environment"].get("PYTHONPATH", "")  # only a new interpreter would read it
        sys.path[:0] = [path for path in staged.split(os.pathsep) if path]
        serve(order["arguments"])
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:  # any failure goes to the log and ends the process
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _await_adoption(supervisor: int) -> None:
    """Wait until the intermediate process has ended and the supervisor is the parent."""
    deadline_at_s = time.monotonic() + _ADOPTION_S
    while os.getppid() != supervisor:
        if time.monotonic() > deadline_at_s:
            raise SystemExit("the supervisor did not adopt this server; it must be a child subreaper")
        time.sleep(0.001)
    die_with(supervisor)


def fork_on_demand(descriptor: int) -> None:
    """Serve fork requests on the socket ``descriptor`` until the other end closes it."""
    door = socket.socket(fileno=descriptor)
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "fork"
    preload()
    inspect_models_here()
    fork_engines()
    gc.collect()
    gc.freeze()
    orders = door.makefile("r", encoding="utf-8")
    door.sendall(b'{"ready": true}\n')
    for line in orders:
        door.sendall(json.dumps({"pid": fork_server(json.loads(line), door)}).encode() + b"\n")


def main(arguments: list[str]) -> None:
    """Run ``serve ARGUMENTS...`` or ``fork FD``. SELVAGE_PARENT: the process to die with."""
    die_with(int(os.environ["SELVAGE_PARENT"]))
    if arguments[0] == "fork":
        fork_on_demand(int(arguments[1]))
    else:
        children_die_with_us()
        serve(arguments[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
elif __name__ == "__mp_main__":
    # An engine or worker spawned by multiprocessing imports the main module first.
    die_with(os.getppid())
