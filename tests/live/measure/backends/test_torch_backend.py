"""The torch back end on the shipped reference model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from contracts.errors import MeasurementError
from live.measure.backend import StepPlan
from live.measure.checkpoint import SHIPPED_MODEL
from live.measure.kernels import kernel_named, slow_doses, weight_doses
from live.measure.prompts import SHIPPED_PROMPTS, Prompt, load_prompts
from live.measure.torch_kernels import GPU_KERNELS, TORCH_KERNELS
from tests.support.score_rows import full_rows

pytestmark = [pytest.mark.needs("torch", "transformers")]


def some_prompts() -> list[Prompt]:
    """Two short prompts per slice."""
    found = load_prompts(SHIPPED_PROMPTS)
    return [p for name in ("code", "json") for p in [q for q in found if q.slice == name][:2]]


def test_bf16_drifts_from_fp32_and_requantised_weights_drift_further(tmp_path: Path) -> None:
    """KL to the float32 reference: zero for fp32 itself, small for bf16, large at 4 bits, back after undo."""
    from contracts.metrics import prompt_columns
    from live.measure.backends.torch_backend import TorchBackend
    from live.measure.reference import measure_reference

    prompts = some_prompts()
    reference = measure_reference(SHIPPED_MODEL, prompts, tmp_path / "reference.f32")

    def drift(session: object) -> float:
        scores = [full_rows(s) for s in session.score(prompts)]  # type: ignore[attr-defined]
        columns = [prompt_columns(reference.of(i), s) for i, s in enumerate(scores)]
        return float(np.mean([c["kl_mean@full_vocab"] for c in columns]))

    backend = TorchBackend(SHIPPED_MODEL, device="cpu")
    with backend.start(kernel_named("torch-fp32-sdpa", TORCH_KERNELS)) as session:
        assert drift(session) < 1e-9
    with backend.start(kernel_named("torch-bf16-eager", TORCH_KERNELS)) as session:
        healthy, canary = drift(session), session.canary()
        assert 1e-6 < healthy < 1e-2
        for dose in weight_doses(16):
            session.inject(dose)
            assert session.canary() != canary, dose.name
            if dose.name == "requantise-w4":
                assert drift(session) > 10 * healthy
            session.undo()
            assert session.canary() == canary, dose.name
        assert drift(session) == healthy


def test_step_times_follow_the_plan_and_slow_down() -> None:
    """Every planned kind of step is timed, and no slowed step is faster than its added time."""
    from live.measure.backends.torch_backend import TorchBackend

    plan = StepPlan(batches=(1, 2), contexts=(16,), decode_steps=6, rounds=4, clock="wall", least=True)
    with TorchBackend(SHIPPED_MODEL, device="cpu").start(TORCH_KERNELS[0]) as session:
        healthy = session.time_steps(plan)
        assert {(p.prefill_tokens, p.decode_sequences) for p in healthy} == {(16, 0), (32, 0), (0, 1), (0, 2)}
        session.inject(replace(slow_doses()[-1], arguments=(1.0, 30.0)))
        assert min(point.measured_ms for point in session.time_steps(plan)) >= 30.0
        session.undo()


@pytest.mark.parametrize("name", ["torch-bf16-flash", "torch-bf16-math", "torch-fp8-row", "torch-w8a8"])
def test_kernels_of_a_gpu_that_a_processor_has_too_drift_and_are_undone(name: str) -> None:
    """Asked-for attention and narrow layers score every prompt; packed weights change the canary's hash."""
    from live.measure.backends.torch_backend import TorchBackend

    backend, prompts = TorchBackend(SHIPPED_MODEL, device="cpu"), some_prompts()
    with backend.start(kernel_named("torch-bf16-sdpa", TORCH_KERNELS)) as session:
        plain, canary = [full_rows(s) for s in session.score(prompts)], session.canary()
    kernel = kernel_named(name, GPU_KERNELS)
    with backend.start(kernel) as session:
        rows = [full_rows(s) for s in session.score(prompts)]
        assert all(np.isfinite(one).all() for one in rows)
        assert (session.canary() == canary) == (session.facts.fingerprint.quantization == "none")
    worst = max(float(np.abs(one - other).max()) for one, other in zip(rows, plain, strict=True))
    assert worst < (3.0 if kernel.float_bits == 0 else 0.5)


def test_prompts_of_one_length_are_scored_together_in_their_order() -> None:
    """Three at a time, the lengths mixed: rows of every prompt in order, those of scoring one by one."""
    from live.measure.backends.torch_backend import TorchBackend

    found = load_prompts(SHIPPED_PROMPTS)
    long = next(p for p in found if p.slice == "long_context")
    prompts = [*some_prompts(), long, *some_prompts()[:1]]
    backend = TorchBackend(SHIPPED_MODEL, device="cpu")
    kernel = kernel_named("torch-fp32-sdpa", TORCH_KERNELS)
    with backend.start(kernel) as session:
        alone = [full_rows(s) for s in session.score(prompts)]
    with backend.start(replace(kernel, sequences=3)) as session:
        together = [full_rows(s) for s in session.score(prompts)]
    assert [len(one) for one in together] == [prompt.positions for prompt in prompts]
    assert all(np.allclose(a, b, atol=1e-3) for a, b in zip(alone, together, strict=True))


def test_a_kernel_that_the_device_lacks_is_refused_before_anything_is_measured() -> None:
    """cuDNN's attention on a processor: refused with the kernel's name; switches of products are put back."""
    import torch

    from live.measure.backends.torch_backend import TorchBackend

    backend = TorchBackend(SHIPPED_MODEL, device="cpu")
    with (
        pytest.raises(MeasurementError, match="torch-bf16-cudnn on cpu"),
        backend.start(kernel_named("torch-bf16-cudnn", GPU_KERNELS)),
    ):
        pass
    before = torch.backends.cuda.matmul.allow_tf32
    with backend.start(kernel_named("torch-tf32", GPU_KERNELS)) as session:
        assert torch.backends.cuda.matmul.allow_tf32
        assert "tf32" in session.facts.fingerprint.isa
    assert torch.backends.cuda.matmul.allow_tf32 == before
