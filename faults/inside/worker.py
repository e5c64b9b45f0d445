"""Worker extension for drills: ``--worker-extension-cls selvage_inject.inside.worker.DrillFaults``. EDGE.

Its methods are called through the engine's own remote calls by the middleware, and refuse unless the
process was started for drills. Results are plain str, int, float, list and dict: anything else would end
vLLM's output thread, and with it every request.
"""

from __future__ import annotations

from typing import Any

from .gate import CallRefusedError, gate

if gate().enabled:  # an ordinary process gets no hook at all
    from vllm.v1.core import block_pool

    from .document import fault_of
    from .engine import POOLS, EngineDrill

    _made = block_pool.BlockPool.__init__

    def _make_and_remember(self: Any, *given: Any, **named: Any) -> None:
        _made(self, *given, **named)
        POOLS.append(self)

    block_pool.BlockPool.__init__ = _make_and_remember


class DrillFaults:
    """Mixed into vLLM's ``Worker``; every attribute carries the prefix ``selvage_``."""

    model_runner: Any

    def selvage_drill_inject(self, plain: dict[str, Any]) -> dict[str, Any]:
        """Put a fault in force; an answer with ``refused`` where it is not possible."""
        return self.selvage_drill_answer(lambda drill: drill.inject(fault_of(plain)))

    def selvage_drill_undo(self, name: str = "") -> dict[str, Any]:
        """End one fault, or all."""
        return self.selvage_drill_answer(lambda drill: drill.undo(name))

    def selvage_drill_status(self) -> dict[str, Any]:
        """What is in force."""
        return self.selvage_drill_answer(lambda drill: drill.status())

    def selvage_drill_answer(self, ask: Any) -> dict[str, Any]:
        """Answer of ``ask`` on this worker's drill, or why there is none."""
        now = gate()
        if not now.enabled:
            return {"refused": "this process was not started for drills"}
        try:
            drill = self.__dict__.setdefault("selvage_drill", None) or EngineDrill(self, now.folder)
            self.__dict__["selvage_drill"] = drill
            answer: dict[str, Any] = ask(drill)
        except CallRefusedError as problem:
            return {"refused": str(problem)}
        return answer
