"""Faults of an engine with two worker processes, each with half of every layer."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import wait
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from faults.client.wire import DrillError, DrillRefusedError, steer
from tests.faults.inside.test_document import scheduled
from tests.support.servers.drilled_server import TTL_S, Server, drilled_server, measured

pytestmark = [pytest.mark.needs("vllm", "torch"), pytest.mark.slow]

RANKS = 2
TWO_WORKERS = ("--tensor-parallel-size", str(RANKS), "--distributed-executor-backend", "mp")


@pytest.fixture(scope="module")
def started_ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server, started once for this file."""
    with drilled_server(tmp_path_factory.mktemp("ranks"), more=TWO_WORKERS, forked=False) as server:
        yield server


@pytest.fixture
def server(started_ranks: Server) -> Iterator[Server]:
    """The server without a fault; a test that fails leaves none to the next one."""
    yield started_ranks
    with suppress(DrillError):
        started_ranks.faults.undo()


def undo(server: Server) -> dict[str, Any]:
    """End all faults; what the server answers."""
    return steer(server.url, "undo", server.started.token_file, {}, within_s=60.0)


def hits(server: Server) -> list[int]:
    """Number of strikes of the fault in force, on each rank."""
    return [rank["faults"][0]["hits"] for rank in server.faults.status()["engine"]["ranks"]]


@contextmanager
def stopped(process: int) -> Iterator[None]:
    """The process is stopped during the block."""
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)


