"""Installed parts, shadowed packages, and missing parts with the command that provides them.

Imports none of the packages it examines (a broken torch must not break the doctor); reads
metadata and files only.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import packages_distributions, requires
from importlib.util import find_spec
from pathlib import Path
from shutil import which

from contracts.cache_folder import cache_folders, first_writable
from contracts.home import HOME, LAYERS, PACKAGE
from scripts.provenance import cpu_features, has_gpu, package_version

#: Installed version.
DISTRIBUTION = "selvage-fleet"
#: Our top-level packages and the folder that each should come from; installed, the layers lie in the package.
TOP_LEVEL = (
    {PACKAGE: HOME}
    if __name__.startswith(f"{PACKAGE}.")
    else {name: HOME / name for name in (*LAYERS, PACKAGE)}
)


class Status(StrEnum):
    """Outcome of one check; only ``MISSING`` (core) and ``SHADOWED`` need action."""

    OK = "ok"
    OPTIONAL = "not installed"
    MISSING = "missing"
    SHADOWED = "shadowed"
    NOTE = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorCheck:
    """One line of the report. ``next_step`` is empty when there is nothing to do."""

    name: str
    status: Status
    version: str = ""
    where: str = ""
    detail: str = ""
    next_step: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Optional:
    """An optional part: the module it provides, the command that installs it, its purpose."""

    module: str
    command: str
    purpose: str


TORCH = "make setup-test (in a checkout) or pip install 'selvage-fleet[torch]'"
VLLM = "make setup-test (in a checkout) or, on a GPU host, pip install 'selvage-fleet[vllm]'"
RL = "make setup-test (in a checkout) or pip install 'selvage-fleet[rl]'"
LIVE = "make setup-test (in a checkout) or pip install 'selvage-fleet[live]'"
K8S = "pip install 'selvage-fleet[k8s]'"
OPTIONALS = (
    Optional(module="torch", command=TORCH, purpose="measuring kernels with transformers"),
    Optional(module="transformers", command=TORCH, purpose="measuring kernels with transformers"),
    Optional(module="tokenizers", command=TORCH, purpose="measuring any kernel: it reads the prompts"),
    Optional(module="safetensors", command=TORCH, purpose="measuring kernels with transformers"),
    Optional(module="vllm", command=VLLM, purpose="measuring kernels with a real vLLM engine"),
    Optional(module="gymnasium", command=RL, purpose="training policies"),
    Optional(module="stable_baselines3", command=RL, purpose="training policies"),
    Optional(module="sb3_contrib", command=RL, purpose="training recurrent policies"),
    Optional(module="joblib", command=RL, purpose="training several seeds at once"),
    Optional(module="optuna", command=RL, purpose="tuning baselines"),
    Optional(module="minari", command=RL, purpose="datasets of logged incidents"),
    Optional(module="envoy", command=LIVE, purpose="the live fleet's gateway"),
    Optional(module="aiohttp", command=LIVE, purpose="load on the live fleet"),
    Optional(module="kopf", command=K8S, purpose="the operator"),
    Optional(module="kubernetes", command=K8S, purpose="the operator"),
)


def command_for(module: str) -> str:
    """Command that provides optional ``module``; empty for any other."""
    return next((part.command for part in OPTIONALS if part.module == module), "")


def examine() -> list[DoctorCheck]:
    """Every check, in the order of the report."""
    providers = packages_distributions()
    return [
        _python(),
        _selvage(),
        *(_core(name) for name in core_requirements()),
        *(check_optional(part, providers) for part in OPTIONALS),
        *shadowed_packages(providers, Path.cwd()),
        _processor(),
        _accelerator(),
        numba_cache(HOME, os.environ),
    ]


def core_requirements() -> list[str]:
    """Names of the distributions that the core needs, from the installed metadata; empty without it."""
    written = requires(DISTRIBUTION) if package_version(DISTRIBUTION) else None
    lines = [line for line in written or [] if "extra ==" not in line]
    return sorted(re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0] for line in lines)


def check_optional(part: Optional, providers: Mapping[str, Sequence[str]]) -> DoctorCheck:
    """State of an optional part; two distributions with the same module shadow each other."""
    found = sorted(set(providers.get(part.module, ())))
    spec = find_spec(part.module)
    if not found or spec is None:
        return DoctorCheck(
            name=part.module,
            status=Status.OPTIONAL,
            detail=part.purpose + _other_venv(part.module),
            next_step=part.command,
        )
    versions = ", ".join(f"{name} {package_version(name)}" for name in found)
    where = str(Path(spec.origin or "").parent)
    if len(found) > 1:
        return DoctorCheck(
            name=part.module,
            status=Status.SHADOWED,
            version=versions,
            where=where,
            detail="several distributions install this module; the last one written wins",
            next_step=f"pip uninstall all but one of {', '.join(found)}, then install that one again",
        )
    detail = torch_build(Path(where)) if part.module == "torch" else ""
    return DoctorCheck(name=part.module, status=Status.OK, version=versions, where=where, detail=detail)


def shadowed_packages(providers: Mapping[str, Sequence[str]], cwd: Path) -> list[DoctorCheck]:
    """Our top-level packages that another distribution, path entry or folder of ``cwd`` hides."""
    return [check for name in TOP_LEVEL if (check := _shadowed(name, providers, cwd)) is not None]


def _shadowed(name: str, providers: Mapping[str, Sequence[str]], cwd: Path) -> DoctorCheck | None:
    others = sorted(set(providers.get(name, ())) - {DISTRIBUTION})
    spec = find_spec(name)
    where = Path(spec.origin).parent if spec and spec.origin else Path()
    status = Status.SHADOWED
    if where != TOP_LEVEL[name]:
        detail, next_step = "imported from elsewhere than the command line itself", "remove it from sys.path"
    elif others:
        detail, next_step = f"{', '.join(others)} installs a package of this name", "use a venv of its own"
    elif (cwd / name).is_dir() and (cwd / name).resolve() != where:
        detail = f"{cwd / name} would be imported instead by `python -m`"
        status, next_step = Status.NOTE, "run `selvage`, or change to another folder"
    else:
        return None
    return DoctorCheck(name=name, status=status, where=str(where), detail=detail, next_step=next_step)


def torch_build(folder: Path) -> str:
    """``CPU build`` or ``CUDA x.y build``, from torch's own version file; empty if it says nothing."""
    path = folder / "version.py"
    text = path.read_text(errors="replace") if path.exists() else ""
    match = re.search(r"^cuda\b[^=]*=\s*(\S+)", text, re.MULTILINE)
    if match is None:
        return ""
    cuda = match.group(1).strip("'\"")
    return "CPU build" if cuda == "None" else f"CUDA {cuda} build"


