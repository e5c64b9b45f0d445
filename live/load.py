"""Open-loop load generator: completions are sent at their due times, and each leaves a record.

A closed loop would hide a stall, because no client sends while it waits. Prompts are random token ids, never
users' text.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.documents.drill import DrillLoad
from contracts.errors import MissingPartError
from contracts.rng import stream
from faults.client.wire import bearer

SLICE_HEADER = "x-selvage-slice"
REPLICA_HEADER = "x-selvage-replica"
#: Content of the last event of a streamed answer.
DONE = b"[DONE]"
#: Range of token ids that every vocabulary has: after the special tokens, below the smallest size.
_TOKENS = 5, 2000


#: The defaults of a drill's load.
_UNSAID = DrillLoad(rate_rps=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """The load to send: a Poisson process of ``rate_rps`` for ``seconds``, with the slices in turn."""

    url: str
    rate_rps: float
    seconds: float
    slices: tuple[str, ...]
    model: str = "selvage"
    prompt_tokens: int = _UNSAID.prompt_tokens
    answer_tokens: int = _UNSAID.answer_tokens
    streamed_ratio: float = _UNSAID.streamed_ratio
    timeout_s: float = _UNSAID.timeout_s
    seed: int = 1
    shares: tuple[float, ...] = ()  # probability of each slice; empty: the slices in turn
    arrivals_at_s: tuple[float, ...] = ()  # instants from the start, instead of the Poisson process
    api_key: str = field(default="", repr=False)  # sent with every request, never along a redirect
    lengths: tuple[tuple[int, int], ...] = ()  # prompt and answer tokens of each request; empty: all the same


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRecord:
    """One request. started_at_s: on the monotonic clock. status 0: no answer began.

    complete: answered to its end with HTTP 200. begun: the client received a first byte of the body.
    """

    started_at_s: float
    slice: str
    streamed: bool
    status: int
    complete: bool
    begun: bool
    replica: str
    first_ms: float  # to the first byte of the body, NaN without one
    duration_ms: float
    error: str


@dataclass(slots=True)
class LoadTap:
    """Access to a running load from another thread: the records so far, and a way to stop it."""

    records: list[LoadRecord] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Due:
    """A request to send, and its due time from the start."""

    at_s: float
    slice: str
    streamed: bool
    prompt: list[int]
    answer_tokens: int


def run_load(
    plan: LoadPlan, during: Callable[[], None] | None = None, tap: LoadTap | None = None
) -> list[LoadRecord]:
    """Send all requests and wait until each has ended; ``during`` runs in a thread meanwhile.

    Returns the records by start. Raises MissingPartError without aiohttp, and whatever ``during`` raises.
    """
    return asyncio.run(_run(plan, during, tap or LoadTap()))


async def _run(plan: LoadPlan, during: Callable[[], None] | None, tap: LoadTap) -> list[LoadRecord]:
    http = client_library()
    limits = http.ClientTimeout(total=plan.timeout_s)
    async with http.ClientSession(connector=http.TCPConnector(limit=0), timeout=limits) as session:
        beside = asyncio.create_task(asyncio.to_thread(during)) if during else None
        began_at_s, sent = time.monotonic(), []
        for due in _arrivals(plan):
            await asyncio.sleep(max(0.0, began_at_s + due.at_s - time.monotonic()))
            if tap.stop.is_set():
                break
            sent.append(asyncio.create_task(_request(session, plan, due)))
            sent[-1].add_done_callback(lambda task: tap.records.append(task.result()))
        records = list(await asyncio.gather(*sent))
        if beside is not None:
            await beside
    return sorted(records, key=lambda record: record.started_at_s)


def drawn_tokens(rng: np.random.Generator, size: int | tuple[int, ...]) -> NDArray[np.int64]:
    """Random token ids of shape ``size`` that every vocabulary has."""
    return rng.integers(*_TOKENS, size)


def _arrivals(plan: LoadPlan) -> Iterator[_Due]:
    rng, mix = stream(plan.seed, "live_load"), stream(plan.seed, "live_load_slices")
    for number, at_s in enumerate(plan.arrivals_at_s or _poisson(plan, rng)):
        place = number % len(plan.slices)
        if plan.shares:
            place = int(mix.choice(len(plan.slices), p=plan.shares))
        prompt, answer = plan.lengths[number] if plan.lengths else (plan.prompt_tokens, plan.answer_tokens)
        yield _Due(
            at_s=at_s,
            slice=plan.slices[place],
            streamed=bool(rng.random() < plan.streamed_ratio),
            prompt=drawn_tokens(rng, prompt).tolist(),
            answer_tokens=answer,
        )


def _poisson(plan: LoadPlan, rng: np.random.Generator) -> Iterator[float]:
    at_s = float(rng.exponential(1.0 / plan.rate_rps))
    while at_s < plan.seconds:
        yield at_s
        at_s += float(rng.exponential(1.0 / plan.rate_rps))


async def _request(session: Any, plan: LoadPlan, due: _Due) -> LoadRecord:
    body = {
        "model": plan.model,
        "prompt": due.prompt,
        "max_tokens": due.answer_tokens,
        "temperature": 0.0,
        "ignore_eos": True,
        "stream": due.streamed,
    }
    started_at_s = time.monotonic()
    status, replica, error, first_at_s, last = 0, "", "", float("nan"), b""
    try:
        headers = {SLICE_HEADER: due.slice, **bearer(plan.api_key)}
        call = session.post(
            f"{plan.url}/v1/completions", json=body, headers=headers, allow_redirects=not plan.api_key
        )
        async with call as answer:
            status, replica = answer.status, answer.headers.get(REPLICA_HEADER, "")
            async for part in answer.content.iter_any():
                first_at_s = time.monotonic() if np.isnan(first_at_s) else first_at_s
                last = (last + part)[-64:]
    except Exception as failure:  # whatever ended the request is recorded
        error = type(failure).__name__
    whole = status == 200 and not error and (not due.streamed or DONE in last)
    return LoadRecord(
        started_at_s=started_at_s,
        slice=due.slice,
        streamed=due.streamed,
        status=status,
        complete=whole,
        begun=not np.isnan(first_at_s),
        replica=replica,
        first_ms=1000.0 * (first_at_s - started_at_s),
        duration_ms=1000.0 * (time.monotonic() - started_at_s),
        error=error,
    )


def client_library() -> Any:
    """aiohttp; MissingPartError if it is not installed."""
    try:
        import aiohttp
    except ModuleNotFoundError:
        raise MissingPartError(
            "aiohttp is not installed; run `make setup-test` or `pip install 'selvage-fleet[live]'`"
        ) from None
    return aiohttp
