"""The faults of one engine: injected, asked at every step, undone, and ended when their lease is. EDGE."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from .. import vllm_worker
from .conditions import Requests, StepFacts
from .document import WEIGHT_KINDS, FaultSpec
from .engine_faults import EngineFault, LogitFault, engine_fault
from .gate import CallRefusedError
from .lease import read_lease, was_cancelled

_WATCH_S = 0.2
#: Block pools of schedulers in this process, newest last (``worker`` hooks their making).
POOLS: list[Any] = []
#: The engine of this process once anything was injected, for the logits processor.
CURRENT: list[EngineDrill] = []


class _Kernels(vllm_worker.SelvageFaults):
    """Canary of a worker, without mixing anything into it."""

    def __init__(self, worker: Any) -> None:
        self.model_runner = worker.model_runner


class EngineDrill:
    """What is injected into the engine of ``worker``, whose replica's files lie in ``folder``."""

    def __init__(self, worker: Any, folder: Path) -> None:
        self._worker, self._folder = worker, folder
        self._lock = threading.RLock()
        self._active: dict[str, EngineFault] = {}
        self._requests = Requests()
        self._watching = False
        self.clean_canary = ""
        self.expired: list[str] = []

    def inject(self, spec: FaultSpec) -> dict[str, Any]:
        """Put ``spec`` in force; injecting the same name again changes nothing."""
        with self._lock:
            if spec.name in self._active:
                return {"already": True}
            self._check(spec)
            if not self._active:
                self.clean_canary = self.canary()
            fault = engine_fault(spec, self._worker, POOLS, lambda: self._may_act(spec.name))
            said = fault.begin()
            if spec.kind in WEIGHT_KINDS:
                said |= self._proof(fault)
            self._active[spec.name] = fault
            self._attend()
            return said

    def _check(self, spec: FaultSpec) -> None:
        if not read_lease(self._folder).allows(spec.name):
            raise CallRefusedError("no lease is in force for this fault")
        if self._numeric() and spec.kind in WEIGHT_KINDS:
            raise CallRefusedError(f"{self._numeric()[0]} holds the weights; undo it first")

    def _numeric(self) -> list[str]:
        """Names of the faults in force that hold weights; one at most."""
        return [name for name, fault in self._active.items() if fault.spec.kind in WEIGHT_KINDS]

    def _proof(self, fault: Any) -> dict[str, Any]:
        """Canaries without and with the faulty weights, whether or not they are in force already."""
        steady = fault.swaps.is_faulty
        fault.swaps.put(faulty=True)
        after = self.canary()
        fault.swaps.put(faulty=steady)
        return {"canary_before": self.clean_canary, "canary_after": after}

    def canary(self) -> str:
        """Hash of fixed inputs through every linear layer in use."""
        return str(_Kernels(self._worker).selvage_canary()["sha256"])

    def undo(self, name: str = "") -> dict[str, Any]:
        """End the fault called ``name``, or all. ``is_clean`` is 1 where the canary is the clean run's.

        While another fault holds the weights nothing can be said, and it is 0. Raised and crashed engines
        need a new process.
        """
        with self._lock:
            names = [each for each in self._active if name in ("", each)]
            for each in names:  # one whose end fails stays in force, and is ended again
                self._active[each].end()
                del self._active[each]
            if not self._active:
                self._worker.__dict__.pop("execute_model", None)
            canary = self.canary()
            is_clean = canary == (self.clean_canary or canary) and not self._numeric()
            return {"undone": len(names), "canary": canary, "is_clean": int(is_clean)}

    def status(self) -> dict[str, Any]:
        """What is in force here and what it struck."""
        faults = [
            {"name": name, "kind": fault.spec.kind, "hits": int(fault.hits)}
            for name, fault in list(self._active.items())
        ]
        return {
            "faults": faults,
            "expired": list(self.expired),
            "lease_left_s": read_lease(self._folder).left_s(),
        }

    def _may_act(self, name: str) -> bool:
        return read_lease(self._folder).allows(name)

    def _attend(self) -> None:
        """Step through ``_step`` and watch the lease from now on."""
        if CURRENT[-1:] != [self]:
            CURRENT.append(self)
        if "execute_model" not in self._worker.__dict__:
            run = type(self._worker).execute_model
            self._worker.__dict__["execute_model"] = lambda *given, **named: self._step(run, given, named)
        if not self._watching:
            self._watching = True
            threading.Thread(target=self._watch, name="selvage-lease", daemon=True).start()

    def _watch(self) -> None:
        """Until nothing is in force, which is only known under the lock: a fault that comes in while this
        thread ends would have nobody who watches its lease.
        """
        while True:
            time.sleep(_WATCH_S)
            due = not self._active or bool(self._overdue())
            if due and self._lock.acquire(timeout=_WATCH_S):
                try:
                    with suppress(Exception):  # what cannot be ended now is tried again
                        self._end_overdue(any_thread=True)
                    if not self._active:
                        self._watching = False
                        return
                finally:
                    self._lock.release()

    def _overdue(self) -> list[str]:
        lease = read_lease(self._folder)
        return [name for name in list(self._active) if not lease.allows(name)]

    def _end_overdue(self, *, any_thread: bool = False) -> None:
        """End what the lease no longer allows; beside the engine's thread only what may be ended there."""
        for name in self._overdue():
            if any_thread and not self._active[name].any_thread:
                continue
            if name not in read_lease(self._folder).undone:
                self.expired.append(name)
            self.undo(name)

    def _step(self, run: Callable[..., Any], given: Any, named: Any) -> Any:
        """One engine step with what strikes it; ``given`` and ``named`` are vLLM's own arguments."""
        output = given[0] if given else named["scheduler_output"]
        self._requests.follow(output)
        with self._lock:
            struck = [fault for fault in self._faults() if self._strikes(fault)]
            for fault in self._faults():
                fault.before_step(fault in struck)
            self._end_overdue()
            started = time.perf_counter()
            result = run(self._worker, *given, **named)
            spent_s = time.perf_counter() - started
            for fault in struck:
                fault.after_step(spent_s)
        return result

    def _faults(self) -> list[EngineFault]:
        return [fault for fault in self._active.values() if not isinstance(fault, LogitFault)]

    def _strikes(self, fault: EngineFault) -> bool:
        return bool(self._struck(fault, self._requests.scheduled)) and self._may_act(fault.spec.name)

    def _struck(self, fault: EngineFault, among: tuple[str, ...]) -> list[str]:
        return self._requests.struck(fault.spec.trigger, self._facts(), among)

    def _facts(self) -> StepFacts:
        return StepFacts(
            batch_size=len(self._requests.scheduled),
            after_cancel=was_cancelled(self._folder),
            after_structured_output=self._requests.structured_seen,
        )

    def disturb(self, logits: Any) -> None:
        """Let faults of sampling change the rows of ``logits`` whose requests they strike."""
        order = list(self._worker.model_runner.input_batch.req_ids)[: logits.shape[0]]
        for fault in list(self._active.values()):
            if isinstance(fault, LogitFault) and self._may_act(fault.spec.name):
                names = set(self._struck(fault, tuple(order)))
                rows = [row for row, name in enumerate(order) if name in names]
                if rows:
                    fault.disturb(logits, rows)
