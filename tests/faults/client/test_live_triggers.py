"""Faults under conditions on a real vLLM server: they strike the named requests and nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.faults.inside.test_document import scheduled
from tests.support.servers.drilled_server import BLOCK, PROMPT, SLICE, TTL_S, Server, token_fault

pytestmark = [pytest.mark.needs("vllm", "torch"), pytest.mark.slow]


@dataclass(frozen=True)
class Case:
    """A trigger, a request that it spares, and a request that it strikes after ``prepare``."""

    trigger: dict[str, Any]
    struck: dict[str, Any] = field(default_factory=dict)
    spared: dict[str, Any] = field(default_factory=dict)
    prepare: Callable[[Server], object] = lambda server: None


def _cancel(server: Server) -> None:
    server.stream(900, read=60)
    deadline = time.monotonic() + 120.0
    while not server.faults.status()["cancelled"] and time.monotonic() < deadline:
        time.sleep(0.05)


def _grammar(server: Server) -> None:
    assert server.answer((5, 6, 7), structured_outputs={"choice": ["yes", "no"]}).status == 200
    server.text((8, 9))  # the engine learns of the end with its next step


def _others(server: Server) -> None:
    for number in range(4):
        server.pool.submit(server.text, (*PROMPT, 20 + number), 200)
    time.sleep(0.3)


TRIGGERS = {
    "generated tokens": Case({"min_generated_tokens": 20}, struck={"tokens": 30}, spared={"tokens": 20}),
    "prompt length": Case(
        {"prompt_residue": {"block_tokens": BLOCK, "lowest": 28, "highest": 28}},
        spared={"prompt": (*PROMPT, 9)},
    ),
    "slice": Case(
        {"slice": "code"},
        struck={"headers": {SLICE: "code", "x-request-id": "mine"}},
        spared={"headers": {SLICE: "prose"}},
    ),
    "cancelled request": Case({"after_cancel": True}, prepare=_cancel),
    "grammar": Case({"after_structured_output": True}, prepare=_grammar),
    "batch size": Case({"min_batch_size": 3}, prepare=_others),
}


@pytest.mark.parametrize("name", TRIGGERS)
def test_a_trigger_strikes_what_it_names_and_nothing_else(server: Server, name: str) -> None:
    """While the condition does not hold the answer is the clean one; while it holds it differs."""
    case = TRIGGERS[name]
    clean_spared, clean_struck = server.text(**case.spared), server.text(**case.struck)
    injected = server.faults.inject(token_fault(**case.trigger), TTL_S)
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
    prompt = tuple(range(400, 400 + 3 * BLOCK))
    clean = server.text(prompt)
    server.faults.undo()  # flushes the cache
    injected = server.faults.inject(token_fault(prefix_hit=True), TTL_S)
    assert server.text(prompt) == clean
    assert server.text(prompt) != clean
    assert server.faults.verify(injected).happened
    assert server.faults.undo().clean
    assert server.text(prompt) == clean


def test_wrong_weights_in_struck_steps_alone(server: Server) -> None:
    """Kernels are exchanged step by step: answers outside the condition are clean, canary included."""
    clean = server.text()
    fault = scheduled("requantise", condition="c", live={"bits": 2}, trigger={"slice": "code"})
    injected = server.faults.inject(fault, TTL_S)
    assert injected.evidence["canary_before"] != injected.evidence["canary_after"]
    assert server.text(headers={SLICE: "code"}) != clean
    server.faults.undo()
    server.faults.inject(fault, TTL_S)
    assert server.text() == clean
    assert server.faults.undo().clean
