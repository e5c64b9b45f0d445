"""What a registry wants to be told when it answers 401: parsed from ``WWW-Authenticate``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.request import parse_http_list, parse_keqv_list

_MOST_CHARACTERS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    """realm, service: of a token service, "" with scheme ``basic``."""

    scheme: str
    realm: str = ""
    service: str = ""


def challenge_of(headers: Iterable[str]) -> Challenge | None:
    """What is asked for: a bearer token before user and password; None where it is neither."""
    found = [one for text in headers for one in _read(text)]
    return next((one for wanted in ("bearer", "basic") for one in found if one.scheme == wanted), None)


def _read(text: str) -> list[Challenge]:
    """The challenge of one header; nothing of what is malformed."""
    scheme, _, rest = text.strip()[:_MOST_CHARACTERS].partition(" ")
    if scheme.lower() == "basic":
        return [Challenge(scheme="basic")]
    if scheme.lower() != "bearer":
        return []
    try:
        given = parse_keqv_list(parse_http_list(rest))
    except (ValueError, IndexError):
        return []
    told = {key.lower(): value for key, value in given.items()}
    return [Challenge(scheme="bearer", realm=told.get("realm", ""), service=told.get("service", ""))]
