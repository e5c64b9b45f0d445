"""The OpenAI-compatible back end against a real vLLM server on the shipped model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from contracts.metrics import COLUMN_NAMES
from live.fleet.launchers import ServerOrder
from live.measure.backend import StepPlan
from live.measure.checkpoint import SHIPPED_MODEL
from live.measure.endpoint import Endpoint
from live.measure.measurement import KernelMeasurement, MeasurePlan
from live.measure.profile import KernelMeter
from live.measure.prompts import SHIPPED_PROMPTS, load_prompts
from live.measure.reference import measure_reference
from tests.support.servers.drilled_server import await_server, engine_arguments
from tests.support.servers.engine_fleet import engines
from tests.support.servers.vllm_servers import free_port

pytestmark = [
    pytest.mark.needs("vllm", "torch", "transformers"),
    pytest.mark.slow,
]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """URL of a vLLM server in half precision on the loopback interface."""
    port, log = free_port(), tmp_path / "server.log"
    order = ServerOrder(
        arguments=tuple(engine_arguments("127.0.0.1", port, "shipped", "float16")), environment={}, log=log
    )
    with engines([order]) as processes:
        url = f"http://127.0.0.1:{port}"
        await_server(processes()[0], url, log)
        yield url


def known_or_refused(measured: KernelMeasurement) -> bool:
    """Step times with half-widths or, if the machine is too busy for timing, a refusal that says so."""
    if measured.step_time is None:
        return any(note.startswith("Step times were refused") for note in measured.notes)
    return measured.step_time.half_widths is not None


def test_a_running_server_is_measured_by_its_top_k(server: str, tmp_path: Path) -> None:
    """A half-precision server shows a small positive top-k divergence, repeats exactly, and is named."""
    from live.measure.backends.openai_backend import OpenaiBackend

    found = load_prompts(SHIPPED_PROMPTS)
    prompts = [p for name in ("code", "json") for p in [q for q in found if q.slice == name][:3]]
    reference = measure_reference(SHIPPED_MODEL, prompts, tmp_path / "reference.f32")
    backend = OpenaiBackend(Endpoint(url=server))
    plan = MeasurePlan(
        steps=StepPlan(
            batches=(1, 2, 4), contexts=(32, 64), decode_steps=8, rounds=2, blocks=3, most_blocks=6
        )
    )
    measured = KernelMeter(backend, prompts, reference, lambda _: None).measure(backend.kernels[0], plan)
    values = measured.conditions[0].values
    drift = values[:, :, COLUMN_NAMES.index("kl_mean@top_k")]
    assert measured.kernel.name == "shipped"
    assert measured.facts.fingerprint.system_fingerprint.startswith("vllm-")
    assert 0.0 < drift.mean() < 1e-3
    assert np.array_equal(drift[:, 0], drift[:, 1])
    assert known_or_refused(measured)
