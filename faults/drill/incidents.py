"""Generators of faults that resemble publicly reported incidents: outputs go wrong under a condition whose
parameters are drawn.

This module imports no probe and no detector (import-linter enforces it), so no draw favours or avoids one.
The numbers are those of the public reports behind each incident.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from contracts.documents.scenario import ScheduledFault
from contracts.rng import stream

Draw = Callable[[np.random.Generator, "FaultPlace"], dict[str, Any]]
#: Least and largest noise on weights, in standard deviations: users report garbled text.
NOISE = (0.3, 0.8)
#: Layer names in most decoders: experts or the MLP, and the layers that compute keys and values.
_MLP, _KEYS_AND_VALUES = r"mlp\.|experts", r"qkv_proj|k_proj|v_proj"


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPlace:
    """Facts that a fault is fitted to. block_tokens: of the prefix cache; context_tokens: of the model."""

    block_tokens: int
    context_tokens: int
    slices: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentClass:
    """One class of incidents: the users' symptom, the reports, and the fault that resembles it."""

    name: str
    told: str
    reports: tuple[str, ...]
    draw: Draw


def drawn_fault(incident: IncidentClass, place: FaultPlace, seed: int) -> ScheduledFault:
    """The fault of ``incident`` with parameters drawn by ``seed``."""
    rng = stream(seed, "incidents", incident.name)
    plain = {"name": incident.name, "onset_s": 0.0, **incident.draw(rng, place)}
    return ScheduledFault.model_validate(plain)


def _noise(trigger: Callable[[np.random.Generator, FaultPlace], Mapping[str, Any]]) -> Draw:
    """Wrong weights while a condition holds."""

    def draw(rng: np.random.Generator, place: FaultPlace) -> dict[str, Any]:
        return {
            "kind": "noise",
            "condition": "as-drawn",
            "trigger": dict(trigger(rng, place)),
            "live": {"relative": float(rng.uniform(*NOISE)), "seed": int(rng.integers(1000))},
        }

    return draw


def _plain(kind: str, live: Callable[[np.random.Generator], Mapping[str, Any]] = lambda _: {}) -> Draw:
    """A fault without a condition."""

    def draw(rng: np.random.Generator, _: FaultPlace) -> dict[str, Any]:
        return {"kind": kind, "live": dict(live(rng))}

    return draw


def _late(rng: np.random.Generator, place: FaultPlace) -> Mapping[str, Any]:
    tokens = np.exp(rng.uniform(np.log(64.0), np.log(place.context_tokens / 2.0)))
    return {"min_generated_tokens": int(tokens)}


def _residues(rng: np.random.Generator, place: FaultPlace) -> Mapping[str, Any]:
    lowest = int(rng.integers(place.block_tokens))
    highest = min(lowest + int(rng.integers(2, 9)), place.block_tokens - 1)
    return {
        "prompt_residue": {
            "block_tokens": place.block_tokens,
            "lowest": min(lowest, highest),
            "highest": highest,
        }
    }


def _edge(_: np.random.Generator, place: FaultPlace) -> Mapping[str, Any]:
    return {"prompt_residue": {"block_tokens": place.block_tokens, "lowest": 0, "highest": 0}}


def _rounded(rng: np.random.Generator, _: FaultPlace) -> dict[str, Any]:
    return {"kind": "requantise", "condition": "as-drawn", "live": {"bits": int(rng.integers(3, 5))}}


def _drifted(rng: np.random.Generator, _: FaultPlace) -> dict[str, Any]:
    return {"kind": "requantise", "condition": "as-drawn", "live": {"bits": int(rng.integers(5, 7))}}


def _experts(rng: np.random.Generator, _: FaultPlace) -> dict[str, Any]:
    live = {"bits": int(rng.integers(2, 4)), "layers": _MLP}
    return {"kind": "requantise", "condition": "as-drawn", "live": live}


def _scales(rng: np.random.Generator, _: FaultPlace) -> dict[str, Any]:
    size = float(np.exp(rng.uniform(np.log(1.5), np.log(3.0))))
    factor = size if rng.random() < 0.5 else 1.0 / size
    return {"kind": "scale", "condition": "as-drawn", "live": {"factor": factor, "layers": _KEYS_AND_VALUES}}


def _decoding(rng: np.random.Generator, _: FaultPlace) -> dict[str, Any]:
    dose = float(rng.uniform(0.5, 2.0))
    return {"kind": "logit_noise", "dose": dose, "live": {"seed": int(rng.integers(1000))}}


def _cached_and_late(rng: np.random.Generator, _: FaultPlace) -> Mapping[str, Any]:
    return {"prefix_hit": True, "min_generated_tokens": int(rng.integers(4, 33))}


def _batched(rng: np.random.Generator, _: FaultPlace) -> Mapping[str, Any]:
    return {"min_batch_size": int(rng.integers(2, 6))}


def _broken(rng: np.random.Generator, _: FaultPlace) -> dict[str, Any]:
    return {"kind": "cut_json", "dose": float(rng.uniform(0.2, 1.0))}


