"""A fault as it comes over the wire: the fields of a scheduled fault that a live injection needs.

The plain form is that of ``contracts.documents.scenario.ScheduledFault``: name, kind, dose, trigger, live.
The sender has validated it against the models; what would be dangerous here is checked again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .gate import CallRefusedError

WEIGHT_KINDS = ("requantise", "noise", "bit_flips", "scale")
LOGIT_KINDS = ("logit_noise", "sampling_skew", "nan_sanitised", "repeat_token")
ENGINE_KINDS = (*WEIGHT_KINDS, *LOGIT_KINDS, "kv_noise", "kv_pressure", "slow", "hang", "crash", "raise")
HTTP_KINDS = (
    "latency",
    "http_errors",
    "trace_fields_missing",
    "wrong_fingerprint",
    "telemetry_loss",
    "cut_json",
    "cut_stream",
    "crossed_answers",
)
#: Kinds that nothing but a new process undoes.
FINAL_KINDS = ("crash", "raise")
#: Conditions that the HTTP side of the server can see; the engine sees all of them.
HTTP_CONDITIONS = ("slice", "min_batch_size", "after_cancel")


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerSpec:
    """When a fault acts: every condition that is set must hold."""

    min_generated_tokens: int = 0
    min_batch_size: int = 0
    slice: str = ""
    residue_block: int = 0
    """0: any prompt length; else its remainder by this lies in ``residue_lowest..residue_highest``."""
    residue_lowest: int = 0
    residue_highest: int = 0
    prefix_hit: bool = False
    after_cancel: bool = False
    after_structured_output: bool = False

    @property
    def conditions(self) -> tuple[str, ...]:
        """Names of the document's fields that are set."""
        named = {
            "min_generated_tokens": self.min_generated_tokens,
            "min_batch_size": self.min_batch_size,
            "slice": self.slice,
            "prompt_residue": self.residue_block,
            "prefix_hit": self.prefix_hit,
            "after_cancel": self.after_cancel,
            "after_structured_output": self.after_structured_output,
        }
        return tuple(name for name, value in named.items() if value)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultSpec:
    """One fault to be injected."""

    name: str
    kind: str
    dose: float | None
    trigger: TriggerSpec
    live: Mapping[str, Any]
    """What only a live injection needs, by field of the document's block ``live``."""

    def number(self, field: str, default: float) -> float:
        """Field of the block ``live`` as a number."""
        return float(self.live.get(field, default))


def fault_of(plain: Any) -> FaultSpec:
    """The fault written as ``plain``; ``CallRefusedError`` where it is none that can be injected here."""
    if not isinstance(plain, dict) or not isinstance(plain.get("name"), str) or not plain["name"]:
        raise CallRefusedError("a fault is an object with a name and a kind")
    kind = plain.get("kind")
    if kind not in ENGINE_KINDS + HTTP_KINDS:
        raise CallRefusedError(
            f"kind {kind!r} is injected by nobody here; known: {ENGINE_KINDS + HTTP_KINDS}"
        )
    dose, live = plain.get("dose"), plain.get("live") or {}
    if not isinstance(live, dict):
        raise CallRefusedError("the block live of a fault is an object")
    trigger = _trigger(plain.get("trigger") or {})
    _check_conditions(kind, trigger)
    return FaultSpec(
        name=plain["name"], kind=kind, dose=None if dose is None else float(dose), trigger=trigger, live=live
    )


def _trigger(plain: dict[str, Any]) -> TriggerSpec:
    residue = plain.get("prompt_residue") or {}
    return TriggerSpec(
        min_generated_tokens=int(plain.get("min_generated_tokens") or 0),
        min_batch_size=int(plain.get("min_batch_size") or 0),
        slice=str(plain.get("slice") or ""),
        residue_block=int(residue.get("block_tokens", 0)),
        residue_lowest=int(residue.get("lowest", 0)),
        residue_highest=int(residue.get("highest", 0)),
        prefix_hit=bool(plain.get("prefix_hit")),
        after_cancel=bool(plain.get("after_cancel")),
        after_structured_output=bool(plain.get("after_structured_output")),
    )


def _check_conditions(kind: str, trigger: TriggerSpec) -> None:
    seen = HTTP_CONDITIONS if kind in HTTP_KINDS else trigger.conditions
    if kind in ("kv_noise", "kv_pressure", "crash") and trigger.conditions:
        raise CallRefusedError(f"{kind} strikes once, when it is injected; it takes no trigger")
    unseen = [name for name in trigger.conditions if name not in seen]
    if unseen:
        raise CallRefusedError(
            f"{kind} acts on HTTP, where {', '.join(unseen)} cannot be seen; known: {seen}"
        )
