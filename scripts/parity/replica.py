"""The observed replica: one that is running, or one that is started, with a clock for its steps."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from contracts.documents.pool import EngineLimits
from contracts.errors import refusal
from live.errors import LiveError
from live.fleet.background import running_fleet
from live.fleet.plan import ServerOptions, has_amx, load_pool, plan_fleet
from live.fleet.processes import engine_of, process_clock
from live.fleet.state import FleetFolder
from live.fleet.supervisor import SupervisorOptions

_POOL = """apiVersion: selvage.dev/v1alpha1
kind: KernelPool
metadata: {{name: parity}}
spec:
  kernels:
    - name: {kernel}
      profile: none.yaml
      replicas: 1
      role: known_good
      limits: {{max_sequences: {sequences}, max_batch_tokens: {tokens}}}
  home:
    - {{slice: parity, kernel: {kernel}}}
"""
_WATERMARK_BLOCKS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ParityReplica:
    """A running server. clock: of its engine's CPU time in s, or wall time if that is unknown."""

    kernel: str
    url: str
    model: str
    limits: EngineLimits
    clock: Callable[[], float]


def default_kernel() -> str:
    """The kernel with this processor's half precision."""
    return "fp16" if has_amx() else "bf16"


@contextmanager
def one_replica(
    kernel: str, limits: EngineLimits, cores: tuple[int, ...], place: Path
) -> Iterator[ParityReplica]:
    """One server of ``kernel``, state and logs in ``place``, on ``cores`` (none: all); stopped at the end."""
    with ExitStack() as stack:
        written = place / "pool.yaml"
        written.write_text(
            _POOL.format(kernel=kernel, sequences=limits.max_sequences, tokens=limits.max_batch_tokens)
        )
        plan = plan_fleet(*load_pool(str(written)), ServerOptions(), place / "checkpoints")
        folder = FleetFolder(path=place / "fleet")
        with pinned(cores):
            state = stack.enter_context(running_fleet(folder, plan, SupervisorOptions()))
        server = state.servers[0]
        engine = engine_of(server.process.pid) if server.process else None
        if engine is None:
            raise LiveError(f"{server.name}: its engine's process was not found")
        yield ParityReplica(
            kernel=kernel,
            url=server.url,
            model=state.served_name,
            limits=with_cache(limits, server.url),
            clock=process_clock(engine),
        )


def running(url: str, model: str, process: int, limits: EngineLimits) -> ParityReplica:
    """The server at ``url``; ``process``: of its engine on this machine, 0 if it is elsewhere."""
    clock = process_clock(process) if process else time.perf_counter
    return ParityReplica(
        kernel=model, url=url.rstrip("/"), model=model, limits=with_cache(limits, url), clock=clock
    )


def with_cache(limits: EngineLimits, url: str) -> EngineLimits:
    """``limits`` with the size of the KV cache, if the server exports it."""
    from prometheus_client.parser import text_string_to_metric_families

    try:
        text = httpx.get(f"{url.rstrip('/')}/metrics", timeout=10.0).text
        found = [
            sample.labels
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name.startswith("vllm:cache_config_info")
        ]
        blocks, tokens = int(found[0]["num_gpu_blocks"]), int(found[0]["block_size"])
    except (httpx.HTTPError, IndexError, KeyError, ValueError):
        return limits
    if tokens & (tokens - 1):
        return limits
    return limits.model_copy(update={"kv_blocks": max(blocks, _WATERMARK_BLOCKS), "block_tokens": tokens})


@contextmanager
def pinned(cores: tuple[int, ...]) -> Iterator[None]:
    """Keep the calling process, and processes it starts meanwhile, on ``cores``; none: unchanged."""
    before = os.sched_getaffinity(0)
    if not set(cores) <= before:
        message = ",".join(map(str, sorted(before)))
        raise refusal("--cores", f"some of {message}", ",".join(map(str, cores)), "name others")
    if cores:
        os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
