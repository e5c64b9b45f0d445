"""The prober against servers that answer, lie, fail, refuse and hang."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import numpy as np
import pytest

from contracts.compiled.contract import FleetLayout
from contracts.telemetry import ProbeOutcome, ProbeSamples
from live.measure.backend import TopScores
from live.measure.backends.openai_backend import TOP_K
from live.measure.prompts import Prompt
from live.probe.answers import YieldedError
from live.probe.kinds import Asking, GenerationPrompt
from live.probe.prefill import ProbeAnswer, probe
from live.probe.prober import ProbePlan, Prober
from live.probe.schedule import Lane, ProbeBudget
from tests.support.servers.generating import lane_prober

PROMPT = Prompt(id=7, slice="prose", split="probe", document="d", token_ids=(0, 5, 6), text="")
LOGS = np.log(np.full(TOP_K, 0.9 / TOP_K))
REFERENCE = TopScores(
    token_ids=np.tile(np.arange(TOP_K), (2, 1)), log_probs=np.tile(LOGS, (2, 1)), golden=np.full(2, LOGS[0])
)


def answer(shift: float = 0.0, positions: int = 2) -> dict[str, Any]:
    """The answer of a server with a first token more probable by ``shift`` nats."""
    logs = LOGS.copy()
    logs[0] += shift
    row = {str(token): {"logprob": value} for token, value in enumerate(logs)}
    return {"choices": [{"prompt_logprobs": [None, *[row] * positions]}]}


def ask(respond: Callable[[httpx.Request], httpx.Response]) -> ProbeAnswer:
    """One probe of a server with this response."""
    with httpx.Client(transport=httpx.MockTransport(respond)) as client:
        return probe(client, "http://server", "m", PROMPT, REFERENCE, 1.0)


def test_an_equal_answer_has_no_divergence_and_another_one_has() -> None:
    """The top-k columns are measured, all others are unknown."""
    from contracts.metrics import COLUMN_NAMES

    at = COLUMN_NAMES.index("kl_mean@top_k")
    same, other = (ask(answering(shift)) for shift in (0.0, 0.5))
    assert same.outcome == other.outcome == ProbeOutcome.ANSWERED
    assert same.values is not None
    assert other.values is not None
    assert same.values[at] == pytest.approx(0.0, abs=1e-12)
    assert other.values[at] > 1e-3
    assert math.isnan(same.values[COLUMN_NAMES.index("kl_mean@full_vocab")])
    assert same.latency_ms > 0.0


def answering(shift: float) -> Callable[[httpx.Request], httpx.Response]:
    """A server with answers shifted by this much."""
    return lambda _: httpx.Response(200, json=answer(shift))


def _raise(error: Exception) -> Callable[[httpx.Request], httpx.Response]:
    def respond(_: httpx.Request) -> httpx.Response:
        raise error

    return respond


def _broken(**changes: Any) -> dict[str, Any]:
    found = answer()
    found["choices"][0]["prompt_logprobs"][1] = changes
    return found


CASES: dict[str, tuple[Callable[[httpx.Request], httpx.Response], ProbeOutcome]] = {
    "hangs": (_raise(httpx.ReadTimeout("slow")), ProbeOutcome.TIMED_OUT),
    "refuses": (_raise(httpx.ConnectError("no")), ProbeOutcome.REFUSED),
    "cuts the line": (_raise(httpx.RemoteProtocolError("cut")), ProbeOutcome.FAILED),
    "fails": (lambda _: httpx.Response(503), ProbeOutcome.FAILED),
    "is no server of models": (lambda _: httpx.Response(200, text="<html>"), ProbeOutcome.UNREADABLE),
    "answers something else": (lambda _: httpx.Response(200, json={"choices": []}), ProbeOutcome.UNREADABLE),
    "has another tokenizer": (
        lambda _: httpx.Response(200, json=answer(positions=3)),
        ProbeOutcome.UNREADABLE,
    ),
    "returns too few": (lambda _: httpx.Response(200, json=_broken(a={})), ProbeOutcome.UNREADABLE),
    "is above zero": (
        lambda _: httpx.Response(200, json=_broken(**{"1": {"logprob": 0.5}})),
        ProbeOutcome.FAILED,
    ),
    "is no number": (
        lambda _: httpx.Response(200, text=json.dumps(_broken(**{"1": {"logprob": math.nan}}))),
        ProbeOutcome.FAILED,
    ),
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_what_is_no_answer_is_told_apart_and_measures_nothing(name: str) -> None:
    """No misbehaviour of a server counts as a divergence, and none raises."""
    respond, outcome = CASES[name]
    found = ask(respond)
    assert found.outcome == outcome
    assert found.values is None
    assert math.isnan(found.latency_ms)
    assert found.told


@contextmanager
def server(delay_s: float = 0.0) -> Iterator[str]:
    """URL of a server that answers correctly after ``delay_s``; open requests are released at the end."""
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            if over.wait(delay_s):
                return
            content = json.dumps(answer()).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            return

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    running.daemon_threads = False  # none outlives the test
    threading.Thread(target=running.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{running.server_address[1]}"
    finally:
        over.set()
        running.shutdown()
        running.server_close()


def test_a_fleet_is_probed_and_a_hanging_replica_delays_no_other() -> None:
    """Samples name replica, slice and prompt as the layout does; dead and hung replicas are reported."""
    layout = FleetLayout(
        kernels=("a",),
        slices=("sql", "prose"),
        replicas=("a-0", "a-1", "a-2"),
        replica_kernel=np.zeros(3, dtype=np.int64),
        probe_metrics=("kl_mean@top_k", "top1_flip@top_k"),
        known_good=0,
    )
    plan = ProbePlan(
        prompts=[PROMPT], references=[REFERENCE], budget=ProbeBudget(tokens_per_s=30.0), limit_s=0.5
    )
    samples: list[ProbeSamples] = []
    with server() as good, server(5.0) as hung:
        urls = {"a-0": good, "a-1": hung, "a-2": "http://127.0.0.1:9"}
        with Prober(layout, plan, urls, "m", began_at_s=time.time()) as prober:
            until_at_s = time.time() + 20.0
            while time.time() < until_at_s and not _seen_all(samples):
                samples.append(prober.step(time.time()))
                time.sleep(0.05)
    ended = {int(r): int(o) for one in samples for r, o in zip(one.replica[0], one.outcome[0], strict=True)}
    assert ended == {
        0: int(ProbeOutcome.ANSWERED),
        1: int(ProbeOutcome.TIMED_OUT),
        2: int(ProbeOutcome.REFUSED),
    }
    answered = [one for one in samples if one.valid.any()]
    assert all(one.values[one.valid].max() == pytest.approx(0.0, abs=1e-12) for one in answered)
    assert {int(one.slice[one.valid][0]) for one in answered} == {1}
    assert all(one.values.shape == (*one.valid.shape, 2) for one in samples)


def test_a_replica_that_moved_is_asked_where_it_is_now() -> None:
    """A replica without an address is not probed; a late answer of an old address is no sample of the new."""
    layout = FleetLayout(
        kernels=("a",),
        slices=("prose",),
        replicas=("a-0", "a-1"),
        replica_kernel=np.zeros(2, dtype=np.int64),
        probe_metrics=("kl_mean@top_k",),
        known_good=0,
    )
    plan = ProbePlan(
        prompts=[PROMPT], references=[REFERENCE], budget=ProbeBudget(tokens_per_s=3.0), limit_s=60.0
    )
    with (
        server(0.5) as old,
        server() as new,
        Prober(layout, plan, {"a-0": "", "a-1": ""}, "m", began_at_s=0.0) as prober,
    ):
        prober.aim({})
        assert prober.step(10.0).replica.size == 0
        assert sum(prober.sent_tokens.values()) == 0
        prober.aim({"a-0": old})
        prober.step(20.0)
        prober.aim({"a-0": new})
        assert prober.sent_tokens == {"a-0": 3, "a-1": 0}
        samples, now_s = [prober.step(20.0)], 30.0
        until_at_s = time.monotonic() + 180.0
        while prober.sent_tokens["a-0"] < 6 and time.monotonic() < until_at_s:
            samples.append(prober.step(now_s))
            time.sleep(0.02)
        assert all(one.replica.size == 0 for one in samples)
        while samples[-1].replica.size == 0 and time.monotonic() < until_at_s:
            samples.append(prober.step(now_s))
            time.sleep(0.02)
    assert samples[-1].valid.tolist() == [[True]]
    assert prober.sent_tokens["a-1"] == 0


def _seen_all(samples: list[ProbeSamples]) -> bool:
    return {int(r) for one in samples for r in one.replica[0]} == {0, 1, 2}


class _Held:
    """A kind that lasts until it is released, or gives way."""

    def __init__(self, lane: Lane) -> None:
        self.name, self.lane, self.go, self.begun = f"held-{lane}", lane, threading.Event(), 0

    def cost_tokens(self, prompt: GenerationPrompt) -> int:
        """Almost none."""
        return len(prompt.token_ids)

    def probe(self, prompt: GenerationPrompt, asking: Asking) -> dict[str, float]:
        """No values, once it is released."""
        del prompt
        self.begun += 1
        while not self.go.wait(0.01):
            if asking.gives_way():
                raise YieldedError
        return {"pair_gap": 0.25}


def _until(done: Callable[[], bool], prober: Prober) -> list[ProbeSamples]:
    """Samples of steps until ``done``, with a time limit."""
    samples = []
    for at in range(2000):
        samples.append(prober.step(100.0 + at))
        if done():
            return samples
        time.sleep(0.01)
    raise AssertionError("it never came")


def test_a_replica_has_one_short_and_one_long_probe_in_flight() -> None:
    """A second kind of the same lane waits; the other lane does not; values arrive under their columns."""
    first, second, long = _Held(Lane.SHORT), _Held(Lane.SHORT), _Held(Lane.LONG)
    with lane_prober(first, second, long) as prober:
        _until(lambda: first.begun + second.begun == 1 and long.begun == 1, prober)
        for at in range(20):
            prober.step(200.0 + at)
        assert first.begun + second.begun == 1
        assert long.begun == 1
        for kind in (first, second, long):
            kind.go.set()
        samples = _until(lambda: first.begun > 0 and second.begun > 0, prober)
        samples += _until(lambda: long.begun > 1, prober)
    found = np.concatenate([one.values[0] for one in samples if one.valid.any()])
    assert (found[:, 1] == 0.25).all()
    assert np.isnan(found[:, 0]).all()


def test_long_probes_make_room_where_requests_wait() -> None:
    """An open one is cancelled and is no evidence; none begins until no request waits."""
    long = _Held(Lane.LONG)
    with lane_prober(long) as prober:
        _until(lambda: long.begun == 1, prober)
        prober.receive({"a-0": 3.0})
        outcomes: list[int] = []
        while not outcomes:
            outcomes += prober.step(500.0).outcome.ravel().tolist()
        assert outcomes == [int(ProbeOutcome.NONE)]
        prober.step(600.0)
        assert long.begun == 1
        prober.receive({"a-0": 0.0})
        _until(lambda: long.begun == 2, prober)
