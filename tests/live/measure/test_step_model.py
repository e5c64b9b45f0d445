"""The step-time model."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.documents.profile import StepPoint
from contracts.rng import stream
from live.measure.step_model import fit_step_time, step_time_ratio


def point(prefill: int, decode: int, context: int, measured_ms: float) -> StepPoint:
    """One measured step."""
    return StepPoint(
        prefill_tokens=prefill, decode_sequences=decode, context_tokens=context, measured_ms=measured_ms
    )


def steps(base: float, a: float, b: float, c: float, noise: float = 0.0) -> list[StepPoint]:
    """Steps that follow the model, times log-normal noise."""
    rng = stream(3, "steps")
    rows = [(n, 0, 0) for n in (32, 64, 256, 1024)] + [(0, n, n * k) for n in (1, 4, 16) for k in (32, 512)]
    return [
        point(p, d, k, (base + a * p + b * d + c * k) * float(np.exp(noise * rng.normal())))
        for p, d, k in rows
    ]


@given(
    base=st.floats(0.1, 20),
    a=st.floats(1e-3, 1),
    b=st.floats(1e-2, 1),
    c=st.floats(1e-5, 1e-2),
)
def test_the_fit_recovers_an_exact_model(base: float, a: float, b: float, c: float) -> None:
    """Steps that follow the model exactly give its coefficients back with no error."""
    fitted = fit_step_time(steps(base, a, b, c))
    found = (
        fitted.base_ms,
        fitted.per_prefill_token_ms,
        fitted.per_decode_sequence_ms,
        fitted.per_context_token_ms,
    )
    assert np.allclose(found, (base, a, b, c), rtol=1e-4)
    assert fitted.relative_error < 1e-6


def test_coefficients_are_never_negative() -> None:
    """Noise cannot make a step cheaper by giving it more work."""
    fitted = fit_step_time(steps(2.0, 0.0, 0.0, 0.0, noise=0.3))
    assert min(fitted.per_prefill_token_ms, fitted.per_decode_sequence_ms, fitted.per_context_token_ms) >= 0
    assert 0 < fitted.relative_error < 0.5


def test_nothing_measured_is_an_error() -> None:
    """No points, no model."""
    with pytest.raises(ValueError, match="no measured step"):
        fit_step_time([])


def test_the_ratio_compares_equal_steps_only() -> None:
    """The slow factor is the median over kinds of step that both measurements have."""
    healthy = [point(0, 1, 32, 2.0), point(0, 2, 64, 3.0)]
    assert step_time_ratio([point(0, 1, 32, 4.0), point(9, 0, 0, 99.0)], healthy) == 2.0
    with pytest.raises(ValueError, match="share no kind"):
        step_time_ratio([point(9, 0, 0, 99.0)], healthy)
