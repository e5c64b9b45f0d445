"""Attribution of violations: impossible sources are excluded, and none is invented."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.assess.attribution import Attribution, attribute, metric_bound
from contracts.assess.evaluate import evaluate
from contracts.assess.sources import (
    ModelShape,
    SourceBound,
    quantisation_bits,
    source_bounds,
    unit_roundoff,
)
from contracts.documents.profile import Fingerprint
from contracts.metrics import prompt_columns
from tests.support.documents.contracts_made import contract, observed

REFERENCE = Fingerprint(engine="torch", engine_version="2", dtype="float32", isa="avx512_vnni")


def kernel(**changes: str) -> Fingerprint:
    """The reference's fingerprint with some fields changed."""
    return REFERENCE.model_copy(update=changes)


def names(sources: tuple[SourceBound, ...]) -> dict[str, SourceBound]:
    """Sources by name."""
    return {source.source: source for source in sources}


def failed(kl: float, sources: tuple[SourceBound, ...]) -> Attribution:
    """Attribution of a mean KL of ``kl`` nats where the contract allows 1e-9."""
    result = evaluate(contract({"metric": "kl_mean", "threshold": 1e-9}), observed(kl=np.full(40, kl)))
    return attribute(result, sources)[0]


def test_only_differences_are_visible_sources() -> None:
    """Equal fingerprints leave only the batch shape; each changed field adds its own source."""
    assert list(names(source_bounds(REFERENCE, REFERENCE))) == ["batch shape"]
    assert names(source_bounds(REFERENCE, kernel(dtype="bfloat16")))["precision"].visible
    assert "operator" in names(source_bounds(REFERENCE, kernel(attention_backend="flash")))
    assert "kv cache" in names(source_bounds(REFERENCE, kernel(kv_cache_dtype="fp8_e5m2")))
    assert "quantisation" in names(source_bounds(REFERENCE, kernel(quantization="w8a8")))
    assert "routing" in names(source_bounds(REFERENCE, REFERENCE, ModelShape(experts=8)))


@pytest.mark.parametrize("field", ["dtype", "quantization", "kv_cache_dtype"])
def test_an_unknown_field_is_reported_as_unknown(field: str) -> None:
    """An unknown field is no visible difference, not even to another unknown one, and is not guessed."""
    unsaid = kernel(**{field: "unknown"})
    source = {"dtype": "precision", "quantization": "quantisation", "kv_cache_dtype": "kv cache"}[field]
    for reference in (REFERENCE, unsaid):
        found = names(source_bounds(reference, unsaid))[source]
        assert found.unknown
        assert not found.visible
    assert "unknown" in failed(0.5, source_bounds(REFERENCE, unsaid)).reason


def test_coarser_formats_have_larger_bounds() -> None:
    """The bound grows from float32 over float16 and bfloat16, and from 8 bits to 4."""
    precision = [
        names(source_bounds(REFERENCE, kernel(dtype=dtype)))["precision"].distance
        for dtype in ("float16", "bfloat16")
    ]
    widths = [
        names(source_bounds(REFERENCE, kernel(quantization=scheme)))["quantisation"].distance
        for scheme in ("w8a16", "w6a16", "gptq-4")
    ]
    assert precision == sorted(precision)
    assert widths == sorted(widths)


def test_int8_without_dot_product_instructions_is_named() -> None:
    """W8A8 names saturation, visible where the instruction set lacks VNNI; 16-bit activations do not."""
    told = names(source_bounds(REFERENCE, kernel(quantization="w8a8", isa="avx512_core")))
    assert (told["int8 saturation"].distance, told["int8 saturation"].visible) == (math.inf, True)
    assert not names(source_bounds(REFERENCE, kernel(quantization="w8a8")))["int8 saturation"].visible
    assert "int8 saturation" not in names(source_bounds(REFERENCE, kernel(quantization="w8a16")))


def test_a_small_source_cannot_explain_a_large_violation() -> None:
    """Float32 summation order cannot explain a KL of 0.1; no known source can, and the reason says so."""
    found = failed(0.1, source_bounds(REFERENCE, REFERENCE))
    assert not found.explained
    assert found.candidates == ()
    assert "suspect corrupted weights" in found.reason


