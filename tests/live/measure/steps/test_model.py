"""The step-time model."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.documents.step_time import StepPoint, StepTime
from contracts.errors import MeasurementError
from contracts.rng import stream
from live.measure.steps.model import fit_step_time, step_time_ratio, widest_prediction


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
    """Without points there is no model."""
    with pytest.raises(MeasurementError, match="no measured step"):
        fit_step_time([])


@pytest.mark.parametrize(
    ("points", "said"),
    [
        ([point(p, 0, 0, 1.0 + p) for p in range(1, 9)], "per_decode_sequence_ms, per_context_token_ms"),
        (
            [
                *(point(p, 0, 0, 9.0 + p) for p in (1, 2, 3)),
                *(point(0, d, 32 * d, 5.0 + d) for d in (1, 4, 8)),
            ],
            "per_decode_sequence_ms, per_context_token_ms",
        ),
        (steps(1.0, 0.1, 0.1, 0.01)[2:6], "leave nothing to judge"),
    ],
)
def test_what_the_points_leave_open_is_refused(points: list[StepPoint], said: str) -> None:
    """Without decode steps, with one context only, or with as many points as coefficients: no model."""
    with pytest.raises(MeasurementError, match=said):
        fit_step_time(points)


def test_points_that_took_no_time_are_counted() -> None:
    """A point of 0 ms is ignored, and the document says how many there were."""
    found = fit_step_time([*steps(2.0, 0.1, 0.1, 0.01), point(0, 1, 8, 0.0)])
    assert found.dropped_points == 1


def test_the_half_widths_hold_the_truth() -> None:
    """Of many noisy measurements of one model, nearly all state half-widths that reach the true values."""
    truth = (2.0, 0.05, 0.4, 0.002)
    hits = [contains(noisy(truth, seed), truth) for seed in range(60)]
    assert np.mean(hits) >= 0.85  # four coefficients at once, 95 % each


def test_a_server_that_drifts_is_seen_between_blocks() -> None:
    """Differences between blocks widen the half-widths, though each block fits the model well."""
    calm = [one for _ in range(4) for one in steps(2.0, 0.1, 0.4, 0.01, noise=0.01)]
    drifting = [
        one.model_copy(update={"measured_ms": one.measured_ms * (1.0 + 0.3 * block)})
        for block in range(4)
        for one in steps(2.0, 0.1, 0.4, 0.01, noise=0.01)
    ]
    assert widest_prediction(fit_step_time(drifting)) > 5.0 * widest_prediction(fit_step_time(calm))


def noisy(truth: tuple[float, float, float, float], seed: int) -> StepTime:
    """The model fitted to 10 % noise, in five blocks."""
    rng = stream(seed, "noisy")
    return fit_step_time(
        [
            one.model_copy(update={"measured_ms": one.measured_ms * float(np.exp(0.1 * rng.normal()))})
            for _ in range(5)
            for one in steps(*truth)
        ]
    )


def contains(fitted: StepTime, truth: tuple[float, float, float, float]) -> bool:
    """Whether every coefficient is within its half-width of the truth."""
    names = ("base_ms", "per_prefill_token_ms", "per_decode_sequence_ms", "per_context_token_ms")
    assert fitted.half_widths is not None
    return all(
        abs(getattr(fitted, name) - value) <= getattr(fitted.half_widths, name)
        for name, value in zip(names, truth, strict=True)
    )


def test_the_ratio_compares_equal_steps_only() -> None:
    """The slow factor is the median over kinds of step that both measurements have."""
    healthy = [point(0, 1, 32, 2.0), point(0, 2, 64, 3.0)]
    assert step_time_ratio([point(0, 1, 32, 4.0), point(9, 0, 0, 99.0)], healthy) == 2.0
    with pytest.raises(ValueError, match="share no kind"):
        step_time_ratio([point(9, 0, 0, 99.0)], healthy)
