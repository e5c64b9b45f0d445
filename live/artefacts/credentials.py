"""Credentials of registries, from a file as ``docker login`` writes it; in no message, log or document.

Helpers are not run: what is mounted is all that counts.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contracts.errors import DocumentError, Problem
from contracts.loading.untrusted import MALFORMED, json_of
from contracts.regular_files import read_regular

_FILE_BYTES = 2**20
#: What the file calls Docker Hub, and where it answers.
_DOCKER_HUB = ("https://index.docker.io/v1/", "registry-1.docker.io")


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """What one registry is told. All empty: nothing."""

    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)
    """Refresh token, exchanged for a token of one repository."""
    registry_token: str = field(default="", repr=False)
    """Sent as it is."""

    @property
    def basic(self) -> str:
        """Value of the ``Authorization`` header, "" without user and password."""
        if not self.user or not self.password:
            return ""
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()


def read_credentials(file: Path) -> dict[str, Credential]:
    """Registry (``HOST`` or ``HOST:PORT``) -> credential, of a ``config.json``.

    DocumentError, without a word of the content, for a file that cannot be read or holds none.
    """
    content = read_regular(file, _FILE_BYTES)
    try:
        given = json_of(content)
        entries = given.get("auths") or {}
        found = {_host(str(name)): _credential(one) for name, one in entries.items()}
        helped = bool(given.get("credsStore") or given.get("credHelpers"))
    except MALFORMED:
        raise _refused(file, "a config.json of docker login", "something else", "mount another") from None
    if not found:
        hint = "helpers are not run: write auths, as docker login does without a helper"
        raise _refused(file, "auths", "a helper of credentials" if helped else "none", hint)
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


def _refused(file: Path, expected: str, actual: str, next_step: str) -> DocumentError:
    return DocumentError([Problem(str(file), 0, "", expected, actual, next_step)])
