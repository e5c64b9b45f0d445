"""Step times of a server timed from outside, against a fake one with a prefix cache."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from contracts.errors import MeasurementError
from contracts.rng import stream
from live.measure.backend import StepPlan
from live.measure.steps.model import fit_step_time, widest_prediction
from live.measure.steps.timed_requests import load_of, requests_of, time_requests

PLAN = StepPlan(batches=(1, 4, 16), decode_steps=24, clock="wall", least=True)
#: base, prefill token, decoding sequence, context token, request, sequence: ms.
TRUTH = (4.0, 0.05, 0.6, 0.001, 5.0, 0.8)


@dataclass
class CachingServer:
    """Takes the model's time, but none for a prefix of 16 tokens that it has cached."""

    noise: float = 0.0
    now_ms: float = 0.0
    prompts: list[tuple[int, ...]] = field(default_factory=list)
    seen: set[tuple[int, ...]] = field(default_factory=set)
    most_at_once: int = 0
    tokens: int = 0

    def send(self, prompts: list[list[int]], tokens: int) -> None:
        """One request; its time passes on the server's own clock."""
        base, prefill, decode, context, request, sequence = TRUTH
        fresh = [prompt for prompt in prompts if tuple(prompt[:16]) not in self.seen]
        self.seen |= {tuple(prompt[:16]) for prompt in prompts}
        self.prompts += [tuple(prompt) for prompt in prompts]
        self.most_at_once = max(self.most_at_once, len(prompts))
        self.tokens += sum(len(prompt) + tokens for prompt in prompts)
        spent = request + sequence * len(prompts) + base * tokens
        spent += prefill * sum(map(len, fresh))
        spent += sum(
            decode + context * (len(prompt) + step) for prompt in prompts for step in range(1, tokens)
        )
        self.now_ms += spent * float(np.exp(abs(self.noise * stream(1, len(self.prompts)).normal())))

    def clock(self) -> float:
        """Seconds."""
        return self.now_ms / 1000.0


def test_the_model_is_found_behind_a_prefix_cache() -> None:
    """Requests with fresh prompts give the coefficients, although the server caches every prefix."""
    server = CachingServer()
    found = fit_step_time(time_requests(server.send, PLAN, clock=server.clock))
    names = ("base_ms", "per_prefill_token_ms", "per_decode_sequence_ms", "per_context_token_ms")
    assert [getattr(found, name) for name in names] == pytest.approx(TRUTH[:4], rel=1e-3)
    assert (found.per_request_ms, found.per_sequence_ms) == pytest.approx(TRUTH[4:], rel=1e-2)


def test_no_prompt_is_sent_twice() -> None:
    """No prefix repeats, neither within a measurement nor between two of them."""
    server = CachingServer()
    for _ in range(2):
        time_requests(server.send, PLAN, clock=server.clock)
    assert len({prompt[:16] for prompt in server.prompts}) == len(server.prompts)


def test_the_stated_load_is_not_exceeded() -> None:
    """A noisy server gets more blocks, and never more load at once or in total than stated."""
    server = CachingServer(noise=0.6)
    time_requests(server.send, PLAN, clock=server.clock)
    load = load_of(PLAN)
    assert server.most_at_once <= load.sequences == 16
    assert server.tokens <= load.tokens


def test_measuring_ends_when_predictions_are_sure() -> None:
    """A calm server gets the least number of blocks."""
    server = CachingServer()
    points = time_requests(server.send, PLAN, clock=server.clock)
    assert len(points) == PLAN.blocks * len(requests_of(PLAN))
    assert widest_prediction(fit_step_time(points)) <= PLAN.wanted_half_width


def test_contexts_that_a_server_has_no_room_for_are_left_out() -> None:
    """A server of 256 positions gets no prompt of 512 tokens; one of 16 none at all, and says so."""
    assert max(kind.context for kind in requests_of(PLAN, 256)) == 128
    with pytest.raises(MeasurementError, match="no room"):
        time_requests(CachingServer().send, PLAN, 16)
