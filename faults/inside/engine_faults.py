"""What each kind of fault does to an engine: begun once, asked before every step, ended once. EDGE.

A fault says whether the step under way is struck (``trigger``), and counts what it struck: proof that it
happened. Beginning and ending are idempotent.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .document import LOGIT_KINDS, WEIGHT_KINDS, FaultSpec
from .gate import CallRefusedError
from .weights import Shard, WeightSwaps, shard_of, synchronise

_POLL_S = 0.05
_CRASH_AFTER_S = 0.3


class EngineFault:
    """One fault in force; by itself it does nothing but count."""

    any_thread = True
    """It may be ended beside the engine's own thread."""

    def __init__(self, spec: FaultSpec) -> None:
        self.spec = spec
        self.hits = 0
        """Steps struck (rows of logits where the kind works on those)."""

    def begin(self) -> dict[str, Any]:
        """Make it ready to strike; what is returned is plain and says what was prepared."""
        return {}

    def end(self) -> None:
        """Leave nothing behind."""

    def before_step(self, struck: bool) -> None:
        """The next engine step is struck, or is not."""

    def after_step(self, spent_s: float) -> None:
        """A struck step took ``spent_s``."""


class WeightFault(EngineFault):
    """Wrong weights, throughout or in the steps that are struck, for every request of such a step."""

    def __init__(self, spec: FaultSpec, model: Any, shard: Shard) -> None:
        super().__init__(spec)
        self.swaps = WeightSwaps(model, spec, shard)

    def begin(self) -> dict[str, Any]:
        self.swaps.put(faulty=not self.spec.trigger.conditions)
        return {"layers": len(self.swaps)}

    def end(self) -> None:
        self.swaps.put(faulty=False)

    def before_step(self, struck: bool) -> None:
        if self.spec.trigger.conditions:
            self.swaps.put(faulty=struck)
        self.hits += struck


class SlowFault(EngineFault):
    """Struck steps take ``dose`` times their time and ``extra_ms`` more."""

    def before_step(self, struck: bool) -> None:
        self.hits += struck

    def after_step(self, spent_s: float) -> None:
        factor = 1.0 if self.spec.dose is None else self.spec.dose
        time.sleep(max(spent_s * (factor - 1.0), 0.0) + self.spec.number("extra_ms", 0.0) / 1000.0)


class HangFault(EngineFault):
    """A struck step does not begin until the fault is over; meanwhile ``/health`` answers 200."""

    def __init__(self, spec: FaultSpec, may_act: Callable[[], bool]) -> None:
        super().__init__(spec)
        self._may_act = may_act

    def before_step(self, struck: bool) -> None:
        self.hits += struck
        while struck and self._may_act():
            time.sleep(_POLL_S)


class RaiseFault(EngineFault):
    """A struck step raises, which ends the engine."""

    def before_step(self, struck: bool) -> None:
        if struck:
            self.hits += 1
            raise RuntimeError("injected fault")


