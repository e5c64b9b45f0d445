"""OpenAI-compatible back end: a running server behind ``--endpoint``, top-k log-probabilities only.

Tries ``prompt_logprobs`` (vLLM and similar servers), then ``echo`` with ``logprobs``. Tokens outside the
server's top k form one rest bucket, so divergences are lower bounds and carry the estimator ``top_k``. Faults
cannot be injected and memory is unknown. Step times come from requests of known work (``request_steps``).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np

from contracts.assess.sources import UNSTATED
from contracts.documents.profile import Fingerprint
from contracts.documents.step_time import StepPoint
from contracts.errors import BrokenAnswerError, MeasurementError, refusal
from contracts.loading.untrusted import MALFORMED
from live.bounded_http import whole_answer
from live.measure.backend import EngineFacts, Scores, Session, StepPlan, TopScores
from live.measure.endpoint import Declared, Endpoint, listed_models, stated_model
from live.measure.kernels import EngineOption, FaultDose, Kernel, Variable
from live.measure.prompts import Prompt
from live.measure.steps.streamed_answers import Streamed, stream_at_once
from live.measure.steps.timed_requests import time_requests

#: Log-probabilities per position that a server returns at its defaults (vLLM: --max-logprobs).
TOP_K = 20
#: Servers return log-probabilities as 32-bit numbers: values up to this above 0 are rounding errors.
ROUNDING = 1e-6
#: How servers write a token when they are asked for its id.
TOKEN_PREFIX = "token_id:"
_SCRAPE_S = 10.0

#: Clocks by the name that a ``StepPlan`` gives them.
_Clocks = Mapping[str, Callable[[], float]]


class OpenaiBackend:
    """One running server; its only kernel has the declared name, or is named after the served model.

    clock: seconds, for step times in wall time. cpu_clock: the same for plans in CPU time, if the server's
    process is known.
    """

    name = "openai"

    def __init__(
        self,
        endpoint: Endpoint,
        declared: Declared | None = None,
        top_k: int = TOP_K,
        clock: Callable[[], float] = time.perf_counter,
        cpu_clock: Callable[[], float] | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._declared = declared or Declared()
        self._top_k = top_k
        self._clocks = {"wall": clock, "cpu": cpu_clock or clock}
        with endpoint.client() as client:
            self._served = _served(endpoint, client)
        model = self._served.name
        kernel = self._declared.name or _as_name(model)
        self.kernels: tuple[Kernel, ...] = (
            Kernel(name=kernel, description=f"model {model} of a running server"),
        )

    def identity(self) -> tuple[str, ...]:
        """What its answers depend on, as far as the server reports it: address, model, fingerprint."""
        with self.start(self.kernels[0]) as session:
            mark = session.facts.fingerprint
        return self._endpoint.base, *self._served.stated, mark.engine_version, mark.system_fingerprint

    def try_out(self, longest: Prompt) -> None:
        """Score one prompt as a trial; raises the error that prevents a measurement of the server.

        DocumentError: it cannot be reached, refuses the key, or has fewer positions than ``longest`` and the
        next token need. MeasurementError: its answers lack what is measured.
        """
        wanted, most = len(longest.token_ids) + 1, self._served.positions
        if 0 < most < wanted:
            told, step = f"{wanted}: prompt {longest.id} and a token", "leave out longer prompts, or raise it"
            raise refusal(self._endpoint.base, f"at most the server's {most} positions", told, step)
        with self.start(self.kernels[0]) as session:
            next(iter(session.score([longest])))

    @contextmanager
    def start(
        self,
        kernel: Kernel,  # noqa: ARG002 (the server is what it is)
        *,
        environment: tuple[Variable, ...] = (),
        options: tuple[EngineOption, ...] = (),
    ) -> Iterator[Session]:
        """Connect; nothing is started, because the server runs already and accepts no extra settings."""
        if environment or options:
            raise MeasurementError("a running server takes no environment or options")
        with self._endpoint.client() as client:
            yield OpenaiSession(
                _Line(self._endpoint, client, self._served), self._declared, self._top_k, self._clocks
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Served:
    """The model that the server lists, its number of positions (0: not stated), and its stated identity."""

    name: str
    positions: int
    stated: tuple[str, ...]


def _served(endpoint: Endpoint, client: httpx.Client) -> _Served:
    listed = endpoint.answer(client, "GET", "/v1/models")
    known = listed_models(listed)
    name = endpoint.model or next(iter(known), "")
    if not name:
        raise MeasurementError("the server names no model at /v1/models; give --endpoint-model")
    if known and name not in known:
        raise refusal(
            f"{endpoint.base}/v1/models", f"one of {', '.join(known)}", name, "correct --endpoint-model"
        )
    positions = known.get(name, {}).get("max_model_len")
    return _Served(
        name=name,
        positions=positions if isinstance(positions, int) else 0,
        stated=stated_model(listed, name),
    )


@dataclass(frozen=True, slots=True)
class _Line:
    """An open connection to one model of a server."""

    endpoint: Endpoint
    client: httpx.Client
    served: _Served

    def complete(self, prompt: list[int] | list[list[int]], **more: object) -> dict[str, Any]:
        """The server's greedy completion of one or several prompts."""
        body = {"model": self.served.name, "prompt": prompt, "temperature": 0.0, **more}
        return self.endpoint.answer(self.client, "POST", "/v1/completions", body)

    def version(self) -> str:
        """Version of the server, if it reports one."""
        try:
            return str(self.endpoint.answer(self.client, "GET", "/version").get("version", UNSTATED))
        except MeasurementError:
            return UNSTATED


