"""Origins that may be called (scheme, host and port of a URL), and trusted certificates."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path

import httpx

LOOPBACK = "127.0.0.1"
#: For clients that use the environment's proxies: servers of this machine are reached without a proxy.
DIRECT: Mapping[str, None] = dict.fromkeys(("all://127.0.0.1", "all://localhost", "all://[::1]"))
_PORTS = {"http": 80, "https": 443}


def origin_of(url: str) -> str:
    """Scheme, host and port of ``url`` as ``https://host:443``; ValueError if one is missing."""
    try:
        parts = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ValueError(f"{url!r:.200} is no URL: {error}") from None
    port, host = parts.port or _PORTS.get(parts.scheme), parts.raw_host.decode("ascii").lower()
    if not host or port is None or parts.scheme not in _PORTS:
        raise ValueError(f"{url!r:.200} has no origin of http or https")
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def allowed_origin(text: str) -> str:
    """The origin that an option names; ValueError if it is not exactly an origin."""
    found, parts = origin_of(text), httpx.URL(text)
    if parts.userinfo or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError(f"expected an origin as {found}, got more")
    return found


def trusted(ca_file: Path | None) -> ssl.SSLContext:
    """The system's authorities and those of ``ca_file`` (PEM); OSError if it cannot be read."""
    found = ssl.create_default_context()
    if ca_file is not None:
        found.load_verify_locations(ca_file)
    return found
