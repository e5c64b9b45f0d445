"""Whether this server was started for these measurements, and which callers may use them.

If the environment names a token file, a caller needs the token. Without one, only callers on the loopback
interface that came through no proxy are served. Reference files are read below one folder only.
"""

from __future__ import annotations

import hmac
import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .orders import TOKEN_HEADER

FLAG = "SELVAGE_KLD"
TOKEN_FILE = "SELVAGE_KLD_TOKEN_FILE"
FOLDER = "SELVAGE_KLD_FOLDER"
SHORTEST_TOKEN = 16
#: Headers that show that a request came through a proxy.
_FORWARDED = ("forwarded", "via", "x-forwarded-for", "x-envoy-external-address")


@dataclass(frozen=True, slots=True)
class KldGate:
    """The settings in this process's environment. token empty: loopback only."""

    enabled: bool
    folder: Path = Path()
    token: str = field(default="", repr=False)
    shut: str = ""
    """Why it is not enabled."""


def gate(environment: Mapping[str, str] = os.environ) -> KldGate:
    """The gate that ``environment`` defines; disabled if a setting is wrong."""
    if environment.get(FLAG) != "1":
        return KldGate(enabled=False, shut=f"this server was not started with {FLAG}=1")
    folder = Path(environment.get(FOLDER, ""))
    if not environment.get(FOLDER) or not folder.is_dir():
        return KldGate(enabled=False, shut=f"{FOLDER} names no folder")
    if not environment.get(TOKEN_FILE):
        return KldGate(enabled=True, folder=folder.resolve())
    try:
        token = Path(environment[TOKEN_FILE]).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        token = ""
    if len(token) < SHORTEST_TOKEN:
        return KldGate(enabled=False, shut=f"{TOKEN_FILE} holds no token of {SHORTEST_TOKEN} signs or more")
    return KldGate(enabled=True, folder=folder.resolve(), token=token)


def refusal(now: KldGate, host: str | None, headers: Mapping[str, str]) -> str:
    """Why a caller from ``host`` (None: a Unix socket) is refused; "" if it is not.

    headers: by lower-case name.
    """
    if not now.enabled:
        return now.shut
    if now.token:
        given = headers.get(TOKEN_HEADER, "")
        same = hmac.compare_digest(given.encode(), now.token.encode())
        return "" if same else f"the header {TOKEN_HEADER} does not hold this server's token"
    if not _is_local(host) or any(name in headers for name in _FORWARDED):
        return f"without {TOKEN_FILE} only the loopback interface may ask, and through no proxy"
    return ""


def _is_local(host: str | None) -> bool:
    if host is None:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
