"""HTTP calls to a replica, each with a time limit, and their errors.

The environment's proxies are never used.
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contracts.errors import SelvageError
from contracts.loading.untrusted import json_object_of
from contracts.regular_files import TEXT_BYTES, open_regular
from faults.inside.gate import TOKEN_HEADER

_TOKEN_BYTES = 4096


class DrillError(SelvageError):
    """A drill call failed."""


class DrillRefusedError(DrillError):
    """The replica refused, and says why: it was not started for drills, or the call is invalid."""


class ReplicaGoneError(DrillError):
    """No process answers at the replica's address any more; its injected faults are gone with it."""


class ReplicaSilentError(DrillError):
    """The replica did not answer in time."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Returns a redirect as the answer, so that a request's token is sent to no other server."""

    def redirect_request(self, *_: Any) -> None:
        """Follow no redirect."""


_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirects)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    """Status and JSON of an answer; an empty object if the body is not a JSON object."""

    status: int
    content: dict[str, Any]


def call(
    url: str, body: dict[str, Any] | None = None, *, within_s: float, headers: dict[str, str] | None = None
) -> HttpAnswer:
    """POST ``body`` as JSON (GET without a body); error statuses are returned as answers.

    Raises ``ReplicaGoneError`` if the connection is refused, ``ReplicaSilentError`` after ``within_s``.
    """
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json", **(headers or {})})
    try:
        with _OPENER.open(request, timeout=within_s) as answer:
            return HttpAnswer(status=answer.status, content=json_object_of(answer.read(TEXT_BYTES)))
    except urllib.error.HTTPError as error:
        with error:
            return HttpAnswer(status=error.code, content=json_object_of(error.read(TEXT_BYTES)))
    except TimeoutError as error:
        raise ReplicaSilentError(f"{url} did not answer within {within_s:g} s") from error
    except urllib.error.URLError as error:
        if isinstance(error.reason, TimeoutError):
            raise ReplicaSilentError(f"{url} did not answer within {within_s:g} s") from error
        raise ReplicaGoneError(f"{url}: {error.reason}") from error
    except (ConnectionError, http.client.HTTPException) as error:
        raise ReplicaGoneError(f"{url}: {error!r}") from error


def bearer(api_key: str) -> dict[str, str]:
    """Headers with a server's key; empty without a key."""
    return {"Authorization": f"Bearer {api_key}"} if api_key else {}


def steer(
    url: str, action: str, token_file: Path, body: dict[str, Any] | None = None, *, within_s: float
) -> dict[str, Any]:
    """Answer of the control endpoint of the replica at ``url``; ``DrillRefusedError`` if it refuses."""
    headers = {TOKEN_HEADER: _token(token_file)}
    answer = call(f"{url}/selvage/drill/{action}", body, within_s=within_s, headers=headers)
    if answer.status != 200:
        reason = answer.content.get("refused", "it has no control endpoint: it was not started for drills")
        raise DrillRefusedError(f"{url} refuses to {action} ({answer.status}): {reason}")
    return answer.content


def _token(path: Path) -> str:
    try:
        with open_regular(path) as stream:
            return stream.read(_TOKEN_BYTES).decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        message = (error.strerror if isinstance(error, OSError) else "") or "it holds no token"
        raise DrillRefusedError(f"the token file {path} cannot be read: {message}") from error