class OpenaiSession:
    """Requests to the server."""

    def __init__(self, line: _Line, declared: Declared, top_k: int, clocks: _Clocks) -> None:
        self._line = line
        self._top_k = top_k
        self._clocks = clocks
        first = line.complete([0, 1], max_tokens=1)
        self._prompt_logprobs = self._understands_prompt_logprobs()
        self.facts = EngineFacts(
            fingerprint=Fingerprint(
                engine="openai-endpoint",
                engine_version=line.version(),
                dtype=declared.dtype or UNSTATED,
                quantization=declared.quantization or UNSTATED,
                kv_cache_dtype=declared.kv_cache_dtype or UNSTATED,
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
            yield top_scores(rows, self._top_k, prompt.token_ids[1:])

    def time_steps(self, plan: StepPlan) -> list[StepPoint]:
        """Time requests of known work, each with prompts that were never sent before."""
        return time_requests(self._send, plan, self._line.served.positions, self._clocks[plan.clock])

    def stream(self, prompts: list[list[int]], tokens: int) -> list[Streamed]:
        """``prompts`` as concurrent streamed requests, in wall time."""
        line = self._line
        return stream_at_once(line.client, line.served.name, prompts, tokens)

    def exported(self) -> str:
        """The server's Prometheus text; "" if it exports none."""
        try:
            answer = whole_answer(self._line.client, "GET", "/metrics", _SCRAPE_S)
        except httpx.HTTPError:
            return ""
        return answer.text if answer.status_code == 200 else ""

    def canary(self) -> str:
        """Not available from outside."""
        return ""

    def inject(self, dose: FaultDose) -> None:
        """Not possible from outside."""
        raise MeasurementError(f"{dose.name} cannot be injected into a server from outside")

    def undo(self) -> None:
        """Do nothing, because nothing was injected."""

    def peak_bytes(self) -> int:
        """Unknown from outside."""
        return 0

    def _by_prompt_logprobs(self, prompt: Prompt) -> list[dict[int, float]]:
        answer = self._line.complete(list(prompt.token_ids), max_tokens=1, prompt_logprobs=self._top_k)
        return prompt_rows(answer)

    def _by_echo(self, prompt: Prompt) -> list[dict[int, float]]:
        answer = self._line.complete(
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
            answer = self._line.complete([0, 1], max_tokens=1, prompt_logprobs=self._top_k)
        except MeasurementError:
            return False
        return bool(answer["choices"][0].get("prompt_logprobs"))

    def _send(self, prompts: list[list[int]], tokens: int) -> None:
        """Send one request; MeasurementError if the server made fewer tokens than requested."""
        answer = self._line.complete(prompts, max_tokens=tokens, min_tokens=tokens, ignore_eos=True)
        made = (answer.get("usage") or {}).get("completion_tokens")
        if made is not None and made != tokens * len(prompts):
            raise MeasurementError(
                f"{tokens * len(prompts)} tokens wanted, {made} made: the server ends answers early, so its"
                " steps cannot be timed; add --no-step-times"
            )


def prompt_rows(answer: dict[str, Any]) -> list[dict[int, float]]:
    """Log-probabilities by token id of every position of a prompt, from an answer with ``prompt_logprobs``.

    Raises MeasurementError if there are none, or the numbers cannot be log-probabilities.
    """
    try:
        rows = [
            {int(token): float(entry["logprob"]) for token, entry in (row or {}).items()}
            for row in answer["choices"][0]["prompt_logprobs"][1:]
        ]
    except MALFORMED:
        raise MeasurementError("the answer holds no log-probabilities of the prompt") from None
    if any(not (math.isfinite(value) and value <= ROUNDING) for row in rows for value in row.values()):
        raise BrokenAnswerError("log-probabilities that are none: not finite, or above 0")
    return rows


def _token_row(row: dict[str, float]) -> dict[int, float]:
    if any(not token.startswith(TOKEN_PREFIX) for token in row):
        raise MeasurementError("the server names tokens by text; it must support return_tokens_as_token_ids")
    return {int(token.removeprefix(TOKEN_PREFIX)): float(value) for token, value in row.items()}


def top_scores(rows: list[dict[int, float]], top_k: int, own: Sequence[int]) -> TopScores:
    """Exactly ``top_k`` tokens per position, most probable first (servers add the prompt's own token)."""
    ids, log_probs = [], []
    for row in rows:
        best = sorted(row.items(), key=lambda item: (-item[1], item[0]))[:top_k]
        if len(best) < top_k:
            raise MeasurementError(f"the server returned {len(best)} log-probabilities, {top_k} wanted")
        ids.append([token for token, _ in best])
        log_probs.append([value for _, value in best])
    return TopScores(
        token_ids=np.array(ids, dtype=np.int64),
        log_probs=np.array(log_probs, dtype=np.float64),
        golden=np.array([row.get(token, np.nan) for row, token in zip(rows, own, strict=True)]),
    )


def _as_name(model: str) -> str:
    """A document name from a model name: its last part, with other characters as dashes."""
    last = model.rstrip("/").rsplit("/", 1)[-1].lower()
    cleaned = "".join(sign if sign.isalnum() and sign.isascii() else "-" for sign in last)
    return cleaned.strip("-")[:60] or "server"
