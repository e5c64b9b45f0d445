"""One prefill probe: log-probabilities of a known prompt, as a default server answers them (top 20).

It cannot detect a poisoned prefix cache, because requests with prompt log-probabilities bypass the cache
(vLLM's source), nor faults of sampling. Other kinds of probes cover these.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import httpx
import numpy as np
from numpy.typing import NDArray

from contracts.errors import BrokenAnswerError, MeasurementError
from contracts.loading.untrusted import MALFORMED, json_of
from contracts.telemetry import ProbeOutcome
from live.bounded_http import monotonic_unix_s, whole_answer
from live.load import SLICE_HEADER
from live.measure.backend import TopScores, top_values
from live.measure.backends.openai_backend import TOP_K, prompt_rows, top_scores
from live.measure.prompts import Prompt
from live.probe.statuses import StatusError, outcome_of, refuse_status


class ProbeResult(NamedTuple):
    """What a probe measured: values of ``COLUMN_NAMES``, other values by column, and the build fingerprint
    that the answer states ("": none).
    """

    values: NDArray[np.float64] | None  # [columns] of ``COLUMN_NAMES``
    named: Mapping[str, float]
    fingerprint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeAnswer:
    """How one probe ended. values: float64 [columns] of ``COLUMN_NAMES``; None unless a prefill was answered.

    named: what a generation probe measured, by column.
    """

    sent_at_s: float  # of ``live.bounded_http.monotonic_unix_s``
    latency_ms: float  # NaN: not answered
    outcome: ProbeOutcome
    values: NDArray[np.float64] | None  # [columns]
    named: Mapping[str, float] = field(default_factory=dict)
    told: str = ""  # why it failed, without any text of the prompt or the answer
    fingerprint: str = ""  # as the answer states it; "": not stated
    status: int = 0  # HTTP status of an error; 0: there was none
    retry_after_s: float = 0.0  # how long the server asks not to be probed


def probe(
    client: httpx.Client, url: str, model: str, prompt: Prompt, reference: TopScores, limit_s: float
) -> ProbeAnswer:
    """Probe the server at ``url`` once, for at most ``limit_s``; never raises for an error of the server."""
    return timed_outcome(lambda: _measured(client, url, model, prompt, reference, limit_s), limit_s)


def timed_outcome(measure: Callable[[], ProbeResult], limit_s: float) -> ProbeAnswer:
    """The result of ``measure``, timed; never raises for an error of the server."""
    sent_at_s, began_at_s = monotonic_unix_s(), time.perf_counter()
    try:
        measured = measure()
    except httpx.TimeoutException:
        return _unanswered(sent_at_s, ProbeOutcome.TIMED_OUT, f"no answer within {limit_s:g} s")
    except httpx.ConnectError:
        return _unanswered(sent_at_s, ProbeOutcome.REFUSED, "no connection")
    except StatusError as error:
        found = _unanswered(sent_at_s, outcome_of(error.status), str(error))
        return replace(found, status=error.status, retry_after_s=error.retry_after_s)
    except (httpx.HTTPError, BrokenAnswerError) as error:
        return _unanswered(sent_at_s, ProbeOutcome.FAILED, str(error) or type(error).__name__)
    except MeasurementError as error:
        return _unanswered(sent_at_s, ProbeOutcome.UNREADABLE, str(error) or type(error).__name__)
    except MALFORMED as error:  # the error's text may contain the answer
        return _unanswered(sent_at_s, ProbeOutcome.UNREADABLE, f"no answer to read: {type(error).__name__}")
    return ProbeAnswer(
        sent_at_s=sent_at_s,
        latency_ms=(time.perf_counter() - began_at_s) * 1000.0,
        outcome=ProbeOutcome.ANSWERED,
        values=measured.values,
        named=measured.named,
        fingerprint=measured.fingerprint,
    )


def _measured(
    client: httpx.Client, url: str, model: str, prompt: Prompt, reference: TopScores, limit_s: float
) -> ProbeResult:
    answer = whole_answer(
        client,
        "POST",
        f"{url}/v1/completions",
        limit_s,
        json=_body(model, prompt),
        headers={SLICE_HEADER: prompt.slice},
    )
    content = _content(answer)
    rows = prompt_positions(content, prompt.positions)
    values = top_values(reference, top_scores(rows, TOP_K, prompt.token_ids[1:]))
    return ProbeResult(values, {}, str(content.get("system_fingerprint") or ""))


def _body(model: str, prompt: Prompt) -> dict[str, Any]:
    return {
        "model": model,
        "prompt": list(prompt.token_ids),
        "max_tokens": 1,
        "temperature": 0.0,
        "prompt_logprobs": TOP_K,
    }


def _content(answer: httpx.Response) -> Any:
    """The JSON of the answer, None if it is no JSON; StatusError for an error status."""
    refuse_status(answer)
    try:
        return json_of(answer.content)
    except ValueError:
        return None


def prompt_positions(content: Any, positions: int) -> list[dict[int, float]]:
    """Log-probabilities by token of every position of a prompt; MeasurementError if their number differs."""
    rows = prompt_rows(content)
    if len(rows) != positions:
        raise MeasurementError(f"{positions} positions expected, {len(rows)} answered")
    return rows


def _unanswered(sent_at_s: float, outcome: ProbeOutcome, told: str) -> ProbeAnswer:
    return ProbeAnswer(sent_at_s=sent_at_s, latency_ms=math.nan, outcome=outcome, values=None, told=told)
