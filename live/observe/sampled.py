"""Log-probabilities of users' own answers, where the operator lets them be looked at (probe kind (g)).

A gateway's access log and Envoy see no bodies, so whoever has them (a client, a gateway with a body filter)
asks for ``logprobs`` on a share of its requests and posts the numbers: replica, slice and the
log-probabilities of the sampled tokens, nothing else. Tokens, texts and prompts have no place in the form and
are refused, not dropped. What is kept is one number per answer, until the next tick.
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

#: Log-probabilities of one answer, at most; answers of one post, at most; posted ones that wait, at most.
MOST_TOKENS, MOST_ANSWERS, MOST_WAITING = 16_384, 64, 4096
#: Sampled tokens that an answer's mean stands on, at least.
LEAST_TOKENS = 8
_FIELDS = {"replica", "slice", "logprobs"}
#: A log-probability is 0 at most; what rounding makes of it is not refused.
_ROUNDING = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledAnswer:
    """What is left of one answer: the mean surprise of its sampled tokens, nats.

    arrived_at_s: of ``live.bounded_http.monotonic_unix_s``.
    """

    replica: str
    slice: str
    arrived_at_s: float
    surprise_nats: float


def mean_surprise(log_probs: list[float]) -> float:
    """Minus the mean of ``log_probs``, nats; NaN for fewer than ``LEAST_TOKENS``.

    Raises MeasurementError where one is no log-probability.
    """
    if not all(math.isfinite(one) and one <= _ROUNDING for one in log_probs):
        raise MeasurementError("logprobs: numbers of at most 0 expected")
    if len(log_probs) < LEAST_TOKENS:
        return math.nan
    return max(0.0, -math.fsum(log_probs) / len(log_probs))


class SampledInbox:
    """Takes posts from any thread, hands on what came since the last look. No text is ever held."""

    def __init__(self, replicas: frozenset[str], slices: frozenset[str]) -> None:
        """Replicas and slices whose answers are taken; others are refused."""
        self._replicas, self._slices = replicas, slices
        self._lock = threading.Lock()
        self._waiting: deque[SampledAnswer] = deque(maxlen=MOST_WAITING)
        #: Answers so far.
        self.taken = 0

    def post(self, body: bytes, now_s: float) -> int:
        """Take a JSON object or a list of them; how many answers. ``now_s``: when they came.

        Raises MeasurementError, which repeats nothing of the body, where it is anything else.
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
        """What came since the last call, oldest first."""
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