def numba_cache(home: Path, environment: Mapping[str, str]) -> DoctorCheck:
    """Where the compiled functions of the installation at ``home`` are kept between runs."""
    folders = cache_folders(home, environment)
    found = first_writable(folders)
    named = environment.get("NUMBA_CACHE_DIR")
    if found is not None and (not named or found == folders[0]):
        return DoctorCheck(name="numba cache", status=Status.OK, where=str(found))
    instead = f"using {found}" if found else "everything is compiled at every start"
    return DoctorCheck(
        name="numba cache",
        status=Status.NOTE,
        where=str(folders[0]),
        detail=f"not writable: {instead}",
        next_step="set NUMBA_CACHE_DIR to a folder that you can write",
    )


def _python() -> DoctorCheck:
    version = ".".join(map(str, sys.version_info[:3]))
    supported = (3, 11) <= sys.version_info[:2] <= (3, 13)
    status = Status.OK if supported else Status.MISSING
    step = "" if supported else "use Python 3.11, 3.12 or 3.13"
    return DoctorCheck(name="python", status=status, version=version, where=sys.executable, next_step=step)


def _selvage() -> DoctorCheck:
    version = package_version(DISTRIBUTION)
    if version is None:
        step = "make setup (in a checkout) or pip install selvage-fleet"
        return DoctorCheck(name=DISTRIBUTION, status=Status.MISSING, where=str(HOME), next_step=step)
    return DoctorCheck(name=DISTRIBUTION, status=Status.OK, version=version, where=str(HOME))


def _core(name: str) -> DoctorCheck:
    version = package_version(name)
    if version is None:
        return DoctorCheck(
            name=name, status=Status.MISSING, detail="the core needs it", next_step="make setup"
        )
    return DoctorCheck(name=name, status=Status.OK, version=version)


def _other_venv(module: str) -> str:
    other = Path(sys.prefix).with_name(Path(sys.prefix).name + "-vllm")
    here = any(other.glob(f"lib/python*/site-packages/{module}/__init__.py"))
    return f"; {other} has it: run {other}/bin/selvage" if here else ""


def _processor() -> DoctorCheck:
    features = cpu_features()
    lacks_vnni = "avx2" in features and "avx512_vnni" not in features
    return DoctorCheck(
        name="processor",
        status=Status.NOTE if lacks_vnni else Status.OK,
        version=" ".join(features),
        detail="no VNNI: W8A8 kernels run another code path and drift more" if lacks_vnni else "",
        next_step="profile W8A8 kernels on the kind of host that serves them" if lacks_vnni else "",
    )


def _accelerator() -> DoctorCheck:
    if not has_gpu():
        return DoctorCheck(name="gpu", status=Status.OPTIONAL, detail="CPU builds are used")
    return DoctorCheck(name="gpu", status=Status.OK, version=_gpu_name())


def _gpu_name() -> str:
    program = which("nvidia-smi")
    if program is None:
        return "unnamed"
    query = [program, "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return "unnamed"
    return "; ".join(done.stdout.split("\n")).strip("; ") or "unnamed"
