"""Logits processor for drills: ``--logits-processors selvage_inject.inside.logits:DrillLogits``. EDGE.

Faults of sampling strike single requests of a batch. They are invisible to ``prompt_logprobs``, which
passes no logits processor.
"""

from __future__ import annotations

from typing import Any

from vllm.v1.sample.logits_processor.interface import LogitsProcessor

from .gate import gate


class DrillLogits(LogitsProcessor):
    """Hands the logits of every step to the engine's drill, where there is one."""

    def __init__(self, vllm_config: Any, device: Any, is_pin_memory: bool) -> None:
        del vllm_config, device, is_pin_memory
        self._enabled = gate().enabled

    def is_argmax_invariant(self) -> bool:
        """False while drills are possible: greedy answers must change too."""
        return not self._enabled

    def update_state(self, batch_update: Any) -> None:
        """Nothing: requests are followed from the scheduler's outputs."""

    def apply(self, logits: Any) -> Any:
        """``logits`` [requests, vocabulary] as the faults in force leave them."""
        if self._enabled:
            from .engine import CURRENT

            if CURRENT:
                CURRENT[-1].disturb(logits)
        return logits
