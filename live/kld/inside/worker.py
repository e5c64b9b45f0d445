"""Reduces rows in the worker, where the engine scores prompts. EDGE: runs inside a vLLM process.

Entry point of the group ``vllm.general_plugins``: adds three methods to vLLM's workers, which
``collective_rpc`` calls. Without an expected request the engine is unchanged. While requests are expected,
the model runner's scoring of prompts is wrapped: it runs as always, and its rows are copied on the way.
Errors here are reported to the caller; the engine never sees them.
"""

from __future__ import annotations

import base64
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from .gate import gate
from .reduce import reduced

#: Length of the names that requests get here; the engine appends a suffix of its own.
NAME_LENGTH = len("selvage-kld-") + 32
_DESK = "selvage_kld_desk"


def install() -> None:
    """Add the methods if this server was started for it. May be called repeatedly."""
    if not gate().enabled:
        return
    from vllm.v1.worker.worker_base import WorkerBase

    WorkerBase.selvage_kld_expect = _expect
    WorkerBase.selvage_kld_take = _take
    WorkerBase.selvage_kld_ready = _ready


def _desk(worker: Any) -> Desk:
    if _DESK not in worker.__dict__:
        worker.__dict__[_DESK] = Desk(worker.model_runner)
    desk: Desk = worker.__dict__[_DESK]
    return desk


def _ready(worker: Any) -> str:
    """Why this engine cannot be wrapped; "" if it can."""
    return _desk(worker).unfit()


def _expect(worker: Any, jobs: dict[str, dict[str, Any]]) -> str:
    """Register expected requests, by name; returns why they cannot be served, or ""."""
    return _desk(worker).expect(jobs)


def _take(worker: Any, names: list[str]) -> dict[str, dict[str, str]]:
    """Results of these requests, which are then forgotten: base64 of raw numbers, or an error."""
    return _desk(worker).take(names)


@dataclass(slots=True)
class _Job:
    """One prompt. kind: ``reduce``, or the type of whole rows (``f4``, ``f2``)."""

    kind: str
    targets: Any
    """int64 [positions]: the prompt's next tokens."""
    reference: Any = None
    """[positions, V]; None for whole rows."""
    found: Any = None
    error: str = ""
    done: set[int] = field(default_factory=set)

    def put(self, start: int, scores: Any) -> None:
        """Store the rows of the positions from ``start`` on."""
        end = start + scores.shape[0]
        if self.kind == "reduce":
            rows = reduced(self.reference[start:end], scores, self.targets[start:end])
        else:
            rows = scores.to(torch.float16 if self.kind == "f2" else torch.float32).cpu()
        if self.found is None:
            self.found = torch.full((len(self.targets), rows.shape[1]), float("nan"), dtype=rows.dtype)
        self.found[start:end] = rows
        self.done.update(range(start, end))

    def answer(self) -> dict[str, str]:
        """The result as plain text, which RPC can carry."""
        if not self.error and len(self.done) != len(self.targets):
            self.error = f"{len(self.done)} of {len(self.targets)} positions were scored"
        if self.error:
            return {"error": self.error}
        return {"values": base64.b64encode(self.found.contiguous().numpy().tobytes()).decode("ascii")}


