"""Blobs and manifests of one repository, pulled from one registry (OCI distribution API).

Only origins that the user named are called. Credentials are sent to the registry and to its token service,
and never along a redirect. Cookies are not kept and content is not decompressed. Messages name origins only,
because the URL of a blob may contain a signature. After a 401, the required authentication is parsed from
``WWW-Authenticate``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http.cookiejar import CookieJar, DefaultCookiePolicy
from pathlib import Path
from typing import Any
from urllib.parse import urljoin
from urllib.request import parse_http_list, parse_keqv_list

import httpx

from contracts.errors import DocumentError, refusal
from contracts.loading.oci import OciUri
from contracts.loading.untrusted import MALFORMED, json_of
from live.artefacts.access import Credential, RegistryOrigins
from live.origins import origin_of, trusted

#: Most redirects that one request follows.
MOST_HOPS = 3
_TOKEN_BYTES, _TOKEN_CHARACTERS = 2**16, 2**14
_REDIRECTS = (301, 302, 303, 307, 308)
_HEADERS = {"User-Agent": "selvage", "Accept-Encoding": "identity"}
#: Receives the pieces of an answer; raises DocumentError to refuse more.
Take = Callable[[bytes], None]
_AUTH = "--registry-auth-file"


def registry_client(
    ca_file: Path | None, transport: httpx.AsyncBaseTransport | None = None
) -> httpx.AsyncClient:
    """An HTTP client without timeouts, because a fetch has one as a whole. Uses the environment's proxies."""
    return httpx.AsyncClient(
        timeout=None,  # ``fetch`` limits the time of the whole download
        follow_redirects=False,
        cookies=CookieJar(policy=DefaultCookiePolicy(allowed_domains=[])),
        headers=_HEADERS,
        verify=trusted(ca_file),
        transport=transport,
    )


class Repository:
    """The repository of ``uri`` at ``registry``."""

    def __init__(
        self, client: httpx.AsyncClient, registry: RegistryOrigins, credential: Credential, uri: OciUri
    ) -> None:
        self._client, self._registry, self._credential, self._uri = client, registry, credential, uri
        self._authorization = ""

    async def get(self, path: str, accept: str, take: Take) -> None:
        """Pass the answer to ``GET /v2/REPOSITORY/path`` to ``take``; DocumentError if there is no answer."""
        url = f"{self._registry.origin}/v2/{self._uri.repository}/{path}"
        asked = await self._ask(url, accept, take)
        if asked is None:
            return
        self._authorization = await self._authorised(asked)
        if await self._ask(url, accept, take) is not None:
            told = "HTTP 401 again with what it asked for"
            raise self.refused("an answer", told, f"check the rights of {_AUTH}")

    def refused(self, expected: str, actual: str, next_step: str) -> DocumentError:
        """A DocumentError about this artefact."""
        return refusal(self._uri.artefact, expected, actual, next_step)

    async def _ask(self, url: str, accept: str, take: Take) -> list[str] | None:
        """Send one request and follow its redirects.

        Returns the ``WWW-Authenticate`` headers of a 401, or None once ``take`` has received the whole
        answer.
        """
        for _ in range(MOST_HOPS + 1):
            origin = origin_of(url)
            headers = {"Accept": accept}
            if self._authorization and origin == self._registry.origin:
                headers["Authorization"] = self._authorization
            async with self._client.stream("GET", url, headers=headers) as answer:
                if answer.status_code in _REDIRECTS:
                    url = self._next(url, answer.headers.get("Location", ""))
                    continue
                if answer.status_code == httpx.codes.UNAUTHORIZED and origin == self._registry.origin:
                    return answer.headers.get_list("WWW-Authenticate")
                self._check(answer.status_code, origin)
                async for piece in answer.aiter_raw():
                    take(piece)
                return None
        raise self.refused(f"at most {MOST_HOPS} redirects", "more", "ask the registry's administrator")

    def _next(self, url: str, location: str) -> str:
        """The target of a redirect."""
        try:
            target = urljoin(url, location)
            origin = origin_of(target)
        except ValueError:
            raise self.refused("a redirect to a URL", "something else", "ask its operator") from None
        self._check_origin(origin, "a redirect")
        return target

    def _check_origin(self, origin: str, what: str) -> None:
        if origin in self._registry.origins:
            return
        known = ",".join((self._registry.origin, *sorted(self._registry.beside), origin))
        message = f"{what} to {origin}"
        raise self.refused("origins that were named", message, f"where that is right: --registry {known}")

    def _check(self, status: int, origin: str) -> None:
        if status == httpx.codes.OK:
            return
        hint = "check the URI, and the rights of the credentials"
        raise self.refused(f"an answer of {origin}", f"HTTP {status}", hint)

    async def _authorised(self, headers: list[str]) -> str:
        """Value of the ``Authorization`` header that the registry asks for."""
        challenge, known = challenge_of(headers), self._credential
        if challenge is None:
            told = "HTTP 401 without a challenge that we know"
            raise self.refused("Bearer or Basic in WWW-Authenticate", told, "is this a registry?")
        if known.registry_token:
            return f"Bearer {known.registry_token}"
        if challenge.scheme == "basic":
            if not known.basic:
                raise self.refused("credentials", "none for this registry", f"name them by {_AUTH}")
            return known.basic
        return f"Bearer {await self._token(challenge)}"

    async def _token(self, challenge: Challenge) -> str:
        """A token for this repository only, whatever scope the registry names."""
        try:
            origin = origin_of(challenge.realm)
        except ValueError:
            raise self.refused("a realm that is a URL", "something else", "is this a registry?") from None
        self._check_origin(origin, "a token service")
        scope = f"repository:{self._uri.repository}:pull"
        asked = {"service": challenge.service, "scope": scope, "client_id": "selvage"}
        known = self._credential
        if known.identity_token:
            form = {**asked, "grant_type": "refresh_token", "refresh_token": known.identity_token}
            request = self._client.build_request("POST", challenge.realm, data=form)
        else:
            headers = {"Authorization": known.basic} if known.basic else {}
            request = self._client.build_request("GET", challenge.realm, params=asked, headers=headers)
        return self._token_in(await self._answer(request, origin))

    async def _answer(self, request: httpx.Request, origin: str) -> bytes:
        """The token service's answer, of limited size."""
        content = b""
        answer = await self._client.send(request, stream=True)
        try:
            self._check(answer.status_code, origin)
            async for piece in answer.aiter_raw():
                content += piece
                if len(content) > _TOKEN_BYTES:
                    raise self.refused(f"a token of {origin}", "too much", "is this a token service?")
        finally:
            await answer.aclose()
        return content

    def _token_in(self, content: bytes) -> str:
        try:
            found: Any = json_of(content)
            token = found.get("token") or found["access_token"]
            if (
                len(token) <= _TOKEN_CHARACTERS
                and token.isascii()
                and token.isprintable()
                and " " not in token
            ):
                return str(token)
        except MALFORMED:
            pass
        raise self.refused("JSON with a token", "something else", "is this a token service?")


_MOST_CHARACTERS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    """What a 401 asks for. realm, service: of the token service; "" for scheme ``basic``."""

    scheme: str
    realm: str = ""
    service: str = ""


def challenge_of(headers: Iterable[str]) -> Challenge | None:
    """The challenge to answer: bearer is preferred to basic; None if there is neither."""
    found = [one for text in headers for one in _read(text)]
    return next((one for wanted in ("bearer", "basic") for one in found if one.scheme == wanted), None)


def _read(text: str) -> list[Challenge]:
    """The challenges in one header; empty if the header is malformed."""
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
