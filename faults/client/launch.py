"""Command line and environment that a vLLM server needs to accept faults.

The server's own files are unchanged: the injected code is staged in a folder of the replica, and loaded by
vLLM's extension points. A server that is started without these settings does not load it.
"""

from __future__ import annotations

import os
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path

from contracts.loading.files import write_pinned
from faults.inside import gate

PACKAGE = "selvage_inject"
#: What plugs the extension into vLLM, and what faults of sampling need besides.
PLUGGED = (
    "--worker-extension-cls", f"{PACKAGE}.inside.worker.DrillFaults",
    "--middleware", f"{PACKAGE}.inside.middleware.DrillMiddleware",
)  # fmt: skip
PROCESSORS = ("--logits-processors", f"{PACKAGE}.inside.logits:DrillLogits")
_FAULTS = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillArguments:
    """Added to a server's start; ``token_file`` and ``folder`` are what a client needs to steer it."""

    arguments: tuple[str, ...]
    environment: dict[str, str]
    """Variables to set. ``PYTHONPATH`` holds the staged folder first and what was there before."""
    folder: Path
    token_file: Path


def drill_arguments(
    folder: Path,
    *,
    slice_header: str = gate.DEFAULT_SLICE_HEADER,
    sampling: bool = True,
    python_path: str = "",
) -> DrillArguments:
    """Stage what runs inside below ``folder`` (private to one replica) and say how to start the server.

    sampling: False leaves the logits processor away, which engines with speculative decoding refuse; faults
    of sampling are then impossible. python_path: what ``PYTHONPATH`` holds already. OSError where the folder
    cannot be written.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    token_file = folder / "token"
    write_token(token_file)
    _stage(folder / "code" / PACKAGE)
    environment = {
        gate.FLAG: "1",
        gate.TOKEN_FILE: str(token_file.resolve()),
        gate.FOLDER: str(folder.resolve()),
        gate.SLICE_HEADER: slice_header,
        "PYTHONPATH": os.pathsep.join(filter(None, (str((folder / "code").resolve()), python_path))),
    }
    if sampling:  # a logits processor of the v1 interface, which the second model runner refuses
        environment["VLLM_USE_V2_MODEL_RUNNER"] = "0"
    return DrillArguments(
        arguments=PLUGGED + (PROCESSORS if sampling else ()),
        environment=environment,
        folder=folder,
        token_file=token_file,
    )


def write_token(path: Path) -> None:
    """A fresh token that only its owner can read: an older client cannot steer a new server."""
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_text(secrets.token_urlsafe(32))


def extension_files() -> dict[str, bytes]:
    """The injected files, by path below the package ``PACKAGE``."""
    inside = sorted((_FAULTS / "inside").glob("*.py"))
    found = {f"inside/{source.name}": source.read_bytes() for source in inside}
    return {"__init__.py": b"", "vllm_worker.py": (_FAULTS / "vllm_worker.py").read_bytes(), **found}


def _stage(package: Path) -> None:
    """Copy the injected files to ``package``, replacing older ones."""
    shutil.rmtree(package, ignore_errors=True)
    (package / "inside").mkdir(parents=True)
    for name, content in extension_files().items():
        write_pinned(package / name, content)
