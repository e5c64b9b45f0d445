"""A pool becomes servers: names, flags and homes; unsupported kernels of this processor are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from contracts.documents import KernelPool
from contracts.errors import DocumentError
from contracts.loading.loader import load_text
from live.fleet import plan as fleet_plan
from live.fleet.envoy import home_table
from live.fleet.plan import FleetPlan, ServerOptions, has_amx, load_pool, plan_fleet
from live.gateway.table import Upstream
from live.measure.kernels import VLLM_KERNELS

POOL = """
apiVersion: selvage.dev/v1alpha1
kind: KernelPool
metadata: {name: two}
spec:
  kernels:
    - {name: fp16, profile: none.yaml, replicas: 2, role: serving, limits: {max_sequences: 8}}
    - {name: fp32, profile: none.yaml, replicas: 1, role: known_good}
  home:
    - {slice: prose, kernel: fp16}
    - {slice: numbers, kernel: fp32}
"""


def pool(text: str = POOL) -> KernelPool:
    """The document."""
    found = load_text(text, "pool.yaml")
    assert isinstance(found, KernelPool)
    return found


def planned(tmp_path: Path, text: str = POOL, options: ServerOptions | None = None) -> FleetPlan:
    """Its fleet, on the shipped model."""
    return plan_fleet(pool(text), tmp_path / "pool.yaml", options or ServerOptions(), tmp_path)


def test_every_replica_has_a_name_and_its_kernels_flags(tmp_path: Path) -> None:
    """Replicas are numbered per kernel; a limit is passed on only if the document states it."""
    found = planned(tmp_path)
    assert [one.name for one in found.replicas] == ["fp16-0", "fp16-1", "fp32-0"]
    half, exact = found.replicas[0].arguments, found.replicas[2].arguments
    assert half[half.index("--dtype") + 1] == "float16"
    assert half[half.index("--max-num-seqs") + 1] == "8"
    assert "--max-num-seqs" not in exact
    assert "--block-size" not in half
    assert "--enforce-eager" in exact
    assert exact[exact.index("--max-model-len") + 1] == "2048"


def test_options_reach_every_server(tmp_path: Path) -> None:
    """Options common to all servers, and options passed on unchanged."""
    options = ServerOptions(max_model_len=512, kv_cache_bytes=8 << 20, extra=("--seed", "7"))
    for one in planned(tmp_path, options=options).replicas:
        assert one.arguments[one.arguments.index("--max-model-len") + 1] == "512"
        assert one.arguments[one.arguments.index("--kv-cache-memory-bytes") + 1] == str(8 << 20)
        assert one.arguments[-2:] == ("--seed", "7")


def test_homes_make_the_first_table(tmp_path: Path) -> None:
    """Each slice begins at its home kernel, split over its replicas; the first home is the default slice."""
    found = planned(tmp_path)
    assert found.default_slice == "prose"
    upstreams = tuple(
        Upstream(replica=one.name, kernel=one.kernel, address="127.0.0.1", port=9000)
        for one in found.replicas
    )
    table = home_table(found, upstreams)
    listed = {route.slice: [e.upstream.replica for e in route.endpoints] for route in table.routes}
    assert listed == {"prose": ["fp16-0", "fp16-1"], "numbers": ["fp32-0"]}
    layout = found.layout()
    assert layout.kernels == ("fp16", "fp32")
    assert np.array_equal(layout.replica_kernel, [0, 0, 1])
    assert layout.kernels[layout.known_good] == "fp32"


def test_kernels_without_a_name_of_ours_are_what_their_fingerprint_says(tmp_path: Path) -> None:
    """A kernel defined by the user is started with the flags of its document."""
    stated = "fingerprint: {engine: vllm, engine_version: x, dtype: float16, kv_cache_dtype: fp8}"
    text = POOL.replace("name: fp16, profile: none.yaml,", f"name: mine, profile: none.yaml, {stated},")
    found = planned(tmp_path, text.replace("kernel: fp16", "kernel: mine"))
    arguments = found.replicas[0].arguments
    assert arguments[arguments.index("--kv-cache-dtype") + 1] == "fp8"
    assert arguments[arguments.index("--dtype") + 1] == "float16"


@pytest.mark.parametrize("name", [fleet_plan.DEFAULT_POOL, fleet_plan.DEFAULT_POOL_AMX])
def test_the_shipped_pools_are_pools(name: str) -> None:
    """Both shipped pools load, and every kernel in them can be started by name."""
    found, _ = load_pool(name)
    known = {kernel.name for kernel in VLLM_KERNELS}
    assert {kernel.name for kernel in found.spec.kernels} <= known


def test_bfloat16_is_refused_on_a_processor_with_amx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM 0.32.0 crashes there, so the refusal names the kernels and an alternative."""
    monkeypatch.setattr(fleet_plan, "has_amx", lambda: True)
    monkeypatch.setattr(fleet_plan, "has_gpu", lambda: False)
    monkeypatch.delenv("SELVAGE_ALLOW_AMX", raising=False)
    assert planned(tmp_path).replicas
    with pytest.raises(DocumentError, match=r"bf16.*use fp16 and fp32") as refused:
        planned(tmp_path, POOL.replace("fp16", "bf16"))
    assert "AMX" in str(refused.value)
    assert fleet_plan.default_pool() == fleet_plan.DEFAULT_POOL_AMX


def test_amx_is_read_from_the_processors_flags(tmp_path: Path) -> None:
    """The flag itself counts, not a word that contains it; an unreadable file says no."""
    file = tmp_path / "cpuinfo"
    file.write_text("model name : x\nflags : sse amx_bf16 amx_tile avx\n")
    assert has_amx(file)
    file.write_text("flags : sse amx_tiles\n")
    assert not has_amx(file)
    assert not has_amx(tmp_path / "nothing")
