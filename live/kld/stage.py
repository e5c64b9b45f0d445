"""Files and environment variables that make a vLLM server able to measure itself.

vLLM's own files are unchanged. The package and the entry points that vLLM looks for are written below one
folder, which is added to ``PYTHONPATH``. A server started without these variables does not load them.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from contracts.loading.files import write_pinned
from faults.client.launch import write_token
from live.kld.inside import gate

PACKAGE = "selvage_kld"
_INSIDE = Path(__file__).with_name("inside")
_METADATA = "Metadata-Version: 2.1\nName: selvage-kld\nVersion: 1\n"
_ENTRY_POINTS = f"""[vllm.general_plugins]
{PACKAGE} = {PACKAGE}.worker:install

[vllm.endpoint_plugins]
{PACKAGE} = {PACKAGE}.endpoint:KldPlugin
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """Variables to set for the server, and the paths that a client needs."""

    environment: dict[str, str]
    """``PYTHONPATH`` and ``VLLM_PLUGINS`` include their previous values."""
    references: Path
    token_file: Path | None


def stage(folder: Path, *, with_token: bool = True, before: dict[str, str] | None = None) -> Staged:
    """Stage everything below ``folder``; returns how to start the server.

    with_token: False lets every caller on the loopback interface ask. before: environment of the server so
    far. Raises OSError if the folder cannot be written.
    """
    known = before or {}
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    code, references, token_file = folder / "code", folder / "references", folder / "token"
    references.mkdir(exist_ok=True)
    _stage_code(code)
    plugins = [name for name in known.get("VLLM_PLUGINS", "").split(",") if name and name != PACKAGE]
    paths = [str(code.resolve()), *filter(None, [known.get("PYTHONPATH")])]
    environment = {
        gate.FLAG: "1",
        gate.FOLDER: str(references.resolve()),
        "VLLM_PLUGINS": ",".join([*plugins, PACKAGE]),
        "VLLM_USE_V2_MODEL_RUNNER": "0",
        "PYTHONPATH": os.pathsep.join(paths),
    }
    if not with_token:
        return Staged(environment=environment, references=references, token_file=None)
    write_token(token_file)
    environment[gate.TOKEN_FILE] = str(token_file.resolve())
    return Staged(environment=environment, references=references, token_file=token_file)


def _stage_code(folder: Path) -> None:
    """Write the package and its metadata, replacing older ones."""
    shutil.rmtree(folder, ignore_errors=True)
    facts = folder / "selvage_kld-1.dist-info"
    facts.mkdir(parents=True)
    write_pinned(facts / "METADATA", _METADATA.encode())
    write_pinned(facts / "entry_points.txt", _ENTRY_POINTS.encode())
    (folder / PACKAGE).mkdir()
    for source in sorted(_INSIDE.glob("*.py")):
        shutil.copy(source, folder / PACKAGE)
