"""The form of sampled log-probabilities: numbers are accepted, anything else is refused and not echoed."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import MeasurementError
from live.observe.sampled import (
    LEAST_TOKENS,
    MOST_ANSWERS,
    MOST_WAITING,
    SampledInbox,
    mean_surprise,
)

GOOD: dict[str, Any] = {"replica": "half-0", "slice": "code", "logprobs": [-1.0] * LEAST_TOKENS}
SECRET = "my-private-text"


def inbox() -> SampledInbox:
    """An inbox of two replicas and one slice."""
    return SampledInbox(frozenset({"half-0", "half-1"}), frozenset({"code"}))


@given(st.lists(st.floats(-50.0, 0.0), min_size=LEAST_TOKENS, max_size=64))
def test_what_is_kept_is_the_mean_surprise_and_nothing_else(log_probs: list[float]) -> None:
    """One number per answer, at least 0, the same for every order of its tokens."""
    one = inbox()
    assert one.post(json.dumps(GOOD | {"logprobs": log_probs}).encode(), 5.0) == 1
    (found,) = one.drain()
    assert found.surprise_nats == pytest.approx(-math.fsum(log_probs) / len(log_probs))
    assert found.surprise_nats == mean_surprise(sorted(log_probs)) >= 0.0
    assert (found.replica, found.slice, found.arrived_at_s) == ("half-0", "code", 5.0)
    assert one.drain() == []


REFUSED: dict[str, Any] = {
    "text": GOOD | {"text": SECRET},
    "tokens beside": GOOD | {"tokens": [SECRET]},
    "tokens as numbers": GOOD | {"logprobs": [SECRET] * 9},
    "prompt": GOOD | {"prompt": SECRET},
    "no slice": {"replica": "half-0", "logprobs": [-1.0]},
    "another replica": GOOD | {"replica": SECRET},
    "another slice": GOOD | {"slice": SECRET},
    "a list as replica": GOOD | {"replica": [SECRET]},
    "not a number": GOOD | {"logprobs": [float("nan")] * 9},
    "no log-probability": GOOD | {"logprobs": [0.5] * 9},
    "flags": GOOD | {"logprobs": [True] * 9},
    "beyond any float": GOOD | {"logprobs": [-(10**400)] * 9},
    "no list": GOOD | {"logprobs": SECRET},
    "no object": SECRET,
    "too many": [GOOD] * (MOST_ANSWERS + 1),
    "one bad among good": [GOOD, GOOD | {"text": SECRET}],
}


@pytest.mark.parametrize("name", REFUSED)
def test_whatever_else_is_refused_whole_and_not_repeated(name: str) -> None:
    """Nothing of the body is in the error, and no answer of that post is kept."""
    one = inbox()
    with pytest.raises(MeasurementError) as refused:
        one.post(json.dumps(REFUSED[name]).encode(), 0.0)
    assert SECRET not in str(refused.value)
    assert one.drain() == []
    assert one.taken == 0


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_json_is_refused(body: bytes) -> None:
    """Deep nesting is refused as well."""
    with pytest.raises(MeasurementError, match=r"JSON|object"):
        inbox().post(body, 0.0)


def test_short_answers_say_nothing_and_a_flood_drops_the_oldest() -> None:
    """A mean of few tokens is unknown; a buffer that is not drained stays bounded."""
    one = inbox()
    assert one.post(json.dumps(GOOD | {"logprobs": [-1.0] * (LEAST_TOKENS - 1)}).encode(), 0.0) == 0
    posts = MOST_WAITING // MOST_ANSWERS + 1
    for number in range(posts):
        one.post(json.dumps([GOOD] * MOST_ANSWERS).encode(), float(number))
    found = one.drain()
    assert len(found) == MOST_WAITING
    assert found[-1].arrived_at_s == posts - 1
    assert found[0].arrived_at_s == 1.0
