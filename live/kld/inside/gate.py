"""Whether this server was started for such measurements, and who may ask for them.

With a token's file in the environment, whoever has the token; without one, callers on the loopback interface
that came by no proxy. Files of references are read below one folder alone.
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
#: A request with one of these came through somebody else.
_FORWARDED = ("forwarded", "via", "x-forwarded-for", "x-envoy-external-address")


@dataclass(frozen=True, slots=True)
class KldGate:
    """What the environment of this process says. token empty: loopback alone."""

    enabled: bool
    folder: Path = Path()
    token: str = field(default="", repr=False)
    shut: str = ""
    """Why it is not enabled."""


def gate(environment: Mapping[str, str] = os.environ) -> KldGate:
    """The gate as ``environment`` sets it; shut where a part of it is wrong."""
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
    """Why a caller from ``host`` (None: a Unix socket) may not ask; empty where it may.

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
