"""Access to OCI registries: which registries may be contacted, and with which credentials.

Only registries that the user named are contacted. A registry answers with the address of its token service
and with redirects to its storage. Two things must not happen: the author of a document makes this process
call internal addresses, or a registry receives the credentials of another registry.

Credentials are read from a file in the format that ``docker login`` writes. They appear in no message, log or
document. Credential helpers are not run: only what the mounted file contains is used.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contracts.errors import refusal
from contracts.loading.untrusted import MALFORMED, json_of
from contracts.regular_files import read_regular
from live.origins import allowed_origin, origin_of

_FILE_BYTES = 2**20
#: Docker Hub's key in the credentials file, and the host that its registry answers at.
_DOCKER_HUB = ("https://index.docker.io/v1/", "registry-1.docker.io")


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """Credentials for one registry. All fields empty: no credentials are sent."""

    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)
    """Refresh token, exchanged for a token of one repository."""
    registry_token: str = field(default="", repr=False)
    """Bearer token, sent unchanged."""

    @property
    def basic(self) -> str:
        """Value of the ``Authorization`` header; "" without user or password."""
        if not self.user or not self.password:
            return ""
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()


def read_credentials(file: Path) -> dict[str, Credential]:
    """Read a ``config.json``: registry (``HOST`` or ``HOST:PORT``) -> credential.

    Raises DocumentError for a file that cannot be read or holds no credentials. The message quotes nothing of
    the file's content.
    """
    content = read_regular(file, _FILE_BYTES)
    try:
        given = json_of(content)
        entries = given.get("auths") or {}
        found = {_host(str(name)): _credential(one) for name, one in entries.items()}
        helped = bool(given.get("credsStore") or given.get("credHelpers"))
    except MALFORMED:
        raise refusal(file, "a config.json of docker login", "something else", "mount another") from None
    if not found:
        hint = "helpers are not run: write auths, as docker login does without a helper"
        raise refusal(file, "auths", "a helper of credentials" if helped else "none", hint)
    return found


def _host(name: str) -> str:
    if name == _DOCKER_HUB[0]:
        return _DOCKER_HUB[1]
    return name.removeprefix("https://").removeprefix("http://").partition("/")[0].lower()


def _credential(found: Mapping[str, Any]) -> Credential:
    user, password = _text(found, "username"), _text(found, "password")
    if packed := _text(found, "auth"):
        plain = base64.b64decode(packed, validate=True).decode()
        user, _, password = plain.rstrip("\0").partition(":")
    return Credential(
        user=user,
        password=password,
        identity_token=_text(found, "identitytoken"),
        registry_token=_text(found, "registrytoken"),
    )


def _text(found: Mapping[str, Any], key: str) -> str:
    value = found.get(key) or ""
    if not isinstance(value, str) or not value.isprintable() or not value.isascii():
        raise ValueError(key)
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryOrigins:
    """One registry that may be contacted.

    origin: ``https://HOST:PORT`` of the registry. beside: origins of its token service and its storage.
    """

    origin: str
    beside: frozenset[str] = frozenset()

    @property
    def origins(self) -> frozenset[str]:
        """Every origin that may be called for this registry."""
        return self.beside | {self.origin}


def registry_of(text: str) -> RegistryOrigins:
    """Parse ``ORIGIN[,ORIGIN...]``, the registry first. Raises ValueError for an entry that is no origin."""
    first, *others = (allowed_origin(one) for one in text.split(","))
    return RegistryOrigins(origin=first, beside=frozenset(others))


def allowed_registry(host: str, registries: Iterable[RegistryOrigins]) -> RegistryOrigins | None:
    """The registry that a URI calls ``host`` (``HOST`` or ``HOST:PORT``); None if it may not be contacted."""
    for one in registries:
        scheme = one.origin.partition("://")[0]
        try:
            if origin_of(f"{scheme}://{host}") == one.origin:
                return one
        except ValueError:
            return None
    return None