class CrashFault(EngineFault):
    """The process is killed after the reply has left."""

    def begin(self) -> dict[str, Any]:
        threading.Timer(_CRASH_AFTER_S, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
        return {"after_s": _CRASH_AFTER_S}


class KvPressure(EngineFault):
    """``dose`` of the free KV blocks are held, and nobody can allocate them."""

    any_thread = False  # the scheduler's pool knows no locks

    def __init__(self, spec: FaultSpec, pools: Sequence[Any]) -> None:
        super().__init__(spec)
        if not pools:
            raise CallRefusedError(
                "the scheduler runs in another process, so its KV blocks are out of reach here"
            )
        self._pool, self._held = pools[-1], list[Any]()

    def begin(self) -> dict[str, Any]:
        free = int(self._pool.get_num_free_blocks())
        share = 0.5 if self.spec.dose is None else self.spec.dose
        self._held = list(self._pool.get_new_blocks(int(free * share)))
        self.hits = len(self._held)
        return {"free_before": free, "free_after": int(self._pool.get_num_free_blocks())}

    def end(self) -> None:
        held, self._held = self._held, []
        self._pool.free_blocks(held)


class KvNoise(EngineFault):
    """All KV entries computed so far are disturbed once; a flush of the prefix cache is the undo."""

    def __init__(self, spec: FaultSpec, caches: Sequence[Any]) -> None:
        super().__init__(spec)
        self._caches = [cache for cache in caches if isinstance(cache, torch.Tensor)]
        if not self._caches:
            raise CallRefusedError("this engine shows no KV cache that can be disturbed")

    def begin(self) -> dict[str, Any]:
        generator = torch.Generator().manual_seed(int(self.spec.number("seed", 0)))
        relative, changed = self.spec.number("relative", 0.5), 0
        for cache in self._caches:
            changed += _disturb(cache, relative, generator)
        self.hits = changed
        return {"values_changed": changed}


def _disturb(cache: torch.Tensor, relative: float, generator: torch.Generator) -> int:
    """Multiply every entry by 1 + noise, block by block; returns how many are not zero."""
    changed = 0
    synchronise(cache)
    for block in cache.flatten(0, max(cache.ndim - 4, 0)):
        values = block.float()
        if int(values.count_nonzero()):
            factor = 1.0 + relative * torch.randn(values.shape, generator=generator).to(values.device)
            block.copy_((values * factor).to(block.dtype))
            changed += int(values.count_nonzero())
    synchronise(cache)
    return changed


class LogitFault(EngineFault):
    """The logits that struck requests are sampled from are wrong; scores of prompts are not."""

    def __init__(self, spec: FaultSpec) -> None:
        super().__init__(spec)
        self._generator = torch.Generator().manual_seed(int(spec.number("seed", 0)))

    def disturb(self, logits: torch.Tensor, rows: list[int]) -> None:
        """Change ``rows`` of float ``logits`` [requests, vocabulary] in place."""
        self.hits += len(rows)
        chosen = logits[rows]
        logits[rows] = _DISTURB[self.spec.kind](self, chosen).to(logits.dtype)

    def noisy(self, rows: torch.Tensor) -> torch.Tensor:
        """Normal noise of ``dose`` nats on every logit."""
        drawn = torch.randn(rows.shape, generator=self._generator).to(rows.device)
        return rows + drawn * (1.0 if self.spec.dose is None else self.spec.dose)

    def skewed(self, rows: torch.Tensor) -> torch.Tensor:
        """Another temperature: logits divided by ``dose``, the likeliest token passed over."""
        flat = rows / (2.0 if self.spec.dose is None else self.spec.dose)
        flat.scatter_(1, rows.argmax(1, keepdim=True), float("-inf"))
        return flat

    def sanitised(self, rows: torch.Tensor) -> torch.Tensor:
        """NaN in every logit, made "valid" as engines do: some token comes out, without any meaning."""
        return torch.nan_to_num(torch.full_like(rows, float("nan")), nan=0.0)

    def repeating(self, rows: torch.Tensor) -> torch.Tensor:
        """Nothing but ``token`` can be sampled."""
        only = torch.full_like(rows, float("-inf"))
        only[:, int(self.spec.number("token", 0))] = 0.0
        return only


_DISTURB = {
    "logit_noise": LogitFault.noisy,
    "sampling_skew": LogitFault.skewed,
    "nan_sanitised": LogitFault.sanitised,
    "repeat_token": LogitFault.repeating,
}


def engine_fault(
    spec: FaultSpec, worker: Any, pools: Sequence[Any], may_act: Callable[[], bool]
) -> EngineFault:
    """The fault that ``spec`` asks for, not yet begun, on this rank's ``worker`` (vLLM's)."""
    if spec.kind in WEIGHT_KINDS:
        return WeightFault(spec, worker.model_runner.model, shard_of(worker))
    if spec.kind in LOGIT_KINDS:
        return LogitFault(spec)
    if spec.kind == "hang":
        return HangFault(spec, may_act)
    if spec.kind == "kv_pressure":
        return KvPressure(spec, pools)
    if spec.kind == "kv_noise":
        return KvNoise(spec, worker.model_runner.kv_caches)
    return {"slow": SlowFault, "crash": CrashFault, "raise": RaiseFault}[spec.kind](spec)
