"""Whether this server was started for drills, and whether a caller may steer them.

Three things must come together: the flag and the token's file in the server's environment, a caller on the
loopback interface who came by no proxy, and the token in its request. Where the environment names a port of
drills (``door``), calls come there alone, from any address that the network lets through.
"""

from __future__ import annotations

import hmac
import ipaddress
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

FLAG = "SELVAGE_DRILL"
TOKEN_FILE = "SELVAGE_DRILL_TOKEN_FILE"
FOLDER = "SELVAGE_DRILL_FOLDER"
SLICE_HEADER = "SELVAGE_DRILL_SLICE_HEADER"
PORT = "SELVAGE_DRILL_PORT"
HOST = "SELVAGE_DRILL_HOST"
REPLICA = "SELVAGE_DRILL_REPLICA"
TOKEN_HEADER = "x-selvage-drill-token"
DEFAULT_SLICE_HEADER = "x-selvage-slice"
SHORTEST_TOKEN = 16
_LAST_PORT = 65535
_PROXY_HEADERS = ("forwarded", "via", "x-forwarded-for", "x-envoy-external-address", "x-request-start")


class CallRefusedError(Exception):
    """A drill call that is not allowed or makes no sense; the message says why."""


@dataclass(frozen=True, slots=True)
class DrillGate:
    """What the environment of this process says about drills."""

    enabled: bool
    folder: Path = Path()
    """Private to this replica: holds the lease and what its processes tell each other."""
    token: str = field(default="", repr=False)
    slice_header: str = DEFAULT_SLICE_HEADER
    port: int = 0
    """Where drills are steered, apart from what clients reach; 0: on the server's own, from loopback."""
    host: str = "127.0.0.1"
    """Address that it listens on there."""
    replica: str = ""
    """What answers name as their replica; empty: they name none."""


def gate(environment: Mapping[str, str] = os.environ) -> DrillGate:
    """The gate as ``environment`` sets it; shut where any of its parts is missing or unreadable."""
    token = _token(environment.get(TOKEN_FILE, ""))
    folder = Path(environment.get(FOLDER, ""))
    ready = bool(environment.get(FOLDER)) and folder.is_dir() and len(token) >= SHORTEST_TOKEN
    if environment.get(FLAG) != "1" or not ready:
        return DrillGate(enabled=False)
    header = environment.get(SLICE_HEADER, DEFAULT_SLICE_HEADER).lower()
    port = environment.get(PORT, "0")
    if not port.isdecimal() or int(port) > _LAST_PORT:
        return DrillGate(enabled=False)
    return DrillGate(
        enabled=True,
        folder=folder,
        token=token,
        slice_header=header,
        port=int(port),
        host=environment.get(HOST, "127.0.0.1"),
        replica=environment.get(REPLICA, ""),
    )


def _token(path: str) -> str:
    try:
        return Path(path).read_text().strip() if path else ""
    except OSError:
        return ""


def refusal(
    now: DrillGate, host: str | None, headers: Iterable[tuple[bytes, bytes]], *, at_door: bool = False
) -> str:
    """Why a caller from ``host`` (None: a Unix socket) may not steer drills; empty where it may.

    at_door: it came by the port of drills.
    """
    if not now.enabled:
        return "this server was not started for drills"
    if now.port and not at_door:
        return f"drills of this server are steered on port {now.port} alone"
    given = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in headers}
    if not (at_door or _is_loopback(host)) or any(name in given for name in _PROXY_HEADERS):
        return "drills are steered from the loopback interface and through no proxy"
    if not hmac.compare_digest(given.get(TOKEN_HEADER, "").encode(), now.token.encode()):
        return f"the header {TOKEN_HEADER} does not hold this replica's token"
    return ""


def _is_loopback(host: str | None) -> bool:
    try:
        return host is None or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