def test_a_coarse_format_explains_its_own_drift() -> None:
    """Bfloat16 could explain a KL of 1e-4 against float32, and is listed before invisible sources."""
    found = failed(1e-4, source_bounds(REFERENCE, kernel(dtype="bfloat16")))
    assert found.explained
    assert found.candidates[0].source.source == "precision"


@pytest.mark.parametrize(("kl", "beyond"), [(0.1, True), (1e-3, False)])
def test_drift_beyond_the_certified_one_is_reported(kl: float, beyond: bool) -> None:
    """Beyond its certified drift a build's own formats explain nothing; only a change under them can."""
    sources = source_bounds(REFERENCE, kernel(quantization="int4"))
    certified = observed(kl=np.linspace(1e-3, 4e-3, 40))
    result = evaluate(contract({"metric": "kl_mean", "threshold": 1e-9}), observed(kl=np.full(40, kl)))
    found = attribute(result, sources, certified=certified)[0]
    assert (found.beyond_certified, found.explained) == (beyond, not beyond)
    assert ("quantisation" in [each.source.source for each in found.candidates]) is not beyond
    assert found.reason.startswith("beyond the drift") is beyond


def test_bounds_far_wider_than_the_certified_drift_are_told_apart() -> None:
    """A source with a far too wide bound explains, but is not plausible; at twice the scale it is."""
    sources = source_bounds(REFERENCE, kernel(dtype="bfloat16"))
    certified = observed(kl=np.full(40, 1e-4))
    made = contract({"metric": "kl_mean", "threshold": 1e-9})
    near, far = (
        attribute(evaluate(made, observed(kl=np.full(40, kl))), sources, certified=certified)[0]
        for kl in (3e-4, 3e-2)
    )
    assert (near.beyond_certified, near.explained, near.plausible) == (True, True, True)
    assert (far.beyond_certified, far.explained, far.plausible) == (True, True, False)
    assert far.candidates[0].scaled == pytest.approx(4e-4, rel=0.1)
    assert "suspect corrupted weights" in far.reason


def test_sources_may_explain_only_together() -> None:
    """Where each bound is too small but their sum is not, the reason says "together"."""
    pair = tuple(SourceBound(source=name, distance=0.1, visible=True, detail="") for name in ("a", "b"))
    found = failed(0.012, pair)
    assert (found.explained, found.candidates) == (True, ())
    assert "together" in found.reason


def test_clauses_outside_the_chain_are_left_out() -> None:
    """A failed top-5 overlap has no bound in the chain and no attribution."""
    result = evaluate(
        contract({"metric": "top5_overlap", "threshold": 0.99}), observed(top5=np.linspace(0.1, 0.2, 40))
    )
    assert result.verdict == "fail"
    assert attribute(result, source_bounds(REFERENCE, REFERENCE)) == ()


@given(st.integers(0, 2**32), st.floats(1e-3, 3.0))
def test_metric_bounds_hold_on_exact_columns(seed: int, noise: float) -> None:
    """No column exceeds what its own largest logit distance allows."""
    rng = np.random.default_rng(seed)
    first = rng.normal(scale=2.0, size=(4, 16))
    columns = prompt_columns(first, first + rng.normal(scale=noise, size=first.shape))
    for name, value in zip(columns.names, columns.values, strict=True):
        bound = metric_bound(name, columns["linf_max@full_vocab"])
        assert bound is None or np.isnan(value) or value <= bound + 1e-9


@pytest.mark.parametrize(
    ("scheme", "bits"),
    [
        ("w8a8", (8, 8)),
        ("W4A16", (4, 16)),
        ("gptq", (4, 16)),
        ("gptq-8", (8, 16)),
        ("none", None),
        ("fp8", None),
    ],
)
def test_schemes_name_their_bits(scheme: str, bits: tuple[int, int] | None) -> None:
    """Weight and activation bits are read from the common names of schemes."""
    assert quantisation_bits(scheme) == bits


def test_unknown_formats_have_no_bound() -> None:
    """A format that is not known gives an infinite bound, never a small one."""
    assert unit_roundoff("torch.bfloat16") == 2.0**-8
    assert unit_roundoff("nf4") is None
    assert names(source_bounds(REFERENCE, kernel(dtype="nf4")))["precision"].distance == math.inf
    assert names(source_bounds(REFERENCE, kernel(quantization="exotic")))["quantisation"].distance == math.inf
