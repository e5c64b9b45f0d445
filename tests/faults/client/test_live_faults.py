"""Every fault of an engine on a real vLLM server: it happens, it is proved, it is undone bit for bit."""

from __future__ import annotations

import time

import pytest

from faults.client.record import load
from faults.client.wire import call
from tests.faults.inside.test_document import scheduled
from tests.support.servers.drilled_server import TTL_S, Server, measured

pytestmark = [pytest.mark.needs("vllm", "torch"), pytest.mark.slow]


SILENT = {
    "requantise": measured("requantise", bits=3),
    "noise": measured("noise", relative=0.3),
    "bit flips": measured("bit_flips", bit=14, count=2),
    "scale": measured("scale", factor=1.3),
    "lm_head": measured("requantise", bits=2, layers="lm_head"),
    "one layer": measured("noise", relative=2.0, layers=r"layers\.1\.mlp"),
    "a parameter in place": measured("noise", relative=0.5, layers="embed_tokens"),
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
    injected = server.faults.inject(SILENT[name], TTL_S)
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
    injected = server.faults.inject(measured("noise", relative=0.0), TTL_S)
    assert server.text() == clean
    assert not server.faults.verify(injected).happened
    assert server.faults.undo().clean


def test_slow_steps_take_their_time_and_answer_the_same(server: Server) -> None:
    """Every token takes the added time, and the text is the clean one."""
    clean = server.text()
    injected = server.faults.inject(scheduled("slow", dose=1.0, live={"extra_ms": 30.0}), TTL_S)
    started = time.monotonic()
    assert server.text() == clean
    assert time.monotonic() - started >= 16 * 0.030
    assert server.faults.verify(injected).happened
    assert server.faults.undo().clean


def test_a_hang_stays_behind_200_and_ends_when_it_is_called_back(server: Server) -> None:
    """The engine answers no call, health does; undo reaches it all the same, and the request goes on."""
    clean = server.text()
    injected = server.faults.inject(scheduled("hang"), TTL_S)
    waiting = server.pool.submit(server.text)
    deadline = time.monotonic() + 120.0
    while (proof := server.faults.verify(injected)).evidence.startswith("struck"):
        assert time.monotonic() < deadline
    assert proof.happened
    assert call(f"{server.url}/health", within_s=5.0).status == 200
    assert not waiting.done()
    assert server.faults.undo().clean
    assert waiting.result() == clean


def test_held_kv_blocks_are_missed_and_given_back(server: Server) -> None:
    """The free blocks fall by the stated share; afterwards a prompt that needs them is answered."""
    injected = server.faults.inject(scheduled("kv_pressure", dose=0.9), TTL_S)
    free = injected.evidence["free_before"], injected.evidence["free_after"]
    assert free[1] == free[0] - int(free[0] * 0.9)
    assert server.faults.verify(injected).happened
    assert server.faults.undo().clean
    assert server.answer(tuple(range(2, 900))).status == 200
