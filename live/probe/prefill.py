"""One prefill probe: log-probabilities of a known prompt, as a default server answers them (top 20).

What it cannot see (FINDINGS of the field, and vLLM's source): a poisoned prefix cache, because prompts whose
log-probabilities are asked for skip it, and anything that samples. Other probe kinds are for those.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray

from contracts.errors import MeasurementError
from contracts.telemetry import ProbeOutcome
from live.measure.backend import TopScores
from live.measure.openai_backend import prompt_rows, top_scores
from live.measure.prompts import Prompt
from live.measure.top_columns import top_values

#: Log-probabilities per position that a server returns at its defaults (vLLM: --max-logprobs).
TOP_K = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeAnswer:
    """How one probe ended. values: float64 [columns] of ``COLUMN_NAMES``, NaN unless answered."""

    sent_at_s: float  # Unix time
    latency_ms: float  # NaN: not answered
    outcome: ProbeOutcome
    values: NDArray[np.float64] | None
    told: str = ""  # why not, without any text of the prompt or the answer
    fingerprint: str = ""  # as the answer states it; empty: not stated


def probe(
    client: httpx.Client, url: str, model: str, prompt: Prompt, reference: TopScores, limit_s: float
) -> ProbeAnswer:
    """Ask the server at ``url`` once, for at most ``limit_s``; never raises for what a server does."""
    sent_at_s, began_s = time.time(), time.perf_counter()
    try:
        answer = client.post(f"{url}/v1/completions", json=_body(model, prompt), timeout=limit_s)
        latency_ms = (time.perf_counter() - began_s) * 1000.0
        values = _values(answer, prompt, reference)
    except httpx.TimeoutException:
        return _unanswered(sent_at_s, ProbeOutcome.TIMED_OUT, f"no answer within {limit_s:g} s")
    except httpx.ConnectError:
        return _unanswered(sent_at_s, ProbeOutcome.REFUSED, "no connection")
    except (httpx.HTTPError, MeasurementError) as error:
        return _unanswered(sent_at_s, ProbeOutcome.FAILED, str(error) or type(error).__name__)
    return ProbeAnswer(
        sent_at_s=sent_at_s,
        latency_ms=latency_ms,
        outcome=ProbeOutcome.ANSWERED,
        values=values,
        fingerprint=str(answer.json().get("system_fingerprint") or ""),
    )


def _body(model: str, prompt: Prompt) -> dict[str, Any]:
    return {
        "model": model,
        "prompt": list(prompt.token_ids),
        "max_tokens": 1,
        "temperature": 0.0,
        "prompt_logprobs": TOP_K,
    }


def _values(answer: httpx.Response, prompt: Prompt, reference: TopScores) -> NDArray[np.float64]:
    """Columns of the answer; MeasurementError where it is no answer of this kind."""
    if answer.status_code != httpx.codes.OK:
        raise MeasurementError(f"HTTP {answer.status_code}")
    try:
        content = answer.json()
    except ValueError:
        raise MeasurementError("the answer is no JSON") from None
    rows = prompt_rows(content)
    if len(rows) != prompt.positions:
        raise MeasurementError(f"{prompt.positions} positions expected, {len(rows)} answered")
    return top_values(reference, top_scores(rows, TOP_K, prompt.token_ids[1:]))


def _unanswered(sent_at_s: float, outcome: ProbeOutcome, told: str) -> ProbeAnswer:
    return ProbeAnswer(sent_at_s=sent_at_s, latency_ms=math.nan, outcome=outcome, values=None, told=told)
