"""Incidents of the field in kind: the condition under which outputs go wrong, with parameters that are drawn.

Whoever looks for these faults is unknown here: nothing of this module knows of any probe (import-linter keeps
it so), so no draw can favour or spare one. Numbers are those of the public reports behind each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from contracts.documents.scenario import ScheduledFault
from contracts.rng import stream

Draw = Callable[[np.random.Generator, "Place"], dict[str, Any]]
#: Weights disturbed by so many standard deviations, at least and at most: what users report is garbled text.
_NOISE = (0.3, 0.8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What a fault can be fitted to. block_tokens: of the prefix cache; context_tokens: of the model."""

    block_tokens: int
    context_tokens: int
    slices: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """One class of reports: what users said, where, and the fault that is like it."""

    name: str
    told: str
    reports: tuple[str, ...]
    draw: Draw


def drawn_fault(incident: Incident, place: Place, seed: int) -> ScheduledFault:
    """The fault of ``incident`` with parameters drawn by ``seed``."""
    rng = stream(seed, "incidents", incident.name)
    plain = {"name": incident.name, "onset_s": 0.0, **incident.draw(rng, place)}
    return ScheduledFault.model_validate(plain)


def _noise(trigger: Callable[[np.random.Generator, Place], Mapping[str, Any]]) -> Draw:
    """Wrong weights while a condition holds."""

    def draw(rng: np.random.Generator, place: Place) -> dict[str, Any]:
        return {
            "kind": "noise",
            "condition": "as-drawn",
            "trigger": dict(trigger(rng, place)),
            "live": {"relative": float(rng.uniform(*_NOISE)), "seed": int(rng.integers(1000))},
        }

    return draw


def _plain(kind: str, live: Callable[[np.random.Generator], Mapping[str, Any]] = lambda _: {}) -> Draw:
    """A fault without a condition."""

    def draw(rng: np.random.Generator, _: Place) -> dict[str, Any]:
        return {"kind": kind, "live": dict(live(rng))}

    return draw


def _late(rng: np.random.Generator, place: Place) -> Mapping[str, Any]:
    tokens = np.exp(rng.uniform(np.log(64.0), np.log(place.context_tokens / 2.0)))
    return {"min_generated_tokens": int(tokens)}


def _residues(rng: np.random.Generator, place: Place) -> Mapping[str, Any]:
    lowest = int(rng.integers(place.block_tokens))
    highest = min(lowest + int(rng.integers(2, 9)), place.block_tokens - 1)
    return {
        "prompt_residue": {
            "block_tokens": place.block_tokens,
            "lowest": min(lowest, highest),
            "highest": highest,
        }
    }


def _edge(_: np.random.Generator, place: Place) -> Mapping[str, Any]:
    return {"prompt_residue": {"block_tokens": place.block_tokens, "lowest": 0, "highest": 0}}


def _rounded(rng: np.random.Generator, _: Place) -> dict[str, Any]:
    return {"kind": "requantise", "condition": "as-drawn", "live": {"bits": int(rng.integers(3, 5))}}


def _sure(kind: str) -> Draw:
    """An HTTP fault that strikes every request."""
    return lambda _rng, _place: {"kind": kind, "dose": 1.0}


INCIDENTS: tuple[Incident, ...] = (
    Incident(name="degraded-build", told="quality falls after an upgrade",
             reports=("vllm-project/vllm#28539", "sgl-project/sglang#39311"), draw=_rounded),
    Incident(name="late-corruption", told="answers go wrong beyond some length",
             reports=("sgl-project/sglang#33397", "NVIDIA/TensorRT-LLM#16916"), draw=_noise(_late)),
    Incident(name="prompt-residue", told="damage only at some prompt lengths modulo the block",
             reports=("vllm-project/vllm#50749",), draw=_noise(_residues)),
    Incident(name="block-edge", told="corrupts when a prefix is exactly whole blocks",
             reports=("sgl-project/sglang#22819",), draw=_noise(_edge)),
    Incident(name="prefix-hit", told="corruption on shared-prefix hits",
             reports=("LMCache/LMCache#4385", "ai-dynamo/dynamo#14416"),
             draw=_noise(lambda _rng, _place: {"prefix_hit": True})),
    Incident(name="poisoned-cache", told="gibberish from cached blocks until a flush",
             reports=("vllm-project/vllm#25800", "vllm-project/vllm#38652"),
             draw=_plain("kv_noise", lambda rng: {"relative": float(rng.uniform(0.5, 2.0)),
                                                  "seed": int(rng.integers(1000))})),
    Incident(name="after-cancel", told="cancel and retry corrupts other requests",
             reports=("sgl-project/sglang#23392",), draw=_noise(lambda _rng, _place: {"after_cancel": True})),
    Incident(name="batch-size", told="garbled under concurrency",
             reports=("vllm-project/vllm#41331", "sgl-project/sglang#29157"),
             draw=_noise(lambda rng, _place: {"min_batch_size": int(rng.integers(2, 6))})),
    Incident(name="endless-token", told="endless repetition with HTTP 200",
             reports=("vllm-project/vllm#53480",),
             draw=_plain("repeat_token", lambda rng: {"token": int(rng.integers(2, 500))})),
    Incident(name="grammar-poison", told="one grammar request poisons later ones",
             reports=("mlc-ai/xgrammar#460",),
             draw=_noise(lambda _rng, _place: {"after_structured_output": True})),
    Incident(name="nan-sanitised", told="NaN logits become random valid tokens",
             reports=("sgl-project/sglang#33187", "vllm-project/vllm#53029"), draw=_plain("nan_sanitised")),
    Incident(name="one-slice", told="one part of the traffic is poisoned, the mean looks well",
             reports=("ai-dynamo/dynamo#12463",),
             draw=_noise(lambda rng, place: {"slice": str(rng.choice(list(place.slices)))})),
    Incident(name="crossed-answers", told="answers reach other users under concurrency",
             reports=("vllm-project/vllm-ascend#14118", "BerriAI/litellm#25447"),
             draw=_plain("crossed_answers")),
    Incident(name="cut-stream", told="streams end without a stop reason, the canary reads the first chunk",
             reports=("ai-dynamo/dynamo#13675",), draw=_sure("cut_stream")),
    Incident(name="hang", told="alive but hung, /health answers 200",
             reports=("vllm-project/vllm#36451", "sgl-project/sglang#6624"), draw=_plain("hang")),
)  # fmt: skip
