"""Finds the dose of a fault that causes a given mean KL, by bisection, and verifies it.

KL is measured between the replica's own clean answers and its answers under the fault. Without a fault it is
0, because vLLM repeats bit for bit on one host. The meter is an argument, so that a fuller one can be used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from contracts.documents.scenario import ScheduledFault
from contracts.documents.trigger import LiveInjection
from contracts.metrics.columns import LEAST_REST
from faults.client.replica import Injected, ReplicaFaults
from faults.client.wire import DrillError, bearer, call

#: Doses that are tried: relative noise, or the distance of a scale from 1.
LEAST, MOST = 1e-4, 10.0
_EVALUATIONS = 24
_CALL_WITHIN_S = 30.0
#: Log-probabilities of one prompt: per position token -> value, as many as the server returns.
Rows = list[dict[int, float]]


class DoseError(DrillError):
    """No dose has the wanted effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedDose:
    """A dose whose effect is within the tolerance, and the number of measurements taken."""

    size: float
    effect: float
    evaluations: int


def bisect_dose(
    effect: Callable[[float], float], wanted: float, *, tolerance_ratio: float = 0.1
) -> FittedDose:
    """A size with an ``effect`` within ``tolerance_ratio`` of ``wanted``.

    Sizes grow eightfold from ``LEAST`` until one is strong enough, at most to ``MOST``; then the interval is
    bisected on a logarithmic scale. The effect must grow with the size on the whole. Raises ``DoseError`` if
    no size is strong enough, or none fits within 24 measurements.
    """
    low, high, found, evaluations = _bracket(effect, wanted * (1.0 - tolerance_ratio))
    size = high
    while abs(found - wanted) > tolerance_ratio * wanted:
        if evaluations == _EVALUATIONS:
            raise DoseError(f"no dose gives {wanted:.3g} within {tolerance_ratio:.0%}; nearest {found:.3g}")
        size = math.sqrt(low * high)
        found, evaluations = effect(size), evaluations + 1
        low, high = (low, size) if found > wanted else (size, high)
    return FittedDose(size=size, effect=found, evaluations=evaluations)


def _bracket(effect: Callable[[float], float], least_effect: float) -> tuple[float, float, float, int]:
    """A size that is too weak (or ``LEAST``), one that is strong enough, its effect, and the measurements."""
    low = high = LEAST
    found, evaluations = effect(high), 1
    while found < least_effect:
        if high == MOST:
            raise DoseError(f"the largest dose {MOST:g} gives {found:.3g}, less than {least_effect:.3g}")
        low, high = high, min(high * 8.0, MOST)
        found, evaluations = effect(high), evaluations + 1
    return low, high, found, evaluations


class KlMeter:
    """Mean KL between prompts' top-20 log-probabilities and those of the clean replica, nats.

    A lower bound of the full KL, computed from what a default server returns.
    """

    def __init__(
        self, url: str, model: str, prompts: Sequence[Sequence[int]], top_k: int = 20, *, api_key: str = ""
    ) -> None:
        self._headers = bearer(api_key)
        self._url, self._model, self._top_k = url.rstrip("/"), model, top_k
        self._prompts = [list(prompt) for prompt in prompts]
        self._clean = self._rows()

    def __call__(self) -> float:
        """Mean over all positions of all prompts, measured now."""
        now = self._rows()
        pairs = zip(self._clean, now, strict=True)
        positions = [both for clean, seen in pairs for both in zip(clean, seen, strict=True)]
        return float(np.mean([top_k_kl(clean, seen, self._top_k) for clean, seen in positions]))

    def _rows(self) -> list[Rows]:
        return [self._scores(prompt) for prompt in self._prompts]

    def _scores(self, prompt: list[int]) -> Rows:
        body = {
            "model": self._model,
            "prompt": prompt,
            "max_tokens": 1,
            "temperature": 0.0,
            "prompt_logprobs": self._top_k,
        }
        answer = call(f"{self._url}/v1/completions", body, within_s=_CALL_WITHIN_S, headers=self._headers)
        if answer.status != 200:
            raise DrillError(f"{self._url} scores no prompt: HTTP {answer.status}")
        rows = answer.content["choices"][0]["prompt_logprobs"][1:]
        return [{int(token): float(entry["logprob"]) for token, entry in row.items()} for row in rows]


def top_k_kl(clean: dict[int, float], seen: dict[int, float], top_k: int) -> float:
    """Lower bound of the KL of two positions from their likeliest ``top_k`` tokens, nats.

    A clean token missing from ``seen`` is at most as likely there as the last of its ``top_k``; tokens
    missing from ``clean`` form one bucket. By the log-sum inequality no full KL is smaller.
    """
    last = sorted(seen.values(), reverse=True)[:top_k][-1]
    tokens = sorted(clean)
    log_p = np.array([clean[token] for token in tokens])
    p = np.exp(log_p)
    log_q = np.array([seen.get(token, last) for token in tokens])
    rest_p = 1.0 - float(p.sum())
    rest_q = 1.0 - float(np.exp([seen[token] for token in tokens if token in seen]).sum())
    rest = rest_p * math.log(rest_p / rest_q) if min(rest_p, rest_q) > LEAST_REST else 0.0
    return max(float((p * (log_p - log_q)).sum()) + rest, 0.0)


def inject_with_kl(
    replica: ReplicaFaults,
    fault: ScheduledFault,
    meter: Callable[[], float],
    ttl_s: float,
    *,
    tolerance_ratio: float = 0.2,
) -> tuple[Injected, FittedDose]:
    """Inject ``fault`` (noise or scale) at the dose with the mean KL ``live.mean_kl_nats``.

    Tries doses under the fault's own name, undoing each, then injects the found dose and measures it again:
    ``DrillError`` if that lies outside the tolerance. The fault is measured without its trigger.
    """
    live = fault.live or LiveInjection()
    if live.mean_kl_nats is None or fault.kind not in ("noise", "scale"):
        raise DoseError(f"{fault.name}: a dose is found for noise and scale with live.mean_kl_nats")
    steady = fault.model_copy(update={"trigger": None})

    def effect(size: float) -> float:
        replica.inject(_sized(steady, size), ttl_s)
        try:
            return meter()
        finally:
            replica.undo(fault.name)

    dose = bisect_dose(effect, live.mean_kl_nats, tolerance_ratio=tolerance_ratio)
    again = effect(dose.size)
    if abs(again - live.mean_kl_nats) > tolerance_ratio * live.mean_kl_nats:
        raise DoseError(f"{fault.name}: measured again it gives {again:.3g} nats, not {dose.effect:.3g}")
    return replica.inject(_sized(fault, dose.size), ttl_s), dose


def _sized(fault: ScheduledFault, size: float) -> ScheduledFault:
    live = fault.live or LiveInjection()
    sized = {"relative": size} if fault.kind == "noise" else {"factor": 1.0 + size}
    return fault.model_copy(update={"live": live.model_copy(update=sized)})
