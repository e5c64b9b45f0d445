"""What each source can do to the logits at most: bounds from two fingerprints.

Each way in which the serving kernel departs from the reference has a first-order bound on the logit
distance it can cause:

``d <= gain * logit_scale * depth * operators_per_layer * epsilon``

with ``epsilon`` the relative error of one operator: the unit roundoff of the number formats (precision,
KV cache), half a quantisation step (quantisation), one rounding flip plus the accumulated error of a sum
of ``width`` terms in 32 bits (operator order, batch shape), or a whole expert (routing). ``gain`` is the
amplification by the layers above, declared (1: none); the bounds are worst-case in the roundings, not in
the gain.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from contracts.documents.profile import Fingerprint

#: Unit roundoff (half the spacing at 1) per number format.
UNIT_ROUNDOFF: tuple[tuple[str, float], ...] = (
    ("float64", 2.0**-53),
    ("float32", 2.0**-24),
    ("tf32", 2.0**-11),
    ("float16", 2.0**-11),
    ("bfloat16", 2.0**-8),
    ("fp8_e4m3", 2.0**-4),
    ("fp8_e5m2", 2.0**-3),
)
_SPELLINGS = {
    "fp32": "float32",
    "fp16": "float16",
    "half": "float16",
    "bf16": "bfloat16",
    "fp8": "fp8_e4m3",
    "float8_e4m3fn": "fp8_e4m3",
    "float8_e5m2": "fp8_e5m2",
}
_ACCUMULATOR = 2.0**-24
#: Value of a fingerprint's field that a server does not report and that was not declared.
UNSTATED = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """What the bounds need of a model; defaults are those of the shipped reference model."""

    depth: int = 4  # layers
    operators_per_layer: int = 7  # rounded operators on the residual path
    width: int = 768  # terms of the longest sum
    logit_scale: float = 10.0  # half the range of typical logits
    gain: float = 1.0  # declared amplification by the layers above, 1: none
    experts: int = 0  # 0 when dense


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceBound:
    """Largest logit distance that one source can cause."""

    source: str
    distance: float  # d, logits; inf: no useful bound is known
    visible: bool  # the fingerprints differ in it
    detail: str
    unknown: bool = False  # the fingerprints do not say what it would be judged by
    changing: bool = False  # may change while the fingerprint stays, so a certified value does not contain it


def source_bounds(
    reference: Fingerprint, candidate: Fingerprint, shape: ModelShape | None = None
) -> tuple[SourceBound, ...]:
    """Bound of every source that could separate ``candidate`` from ``reference``; sources at 0 left out."""
    shape = shape or ModelShape()
    found = (
        _precision(reference, candidate, shape),
        _quantisation(candidate, shape),
        _saturation(candidate),
        _kv_cache(reference, candidate, shape),
        _operator(reference, candidate, shape),
        _batch_shape(reference, candidate, shape),
        _routing(shape),
    )
    return tuple(source for source in found if source.distance > 0.0)


def unit_roundoff(dtype: str) -> float | None:
    """Unit roundoff of a number format by any common spelling; None when it is not known."""
    plain = dtype.lower().removeprefix("torch.")
    return dict(UNIT_ROUNDOFF).get(_SPELLINGS.get(plain, plain))


def quantisation_bits(scheme: str) -> tuple[int, int] | None:
    """(weight bits, activation bits) named by a quantisation scheme; activations 16 where not quantised."""
    plain = scheme.lower()
    both = re.search(r"w(\d+)a(\d+)", plain)
    if both:
        return int(both[1]), int(both[2])
    if plain in ("", "none"):
        return None
    if plain.startswith("fp8"):
        return None
    bits = re.search(r"(?:int|w|gptq|awq|q)-?(\d+)", plain)
    return (int(bits[1]), 16) if bits else (4, 16) if plain.startswith(("gptq", "awq")) else None


def _unsaid(field: str, *values: str) -> str:
    """Why a source cannot be bounded; empty where every fingerprint states its fields."""
    if all(value.lower() != UNSTATED for value in values):
        return ""
    return f"unknown: a fingerprint does not say its {field}, so this can be neither blamed nor excluded"


def _propagate(epsilon: float, shape: ModelShape) -> float:
    return shape.gain * shape.logit_scale * shape.depth * shape.operators_per_layer * epsilon


def _precision(reference: Fingerprint, candidate: Fingerprint, shape: ModelShape) -> SourceBound:
    ours, theirs = unit_roundoff(candidate.dtype), unit_roundoff(reference.dtype)
    unsaid = _unsaid("dtype", reference.dtype, candidate.dtype)
    if unsaid:
        return SourceBound(source="precision", distance=math.inf, visible=False, detail=unsaid, unknown=True)
    same = candidate.dtype == reference.dtype
    if ours is None or theirs is None:
        distance = 0.0 if same else math.inf
        return SourceBound(source="precision", distance=distance, visible=not same, detail="no known format")
    return SourceBound(
        source="precision",
        distance=0.0 if same else _propagate(ours + theirs, shape),
        visible=not same,
        detail=f"{reference.dtype} against {candidate.dtype}, unit roundoff {ours:.3g}",
    )


def _quantisation(candidate: Fingerprint, shape: ModelShape) -> SourceBound:
    unsaid = _unsaid("quantization", candidate.quantization)
    if unsaid:
        return SourceBound(
            source="quantisation", distance=math.inf, visible=False, detail=unsaid, unknown=True
        )
    if candidate.quantization.lower().startswith("fp8"):
        epsilon = 2.0 * dict(UNIT_ROUNDOFF)["fp8_e4m3"]
        detail = "fp8 weights and activations"
    else:
        bits = quantisation_bits(candidate.quantization)
        if bits is None:
            known = candidate.quantization.lower() in ("", "none")
            distance = 0.0 if known else math.inf
            return SourceBound(
                source="quantisation", distance=distance, visible=not known, detail=candidate.quantization
            )
        epsilon = sum(0.5 / (2 ** (each - 1) - 1) for each in bits if 1 < each < 16)
        detail = f"{bits[0]}-bit weights, {bits[1]}-bit activations, half a step of the largest value"
    return SourceBound(
        source="quantisation", distance=_propagate(epsilon, shape), visible=True, detail=detail
    )


def _saturation(candidate: Fingerprint) -> SourceBound:
    """Sums of int8 products overflow 16 bits where the instruction set has no dot-product instruction.

    The fingerprint names the instruction set of the host it was taken on; another host of the same
    build looks the same, so with int8 activations this source is there even when it is not visible.
    """
    bits = quantisation_bits(candidate.quantization)
    integer = bits is not None and bits[1] == 8
    capable = any(word in candidate.isa.lower() for word in ("vnni", "amx", "sm_", "cuda"))
    message = "without" if candidate.isa and not capable else "if the host lacks"
    return SourceBound(
        source="int8 saturation",
        distance=math.inf if integer else 0.0,
        visible=integer and message == "without",
        detail=f"int8 products saturate in 16 bits {message} dot-product instructions",
        changing=True,
    )


def _kv_cache(reference: Fingerprint, candidate: Fingerprint, shape: ModelShape) -> SourceBound:
    unsaid = _unsaid("kv_cache_dtype", candidate.kv_cache_dtype)
    if unsaid:
        return SourceBound(source="kv cache", distance=math.inf, visible=False, detail=unsaid, unknown=True)
    kept, theirs = candidate.kv_cache_dtype.lower(), reference.kv_cache_dtype.lower()
    roundoff = unit_roundoff(kept)
    same = kept in ("auto", "", theirs)
    one_operator = ModelShape(
        depth=shape.depth, operators_per_layer=2, logit_scale=shape.logit_scale, gain=shape.gain
    )
    distance = 0.0 if same else math.inf if roundoff is None else _propagate(roundoff, one_operator)
    return SourceBound(
        source="kv cache", distance=distance, visible=not same, detail=f"keys and values kept as {kept}"
    )


def _reordered(reference: Fingerprint, candidate: Fingerprint, shape: ModelShape) -> float:
    """Two orders of one sum: accumulated error in 32 bits, and a rounding that flips in the format.

    Between unlike formats the flip is part of the precision term, so the finer format's counts here.
    """
    known = [unit_roundoff(each.dtype) for each in (reference, candidate)]
    rounded = [each for each in known if each is not None]
    if len(rounded) < 2:
        return math.inf
    return _propagate(2.0 * min(rounded) + 2.0 * shape.width * _ACCUMULATOR, shape)


def _operator(reference: Fingerprint, candidate: Fingerprint, shape: ModelShape) -> SourceBound:
    names = ("engine", "engine_version", "attention_backend", "compile_mode", "hardware", "isa")
    unlike = [name for name in names if getattr(reference, name) != getattr(candidate, name)]
    return SourceBound(
        source="operator",
        distance=_reordered(reference, candidate, shape) if unlike else 0.0,
        visible=bool(unlike),
        unknown=bool(_unsaid("dtype", reference.dtype, candidate.dtype)),
        detail=f"other {', '.join(unlike)}: sums in another order" if unlike else "",
    )


def _batch_shape(reference: Fingerprint, candidate: Fingerprint, shape: ModelShape) -> SourceBound:
    invariant = "batch_invariant" in candidate.compile_mode and "batch_invariant" in reference.compile_mode
    return SourceBound(
        source="batch shape",
        distance=0.0 if invariant else _reordered(candidate, candidate, shape),
        visible=False,
        unknown=bool(_unsaid("dtype", candidate.dtype)),
        changing=True,
        detail="sums in another order in another batch; no fingerprint shows it",
    )


def _routing(shape: ModelShape) -> SourceBound:
    return SourceBound(
        source="routing",
        distance=2.0 * shape.gain * shape.logit_scale if shape.experts > 1 else 0.0,
        visible=False,
        detail="a tie between experts that rounding decides swaps a whole expert",
        changing=True,
    )
