"""A real vLLM engine on the shipped model: capture, faults, canary, undo."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from contracts.errors import MeasurementError
from contracts.metrics import prompt_columns
from live.measure.backend import Session, StepPlan
from live.measure.checkpoint import SHIPPED_MODEL
from live.measure.kernels import VLLM_KERNELS, EngineOption, kernel_named, slow_doses, weight_doses
from live.measure.prompts import SHIPPED_PROMPTS, Prompt, load_prompts
from live.measure.reference import ReferenceScores, measure_reference
from tests.support.score_rows import full_rows

pytestmark = [
    pytest.mark.needs("vllm", "torch", "transformers"),
    pytest.mark.slow,
]
BF16 = kernel_named("bf16", VLLM_KERNELS)


@pytest.fixture(scope="module")
def prompts() -> list[Prompt]:
    """Two prompts per slice, long ones included."""
    found = load_prompts(SHIPPED_PROMPTS)
    return [p for name in dict.fromkeys(q.slice for q in found) for p in _of(found, name)[:2]]


def _of(found: list[Prompt], name: str) -> list[Prompt]:
    return [prompt for prompt in found if prompt.slice == name]


@pytest.fixture(scope="module")
def reference(prompts: list[Prompt], tmp_path_factory: pytest.TempPathFactory) -> ReferenceScores:
    """Float32 transformers on these prompts."""
    return measure_reference(SHIPPED_MODEL, prompts, tmp_path_factory.mktemp("reference") / "reference.f32")


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """One bf16 engine for all tests of this file."""
    from live.measure.backends.vllm_backend import VllmBackend

    with VllmBackend(SHIPPED_MODEL, tmp_path_factory.mktemp("work")).start(BF16) as started:
        yield started


def _rows(session: Session, prompts: list[Prompt]) -> list[np.ndarray]:
    return [full_rows(scores) for scores in session.score(prompts)]


def _drift(session: Session, prompts: list[Prompt], reference: ReferenceScores) -> float:
    rows = _rows(session, prompts)
    columns = [prompt_columns(reference.of(i), row)["kl_mean@full_vocab"] for i, row in enumerate(rows)]
    return float(np.mean(columns))


def test_captured_scores_are_those_of_the_public_api(session: Session, prompts: list[Prompt]) -> None:
    """The log-probabilities taken inside the engine equal ``prompt_logprobs=-1`` bit for bit."""
    from live.measure.backends.vllm_backend import VllmSession

    assert isinstance(session, VllmSession)
    captured = _rows(session, prompts[:1])[0]
    assert np.array_equal(captured, session.score_by_api(prompts[0]).log_probs)


def test_repeats_are_bit_identical(session: Session, prompts: list[Prompt]) -> None:
    """The same prompt gives the same bytes again on one host."""
    for left, right in zip(_rows(session, prompts), _rows(session, prompts), strict=True):
        assert np.array_equal(left, right)


def test_every_weight_fault_is_seen_by_the_canary_and_undone_bit_for_bit(
    session: Session, prompts: list[Prompt]
) -> None:
    """Each dose changes the canary; after undo canary and log-probabilities are the healthy bytes."""
    healthy, canary = _rows(session, prompts), session.canary()
    for dose in weight_doses(16):
        session.inject(dose)
        assert session.canary() != canary, dose.name
        session.undo()
        assert session.canary() == canary, dose.name
    for left, right in zip(healthy, _rows(session, prompts), strict=True):
        assert np.array_equal(left, right)


def test_a_fault_of_size_zero_changes_nothing(session: Session, prompts: list[Prompt]) -> None:
    """Negative control: kernels rebuilt with unchanged weights answer byte for byte as before."""
    from live.measure.profile import _NO_CHANGE

    healthy, canary = _rows(session, prompts), session.canary()
    session.inject(_NO_CHANGE)
    assert session.canary() == canary
    for left, right in zip(healthy, _rows(session, prompts), strict=True):
        assert np.array_equal(left, right)
    session.undo()


def test_drift_is_small_when_healthy_and_grows_as_bits_go(
    session: Session, prompts: list[Prompt], reference: ReferenceScores
) -> None:
    """KL to the reference: below 1e-3 in bf16, and larger with every bit that requantising takes."""
    drifts = [_drift(session, prompts, reference)]
    for dose in (dose for dose in weight_doses(16) if dose.name in ("requantise-w6", "requantise-w4")):
        session.inject(dose)
        drifts.append(_drift(session, prompts, reference))
        session.undo()
    assert drifts[0] < 1e-3
    assert drifts[0] < drifts[1] < drifts[2]


def test_slowed_steps_take_longer_and_answer_the_same(session: Session, prompts: list[Prompt]) -> None:
    """A slow fault adds its time to each step, leaves the canary and the scores alone, and goes away."""
    plan = StepPlan(batches=(1, 4), contexts=(64,), decode_steps=12, rounds=4, clock="wall", least=True)
    healthy, canary = _rows(session, prompts), session.canary()
    session.inject(replace(slow_doses()[-1], arguments=(1.0, 30.0)))
    assert min(point.measured_ms for point in session.time_steps(plan)) >= 30.0
    assert session.canary() == canary
    assert all(np.array_equal(a, b) for a, b in zip(healthy, _rows(session, prompts), strict=True))
    session.undo()
    assert min(point.measured_ms for point in session.time_steps(plan)) < 30.0


def test_facts_say_what_runs(session: Session) -> None:
    """The fingerprint holds engine, version, dtype and the engine's own hash; sizes are positive."""
    facts = session.facts
    assert facts.fingerprint.engine == "vllm"
    assert facts.fingerprint.dtype == "bfloat16"
    assert facts.fingerprint.system_fingerprint.startswith("vllm-")
    assert facts.kv_bytes_per_token == 2 * 4 * 2 * 64 * 2
    assert session.peak_bytes() > 10**8


def test_an_engine_that_cannot_start_says_why(tmp_path: Path) -> None:
    """A start with an impossible option raises with the end of the engine's log."""
    from live.measure.backends.vllm_backend import VllmBackend

    broken = (EngineOption(name="quantization", value="no-such-scheme"),)
    with (
        pytest.raises(MeasurementError, match="no-such-scheme"),
        VllmBackend(SHIPPED_MODEL, tmp_path).start(BF16, options=broken),
    ):
        pass
