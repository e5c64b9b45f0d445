"""Command line and environment variables that let a vLLM server accept faults.

The server's own files stay unchanged: the injected code is staged in a folder of the replica and loaded
through vLLM's extension points. A server started without these settings does not load it.
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
#: Settings that plug the extension into vLLM, and settings that sampling faults need in addition.
PLUGGED = (
    "--worker-extension-cls", f"{PACKAGE}.inside.worker.DrillFaults",
    "--middleware", f"{PACKAGE}.inside.middleware.DrillMiddleware",
)  # fmt: skip
PROCESSORS = ("--logits-processors", f"{PACKAGE}.inside.logits:DrillLogits")
_FAULTS = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillArguments:
    """Added to a server's start; a client needs ``token_file`` and ``folder`` to control its faults."""

    arguments: tuple[str, ...]
    environment: dict[str, str]
    """Variables to set. ``PYTHONPATH`` holds the staged folder first, then its previous value."""
    folder: Path
    token_file: Path


def drill_arguments(
    folder: Path,
    *,
    slice_header: str = gate.DEFAULT_SLICE_HEADER,
    sampling: bool = True,
    python_path: str = "",
) -> DrillArguments:
    """Stage the injected files below ``folder`` (private to one replica) and return how to start the server.

    sampling: False omits the logits processor, which engines with speculative decoding refuse; sampling
    faults are then impossible. python_path: the present value of ``PYTHONPATH``. OSError if the folder
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
    """Write a fresh token that only its owner can read: an older client cannot control a new server."""
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