def _nan_batched(rng: np.random.Generator, place: FaultPlace) -> dict[str, Any]:
    return {"kind": "nan_sanitised", "trigger": dict(_batched(rng, place))}


def _sure(kind: str) -> Draw:
    """An HTTP fault that strikes every request."""
    return lambda _rng, _place: {"kind": kind, "dose": 1.0}


INCIDENTS: tuple[IncidentClass, ...] = (
    IncidentClass(name="degraded-build", told="quality falls after an upgrade",
             reports=("vllm-project/vllm#28539", "vllm-project/vllm#17689"), draw=_rounded),
    IncidentClass(name="late-corruption", told="answers go wrong beyond some length",
             reports=("sgl-project/sglang#33397",), draw=_noise(_late)),
    IncidentClass(name="prompt-residue", told="damage only at some prompt lengths modulo the block",
             reports=("vllm-project/vllm#50749",), draw=_noise(_residues)),
    IncidentClass(name="block-edge", told="corrupts when a prefix is exactly whole blocks",
             reports=("sgl-project/sglang#22819",), draw=_noise(_edge)),
    IncidentClass(name="prefix-hit", told="corruption on shared-prefix hits",
             reports=("LMCache/LMCache#4385", "ai-dynamo/dynamo#14416"),
             draw=_noise(lambda _rng, _place: {"prefix_hit": True})),
    IncidentClass(name="poisoned-cache", told="gibberish from cached blocks until a flush",
             reports=("vllm-project/vllm#25800", "vllm-project/vllm#38652"),
             draw=_plain("kv_noise", lambda rng: {"relative": float(rng.uniform(0.5, 2.0)),
                                                  "seed": int(rng.integers(1000))})),
    IncidentClass(name="after-cancel", told="cancel and retry corrupts other requests",
             reports=("sgl-project/sglang#23392",), draw=_noise(lambda _rng, _place: {"after_cancel": True})),
    IncidentClass(name="batch-size", told="garbled under concurrency",
             reports=("vllm-project/vllm#41331", "sgl-project/sglang#29157"),
             draw=_noise(_batched)),
    IncidentClass(name="endless-token", told="endless repetition with HTTP 200",
             reports=("vllm-project/vllm#53480",),
             draw=_plain("repeat_token", lambda rng: {"token": int(rng.integers(2, 500))})),
    IncidentClass(name="grammar-poison", told="one grammar request poisons later ones",
             reports=("mlc-ai/xgrammar#460",),
             draw=_noise(lambda _rng, _place: {"after_structured_output": True})),
    IncidentClass(name="nan-sanitised", told="NaN logits become random valid tokens",
             reports=("sgl-project/sglang#33187", "vllm-project/vllm#53029"), draw=_plain("nan_sanitised")),
    IncidentClass(name="one-slice", told="one part of the traffic is poisoned, the mean looks well",
             reports=("ai-dynamo/dynamo#12463",),
             draw=_noise(lambda rng, place: {"slice": str(rng.choice(list(place.slices)))})),
    IncidentClass(name="crossed-answers", told="answers reach other users under concurrency",
             reports=("vllm-project/vllm-ascend#14118", "BerriAI/litellm#25447"),
             draw=_plain("crossed_answers")),
    IncidentClass(name="cut-stream",
             told="streams end without a stop reason, the canary reads the first chunk",
             reports=("ai-dynamo/dynamo#13675",), draw=_sure("cut_stream")),
    IncidentClass(name="hang", told="alive but hung, /health answers 200",
             reports=("vllm-project/vllm#36451", "sgl-project/sglang#6624"), draw=_plain("hang")),
    IncidentClass(name="version-drift", told="accuracy differs by points between two versions",
             reports=("vllm-project/vllm#50435", "vllm-project/vllm#42801", "sgl-project/sglang#33659"),
             draw=_drifted),
    IncidentClass(name="degraded-experts",
             told="experts in low precision score ten points below another engine",
             reports=("sgl-project/sglang#39311",), draw=_experts),
    IncidentClass(name="lost-scales", told="scales of cached keys and values are lost",
             reports=("NVIDIA/TensorRT-LLM#16916",), draw=_scales),
    IncidentClass(name="decode-drift", told="log-probabilities of decoding differ from those of scoring",
             reports=("verl-project/verl#7986", "verl-project/verl#4435"), draw=_decoding),
    IncidentClass(name="cached-late", told="prefix caching and drafting corrupt what follows a cached prefix",
             reports=("vllm-project/vllm#53912",), draw=_noise(_cached_and_late)),
    IncidentClass(name="nan-under-load", told="NaN on some hosts and batches only, answers stay valid tokens",
             reports=("sgl-project/sglang#33206", "vllm-project/vllm#50283", "vllm-project/vllm#18777"),
             draw=_nan_batched),
    IncidentClass(name="broken-envelope", told="answers of the API come out as broken JSON",
             reports=("vllm-project/vllm#48095", "vllm-project/vllm#39468"), draw=_broken),
)  # fmt: skip
