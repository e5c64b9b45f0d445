"""Log-probabilities of users' own answers, if the operator permits their collection (probe kind (g)).

Access logs of Envoy and other gateways contain no bodies. A component that sees bodies, such as a client or a
gateway with a body filter, requests ``logprobs`` on a share of its requests and posts the numbers: replica,
slice and the log-probabilities of the sampled tokens, nothing else. A post with tokens, texts or prompts is
refused as a whole. One number per answer is kept, until the next tick.
"""

from __future__ import annotations

import json
import math
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from contracts.errors import MeasurementError

#: Most log-probabilities of one answer, answers of one post, and answers that wait for the next tick.
MOST_TOKENS, MOST_ANSWERS, MOST_WAITING = 16_384, 64, 4096
#: Fewest sampled tokens of an answer for which a mean is computed.
LEAST_TOKENS = 8
_FIELDS = {"replica", "slice", "logprobs"}
#: A log-probability is at most 0; values above it up to this are rounding errors.
_ROUNDING = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledAnswer:
    """What is kept of one answer: the mean surprise of its sampled tokens, nats.

    arrived_at_s: on the clock ``live.bounded_http.monotonic_unix_s``.
    """

    replica: str
    slice: str
    arrived_at_s: float
    surprise_nats: float


def mean_surprise(log_probs: list[float]) -> float:
    """Minus the mean of ``log_probs``, nats; NaN for fewer than ``LEAST_TOKENS`` tokens.

    Raises MeasurementError if a value is no log-probability.
    """
    if not all(math.isfinite(one) and one <= _ROUNDING for one in log_probs):
        raise MeasurementError("logprobs: numbers of at most 0 expected")
    if len(log_probs) < LEAST_TOKENS:
        return math.nan
    return max(0.0, -math.fsum(log_probs) / len(log_probs))


class SampledInbox:
    """Accepts posts from any thread, and returns those since the last call of ``drain``. Stores no text."""

    def __init__(self, replicas: frozenset[str], slices: frozenset[str]) -> None:
        """Answers of these replicas and slices are accepted; others are refused."""
        self._replicas, self._slices = replicas, slices
        self._lock = threading.Lock()
        self._waiting: deque[SampledAnswer] = deque(maxlen=MOST_WAITING)
        #: Number of accepted answers so far.
        self.taken = 0

    def post(self, body: bytes, now_s: float) -> int:
        """Accept a JSON object or a list of them; the number of answers. ``now_s``: their arrival.

        Raises MeasurementError for anything else; the message quotes nothing of the body.
        """
        answers = [one for one in map(self._answer, _objects(body)) if not math.isnan(one[2])]
        with self._lock:
            for replica, name, surprise in answers:
                self._waiting.append(
                    SampledAnswer(replica=replica, slice=name, arrived_at_s=now_s, surprise_nats=surprise)
                )
            self.taken += len(answers)
        return len(answers)

    def drain(self) -> list[SampledAnswer]:
        """The answers since the last call, oldest first."""
        with self._lock:
            found = list(self._waiting)
            self._waiting.clear()
        return found

    def _answer(self, told: Any) -> tuple[str, str, float]:
        if not isinstance(told, Mapping) or set(told) != _FIELDS:
            raise MeasurementError("an object of replica, slice and logprobs expected, and nothing else")
        replica, name, log_probs = told["replica"], told["slice"], told["logprobs"]
        known = isinstance(replica, str) and isinstance(name, str)
        if not known or replica not in self._replicas or name not in self._slices:
            raise MeasurementError("replica and slice: names of the pool expected")
        if not isinstance(log_probs, list) or len(log_probs) > MOST_TOKENS:
            raise MeasurementError(f"logprobs: a list of at most {MOST_TOKENS} numbers expected")
        if not all(isinstance(one, int | float) and not isinstance(one, bool) for one in log_probs):
            raise MeasurementError("logprobs: numbers expected, no tokens")
        try:
            return replica, name, mean_surprise([float(one) for one in log_probs])
        except OverflowError:
            raise MeasurementError("logprobs: numbers of at most 0 expected") from None


def _objects(body: bytes) -> list[Any]:
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        raise MeasurementError("JSON expected") from None
    found = told if isinstance(told, list) else [told]
    if len(found) > MOST_ANSWERS:
        raise MeasurementError(f"at most {MOST_ANSWERS} answers in one post expected")
    return found