def below(process: int) -> list[int]:
    """Descendants of ``process``."""
    own = [int(each) for each in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    return [found for child in own for found in (child, *below(child))]


def worker(server: Server, rank: int) -> int:
    """The process of one rank, by vLLM's process title."""
    titles = {each: Path(f"/proc/{each}/cmdline").read_bytes() for each in below(server.process)}
    return next(each for each, title in titles.items() if title.startswith(f"VLLM::Worker_TP{rank}".encode()))


@pytest.mark.parametrize("kind", [measured("requantise", bits=3), measured("noise", relative=0.3)])
def test_wrong_weights_are_on_every_rank_and_gone_from_every_rank(server: Server, kind: Any) -> None:
    """Each rank's canary differs under the fault, and equals the earlier one, bit for bit, after the undo."""
    clean = server.text(tokens=40)
    injected = server.faults.inject(kind, TTL_S)
    ranks = injected.evidence["ranks"]
    assert len(ranks) == RANKS
    assert len({canary for rank in ranks for canary in (rank["canary_before"], rank["canary_after"])}) == 4
    assert server.text(tokens=40) != clean
    proof = server.faults.verify(injected)
    assert proof.happened
    assert proof.evidence.endswith("on 2 of 2 ranks")
    after = undo(server)
    assert after["canary_is_clean"]
    assert [rank["canary"] for rank in after["ranks"]] == [rank["canary_before"] for rank in ranks]
    assert server.text(tokens=40) == clean


def test_weights_rebuilt_as_they_were_prove_nothing(server: Server) -> None:
    """Negative control: noise of size zero changes no rank, no answer, and is no fault."""
    clean = server.text()
    injected = server.faults.inject(measured("noise", relative=0.0), TTL_S)
    assert all(rank["canary_before"] == rank["canary_after"] for rank in injected.evidence["ranks"])
    assert server.text() == clean
    assert not server.faults.verify(injected).happened
    assert server.faults.undo().clean


def test_one_bit_flips_on_one_rank(server: Server) -> None:
    """One flip changes one shard, whichever rank holds it, and is proved; over some seeds both hold one."""
    owners = set()
    for seed in range(6):
        injected = server.faults.inject(measured("bit_flips", bit=14, count=1, seed=seed), TTL_S)
        changed = [rank["canary_before"] != rank["canary_after"] for rank in injected.evidence["ranks"]]
        assert changed.count(True) == 1
        assert server.faults.verify(injected).happened
        assert server.faults.undo().clean
        owners.add(changed.index(True))
    assert owners == {0, 1}


def test_a_step_is_slow_on_every_rank(server: Server) -> None:
    """Each rank's step takes the added time, once and not twice, and the text is the clean one."""
    clean = server.text()
    injected = server.faults.inject(scheduled("slow", dose=1.0, live={"extra_ms": 30.0}), TTL_S)
    started = time.monotonic()
    assert server.text() == clean
    assert time.monotonic() - started >= 16 * 0.030
    assert hits(server) == [16, 16]
    assert server.faults.verify(injected).happened
    assert server.faults.undo().clean


def test_all_ranks_sample_from_the_same_wrong_logits(server: Server) -> None:
    """Every rank is struck alike, so none of them goes on from another token than the others."""
    clean = server.text()
    server.faults.inject(scheduled("logit_noise", dose=8.0), TTL_S)
    struck = server.text()
    assert struck != clean
    assert hits(server) == [16, 16]
    assert server.faults.undo().clean
    assert server.text() == clean


def test_weights_are_wrong_in_the_same_steps_on_every_rank(server: Server) -> None:
    """A fault of later tokens leaves the first ones alone, and strikes every rank as often."""
    clean = server.text()
    trigger = {"min_generated_tokens": 10}
    server.faults.inject(
        scheduled("noise", condition="as-measured", live={"relative": 2.0}, trigger=trigger), TTL_S
    )
    struck = server.text()
    assert struck != clean
    assert struck[:8] == clean[:8]
    assert hits(server) == [6, 6]
    assert server.faults.undo().clean
    assert server.text() == clean


def test_each_worker_ends_a_fault_when_its_lease_expires(server: Server) -> None:
    """While the API process is stopped, every rank ends the fault by its own timer."""
    clean = server.text()
    server.faults.inject(measured("noise", relative=0.5), 2.0)
    server.faults.inject(scheduled("hang", name="hang"), 2.0)
    with stopped(server.process):
        time.sleep(3.0)
    status = server.faults.status()
    assert [sorted(rank["expired"]) for rank in status["engine"]["ranks"]] == [["f", "hang"]] * RANKS
    assert server.faults.undo().clean
    assert server.text() == clean


@pytest.mark.parametrize("rank", range(RANKS))
def test_a_worker_that_answers_late_loses_no_later_call(server: Server, rank: int) -> None:
    """A late answer is matched to its own call: later steps and calls get their own answers."""
    clean = server.text()
    with stopped(worker(server, rank)):
        assert server.faults.status()["engine"] is None
        time.sleep(1.0)
    assert server.text() == clean
    assert server.faults.status()["engine"]["faults"] == []
    assert server.text() == clean


def test_a_hang_ends_on_every_rank(server: Server) -> None:
    """During a hang the engine answers no call; after the undo, requests continue."""
    clean = server.text()
    injected = server.faults.inject(scheduled("hang"), TTL_S)
    waiting = [server.pool.submit(server.text) for _ in range(3)]
    time.sleep(0.5)
    assert [server.faults.verify(injected).evidence for _ in range(2)] == ["the engine answers no call"] * 2
    assert not any(each.done() for each in waiting)
    assert server.faults.undo().clean
    assert {each.result() for each in waiting} == {clean}


def test_what_no_worker_can_do_is_refused_and_leaves_nothing(server: Server) -> None:
    """The scheduler's blocks are in another process than the workers."""
    with pytest.raises(DrillRefusedError, match="another process"):
        server.faults.inject(scheduled("kv_pressure", dose=0.5), TTL_S)
    assert server.faults.status()["injected"] == []


def test_a_crash_ends_all_processes(server: Server) -> None:
    """Last, because it ends the server: workers die, and engine and API go with them."""
    processes = [server.process, *below(server.process)]
    injected = server.faults.inject(scheduled("crash"), TTL_S)
    wait([server.pool.submit(server.answer) for _ in range(2)], 30.0)
    deadline = time.monotonic() + 120.0
    while any(_runs(each) for each in processes):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert server.faults.verify(injected).happened
    assert server.faults.undo().gone


def _runs(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