class Desk:
    """The requests that one worker expects, and their results."""

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self._jobs: dict[str, _Job] = {}
        self._files: dict[tuple[str, int, int, int], Any] = {}

    def unfit(self) -> str:
        """Why this engine cannot be wrapped; "" if it can."""
        for name in ("num_prompt_logprobs", "requests", "sampler", "_get_prompt_logprobs_dict"):
            if not hasattr(self._runner, name):
                return f"this model runner has no {name}; start vLLM with VLLM_USE_V2_MODEL_RUNNER=0"
        return ""

    def expect(self, jobs: dict[str, dict[str, Any]]) -> str:
        """Accept orders; if one is refused, none is kept."""
        try:
            made = {name: self._job(order) for name, order in jobs.items()}
        except (OSError, ValueError, RuntimeError) as problem:
            return str(problem)
        self._jobs.update(made)
        self._runner.__dict__["_get_prompt_logprobs_dict"] = self._watching
        return ""

    def take(self, names: list[str]) -> dict[str, dict[str, str]]:
        """Results of these orders; the wrapper is removed once no order is left."""
        jobs = {name: self._jobs.pop(name) for name in names if name in self._jobs}
        if not self._jobs:
            self._runner.__dict__.pop("_get_prompt_logprobs_dict", None)
            self._files.clear()
        return {name: job.answer() for name, job in jobs.items()}

    def _job(self, order: dict[str, Any]) -> _Job:
        targets = torch.tensor(order["token_ids"][1:], dtype=torch.int64)
        if order["kind"] != "reduce":
            return _Job(order["kind"], targets)
        width, first = int(order["vocabulary"]), int(order["first_row"])
        rows = self._rows(order)
        if rows.numel() < (first + len(targets)) * width:
            raise ValueError("the reference file ends before this prompt's rows")
        part = rows[first * width : (first + len(targets)) * width]
        return _Job("reduce", targets, part.view(len(targets), width))

    def _rows(self, order: dict[str, Any]) -> Any:
        """The numbers of a file, which must be exactly the file that was checked."""
        key = (order["path"], order["size"], order["mtime_ns"], order["inode"])
        if key not in self._files:
            with open(order["path"], "rb") as file:
                facts = os.fstat(file.fileno())
                if (facts.st_size, facts.st_mtime_ns, facts.st_ino) != key[1:]:
                    raise ValueError("the reference file changed after it was checked")
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
            self._files[key] = torch.frombuffer(mapped, dtype=torch.float32)
        return self._files[key]

    def _watching(self, hidden_states: Any, num_scheduled_tokens: dict[str, int]) -> Any:
        """The runner's own method, with its rows captured."""
        with self._gathering(iter(self._turns(num_scheduled_tokens))):
            return type(self._runner)._get_prompt_logprobs_dict(
                self._runner, hidden_states, num_scheduled_tokens
            )

    @contextmanager
    def _gathering(self, turns: Iterator[tuple[_Job | None, int, int]]) -> Iterator[None]:
        sampler = self._runner.sampler
        before, gather = vars(sampler).get("gather_logprobs"), sampler.gather_logprobs

        def looked_at(scores: Any, count: int, targets: Any) -> Any:
            self._look(next(turns, None), scores, targets)
            return gather(scores, count, targets)

        sampler.gather_logprobs = looked_at
        try:
            yield
        finally:
            del sampler.gather_logprobs
            if before is not None:
                sampler.gather_logprobs = before

    def _turns(self, scheduled: dict[str, int]) -> list[tuple[_Job | None, int, int]]:
        """Requests in the order in which vLLM will process their rows: job, first position, count."""
        turns: list[tuple[_Job | None, int, int]] = []
        for request_id in self._runner.num_prompt_logprobs:
            request = self._runner.requests.get(request_id)
            if request_id not in scheduled or request is None or request.prompt_token_ids is None:
                continue
            start = int(request.num_computed_tokens)
            count = min(scheduled[request_id], len(request.prompt_token_ids) - start - 1)
            if count > 0:
                turns.append((self._jobs.get(request_id[:NAME_LENGTH]), start, count))
        return turns

    def _look(self, turn: tuple[_Job | None, int, int] | None, scores: Any, targets: Any) -> None:
        """Store rows of our requests, after a check of their tokens."""
        if turn is None:
            for each in self._jobs.values():
                each.error = "this version of vLLM scores prompts in another order"
            return
        job, start, count = turn
        if job is not None and not job.error:
            self._keep(job, start, count, scores, targets)

    def _keep(self, job: _Job, start: int, count: int, scores: Any, targets: Any) -> None:
        try:
            wanted = job.targets[start : start + count]
            if not torch.equal(targets.cpu(), wanted) or scores.shape[0] != count:
                raise ValueError("this version of vLLM scores prompts in another order")
            if job.kind == "reduce" and scores.shape[1] != job.reference.shape[1]:
                told = f"the server has {scores.shape[1]} tokens, the reference {job.reference.shape[1]}"
                raise ValueError(told)
            job.put(start, scores.detach())
        except Exception as problem:  # whatever the error, the user-visible request must go on
            job.error = f"{type(problem).__name__}: {problem}"
