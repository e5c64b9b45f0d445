"""OpenAI-compatible back end: a running server behind ``--endpoint``, top-k log-probabilities only.

Tries ``prompt_logprobs`` (vLLM and kin), then ``echo`` with ``logprobs``. What the server leaves out of
its top k is one rest bucket, so divergences are lower bounds and carry the estimator ``top_k``. Faults
cannot be injected and memory is unknown. Step times are wall time seen from here, network included.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any

import httpx
import numpy as np

from contracts.documents.profile import Fingerprint, StepPoint
from contracts.errors import MeasurementError
from live.measure.backend import EngineFacts, Scores, Session, StepPlan, TopScores
from live.measure.kernels import EngineOption, FaultDose, Kernel, Variable
from live.measure.prompts import Prompt

_TOP_K = 20
_TIMEOUT_S = 60.0
_TOKEN_PREFIX = "token_id:"


class OpenaiBackend:
    """One running server; its only kernel is named after the served model."""

    name = "openai"

    def __init__(
        self,
        endpoint: str,
        model: str = "",
        transport: httpx.BaseTransport | None = None,
        top_k: int = _TOP_K,
    ) -> None:
        self._base = endpoint.rstrip("/").removesuffix("/v1")
        self._transport = transport
        self._top_k = top_k
        self._model = model or self._first_model()
        self.kernels: tuple[Kernel, ...] = (
            Kernel(name=_as_name(self._model), description=f"model {self._model} of a running server"),
        )

    @contextmanager
    def start(
        self,
        kernel: Kernel,  # noqa: ARG002 (the server is what it is)
        *,
        environment: tuple[Variable, ...] = (),
        options: tuple[EngineOption, ...] = (),
    ) -> Iterator[Session]:
        """Nothing is started: the server runs already. Extra settings cannot be given to it."""
        if environment or options:
            raise MeasurementError("a running server takes no environment or options")
        with self._client() as client:
            yield OpenaiSession(client, self._model, self._top_k)

    def _client(self) -> httpx.Client:
        return httpx.Client(base_url=self._base, timeout=_TIMEOUT_S, transport=self._transport)

    def _first_model(self) -> str:
        with self._client() as client:
            answer = _answer(client, "GET", "/v1/models", None)
        models = answer.get("data") or []
        if not models or not isinstance(models[0].get("id"), str):
            raise MeasurementError("the server names no model at /v1/models; give --endpoint-model")
        return str(models[0]["id"])


class OpenaiSession:
    """Requests to the server."""

    def __init__(self, client: httpx.Client, model: str, top_k: int) -> None:
        self._client = client
        self._model = model
        self._top_k = top_k
        first = self._complete([0, 1], max_tokens=1)
        self._prompt_logprobs = self._understands_prompt_logprobs()
        self.facts = EngineFacts(
            fingerprint=Fingerprint(
                engine="openai-endpoint",
                engine_version=self._version(),
                dtype="unknown",
                system_fingerprint=str(first.get("system_fingerprint") or ""),
            ),
            weights_bytes=0,
            kv_bytes_per_token=0,
            vocabulary=0,
        )

    def score(self, prompts: Sequence[Prompt]) -> Iterator[Scores]:
        """The top k of every position after the first, as the server returns them."""
        for prompt in prompts:
            rows = self._by_prompt_logprobs(prompt) if self._prompt_logprobs else self._by_echo(prompt)
            if len(rows) != prompt.positions:
                raise MeasurementError(
                    f"prompt {prompt.id}: {prompt.positions} positions, answered {len(rows)}"
                )
            yield _top_scores(rows, self._top_k)

    def time_steps(self, plan: StepPlan) -> list[StepPoint]:
        """Prefill time from one-token answers, decode time from the rest of longer ones."""
        points: list[StepPoint] = []
        for batch in plan.batches:
            for context in plan.contexts:
                short = self._timed(batch, context, 1, plan.rounds)
                long = self._timed(batch, context, 1 + plan.decode_steps, plan.rounds)
                points.append(_point(batch * context, 0, 0, short))
                step_ms = max(0.0, long - short) / plan.decode_steps
                attended = batch * (context + plan.decode_steps // 2)
                points.append(_point(0, batch, attended, step_ms))
        return points

    def canary(self) -> str:
        """Not to be had from outside."""
        return ""

    def inject(self, dose: FaultDose) -> None:
        """Not to be done from outside."""
        raise MeasurementError(f"{dose.name} cannot be injected into a server from outside")

    def undo(self) -> None:
        """Nothing was injected."""

    def peak_bytes(self) -> int:
        """Unknown from outside."""
        return 0

    def _by_prompt_logprobs(self, prompt: Prompt) -> list[dict[int, float]]:
        answer = self._complete(list(prompt.token_ids), max_tokens=1, prompt_logprobs=self._top_k)
        return [
            {int(token): float(entry["logprob"]) for token, entry in (row or {}).items()}
            for row in answer["choices"][0]["prompt_logprobs"][1:]
        ]

    def _by_echo(self, prompt: Prompt) -> list[dict[int, float]]:
        answer = self._complete(
            list(prompt.token_ids),
            max_tokens=1,
            echo=True,
            logprobs=self._top_k,
            return_tokens_as_token_ids=True,
        )
        rows = (answer["choices"][0].get("logprobs") or {}).get("top_logprobs") or []
        return [_token_row(row or {}) for row in rows[1 : len(prompt.token_ids)]]

    def _understands_prompt_logprobs(self) -> bool:
        try:
            answer = self._complete([0, 1], max_tokens=1, prompt_logprobs=self._top_k)
        except MeasurementError:
            return False
        return bool(answer["choices"][0].get("prompt_logprobs"))

    def _timed(self, batch: int, context: int, tokens: int, rounds: int) -> float:
        times: list[float] = []
        for turn in range(rounds):
            prompts = [[2 + (17 * j + 31 * i + 7 * turn) % 200 for j in range(context)] for i in range(batch)]
            started = time.perf_counter()
            self._complete(prompts, max_tokens=tokens, ignore_eos=True)
            times.append((time.perf_counter() - started) * 1000.0)
        return float(median(times))

    def _complete(self, prompt: list[int] | list[list[int]], **more: object) -> dict[str, Any]:
        body = {"model": self._model, "prompt": prompt, "temperature": 0.0, **more}
        return _answer(self._client, "POST", "/v1/completions", body)

    def _version(self) -> str:
        try:
            return str(_answer(self._client, "GET", "/version", None).get("version", "unknown"))
        except MeasurementError:
            return "unknown"


def _answer(client: httpx.Client, method: str, path: str, body: object) -> dict[str, Any]:
    try:
        response = client.request(method, path, json=body)
    except httpx.HTTPError as error:
        raise MeasurementError(f"{method} {path}: {type(error).__name__}: {error}") from None
    if response.status_code != 200:
        raise MeasurementError(f"{method} {path}: HTTP {response.status_code}: {response.text[:300]}")
    try:
        answer = response.json()
    except ValueError:
        raise MeasurementError(f"{method} {path}: the answer is no JSON: {response.text[:100]!r}") from None
    if not isinstance(answer, dict):
        raise MeasurementError(f"{method} {path}: the answer is no JSON object")
    return answer


def _token_row(row: dict[str, float]) -> dict[int, float]:
    if any(not token.startswith(_TOKEN_PREFIX) for token in row):
        raise MeasurementError("the server names tokens by text; it must support return_tokens_as_token_ids")
    return {int(token.removeprefix(_TOKEN_PREFIX)): float(value) for token, value in row.items()}


def _top_scores(rows: list[dict[int, float]], top_k: int) -> TopScores:
    """Exactly ``top_k`` tokens per position, most probable first (servers add the prompt's own token)."""
    ids, log_probs = [], []
    for row in rows:
        best = sorted(row.items(), key=lambda item: (-item[1], item[0]))[:top_k]
        if len(best) < top_k:
            raise MeasurementError(f"the server returned {len(best)} log-probabilities, {top_k} wanted")
        ids.append([token for token, _ in best])
        log_probs.append([value for _, value in best])
    return TopScores(token_ids=np.array(ids, dtype=np.int64), log_probs=np.array(log_probs, dtype=np.float64))


def _point(prefill: int, decode: int, context: int, measured_ms: float) -> StepPoint:
    return StepPoint(
        prefill_tokens=prefill, decode_sequences=decode, context_tokens=context, measured_ms=measured_ms
    )


def _as_name(model: str) -> str:
    """A document name from a model name: its last part, other signs as dashes."""
    last = model.rstrip("/").rsplit("/", 1)[-1].lower()
    cleaned = "".join(sign if sign.isalnum() and sign.isascii() else "-" for sign in last)
    return cleaned.strip("-")[:60] or "server"
