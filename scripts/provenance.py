"""Facts about this process: Python, machine, instruction sets, package versions.

Standard library only; no package is imported (their metadata is read instead), so it is cheap
enough for every report header.
"""

from __future__ import annotations

import glob
import hashlib
import os
import platform
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from contracts.home import HOME

#: Packages whose versions change results.
RESULT_PACKAGES = ("numba", "numpy", "pydantic", "scipy", "selvage-fleet", "simpy")

#: Instruction sets that decide which kernels a CPU engine picks, by the kernel's names.
CPU_FEATURES = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_int8")


def package_version(name: str) -> str | None:
    """Installed version of distribution ``name``, None when absent."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def cpu_model() -> str:
    """Processor name, or the architecture if the system does not report it."""
    return _cpuinfo_line("model name") or platform.processor() or platform.machine()


def cpu_features() -> tuple[str, ...]:
    """Those of ``CPU_FEATURES`` that this processor has (empty if the system does not report them)."""
    flags = set((_cpuinfo_line("flags") or _cpuinfo_line("Features")).split())
    return tuple(name for name in CPU_FEATURES if name in flags)


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def has_gpu() -> bool:
    """Whether an NVIDIA device is visible."""
    return bool(glob.glob("/dev/nvidia[0-9]*")) or shutil.which("nvidia-smi") is not None


def machine_facts() -> dict[str, object]:
    """Flat object for a report header: ``python``, ``machine_*`` and ``version_*`` keys."""
    versions = {f"version_{name.replace('-', '_')}": package_version(name) for name in RESULT_PACKAGES}
    return {
        "python": platform.python_version(),
        "machine_arch": platform.machine(),
        "machine_cores": cores(),
        "machine_cpu": cpu_model(),
        "machine_cpu_features": " ".join(cpu_features()),
        **versions,
    }


def _cpuinfo_line(key: str) -> str:
    path = Path("/proc/cpuinfo")
    if not path.exists():
        return ""
    for line in path.read_text(errors="replace").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return ""


def sources_sha256(*more: str) -> str:
    """sha256 (hex) over every source that can affect a result, committed or not; ``more`` layers as well."""
    digest = hashlib.sha256()
    for layer in ("contracts", "controller", "faults", "policies", "scripts", "simulator", *more):
        for file in sorted((HOME / layer).rglob("*.py")):
            digest.update(file.relative_to(HOME).as_posix().encode() + b"\0")
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def git_sha() -> str | None:
    """Commit of the checkout this runs from, with ``-dirty`` for local changes; None outside one."""
    folder = Path(__file__).resolve().parent
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    if not (folder.parent / ".git").exists():
        return None
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()
