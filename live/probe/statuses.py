"""HTTP error statuses in answer to a probe: whether they are evidence, and how long to wait before the next.

A server that is busy (429) or refuses the prober's key (401, 403) gives no evidence about users' answers. A
redirect (3xx), which is not followed, and any other 4xx are about the request: a server that never answered a
probe does not support such requests (for example a chat-only server, or one with fewer log-probabilities);
one that did answer them has changed, and that counts as evidence. 5xx is an error.
"""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx

from contracts.errors import BrokenAnswerError
from contracts.telemetry import ProbeOutcome
from live.measure.endpoint import REFUSED

BUSY = httpx.codes.TOO_MANY_REQUESTS
#: Longest wait before the next probe, in s: a server that is not probed is unknown.
LONGEST_S = 30.0
_STEPS = {
    401: "the prober's key is not taken: --api-key-env, --api-key-file",
    403: "the prober's key is not taken: --api-key-env, --api-key-file",
    400: "does it give 20 log-probabilities of prompts (vLLM: --max-logprobs 20), of prompts of token ids?",
    404: "it has no /v1/completions there, or no such model (--model)",
    405: "it has no /v1/completions there",
    422: "it does not know what probes ask for",
    **dict.fromkeys((301, 302, 307, 308), "it redirects: name the address that it redirects to"),
    429: "it is busy, or its gateway limits the prober",
}


class StatusError(BrokenAnswerError):
    """A server answered a probe with ``status``. retry_after_s: how long it asks not to be probed."""

    def __init__(self, status: int, retry_after_s: float) -> None:
        step = _STEPS.get(status, "")
        super().__init__(f"HTTP {status}: {step}" if step else f"HTTP {status}")
        self.status, self.retry_after_s = status, retry_after_s


def refuse_status(answer: httpx.Response) -> None:
    """Raise StatusError unless ``answer`` has status 200."""
    if answer.status_code != httpx.codes.OK:
        raise StatusError(answer.status_code, retry_after_s(answer.headers.get("retry-after", "")))


def retry_after_s(header: str) -> float:
    """The wait that a ``Retry-After`` header asks for, as seconds or a date; 0 to ``LONGEST_S``."""
    if header.isdecimal():
        return min(float(header[:6]), LONGEST_S)
    try:
        until = parsedate_to_datetime(header)
        ahead_s = (until - datetime.now(UTC)).total_seconds()
    except (TypeError, ValueError, OverflowError):  # no date, or a date without a zone
        return 0.0
    return min(max(ahead_s, 0.0), LONGEST_S)


def outcome_of(status: int) -> ProbeOutcome:
    """Outcome for a server that answered probes before."""
    if status == BUSY:
        return ProbeOutcome.NONE
    return ProbeOutcome.UNREADABLE if status in REFUSED else ProbeOutcome.FAILED


def unfit(status: int) -> bool:
    """Whether the error is about the request; then it is no evidence about a server that never
    answered one.
    """
    return 300 <= status < 500
