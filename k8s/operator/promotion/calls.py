"""HTTP calls of webhooks beside the operator's loop: one thread, one timeout per whole call, no redirects.

A user who can write a promotion must not be able to make the operator call internal addresses that only the
operator reaches. Calls therefore go only to origins with which the operator was started. No cookies are kept.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from http.cookiejar import CookieJar, DefaultCookiePolicy
from pathlib import Path

import httpx

from live.origins import allowed_origin, origin_of, trusted

#: Maximum bytes of an answer that are read.
MOST_BYTES = 4096
#: Characters of an answer that are shown.
SHOWN = 120
#: Seconds to wait for the thread at exit; a pending DNS lookup may take longer.
_END_S = 5.0
_HEADERS = {
    "Content-Type": "application/json",
    "User-Agent": "selvage-operator",
    "Accept-Encoding": "identity",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One POST. body: JSON; timeout_s: to the end of the answer."""

    url: str
    body: bytes
    timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HookAnswer:
    """Result of a call. status None: no answer; said: its beginning, escaped, or why there is none."""

    status: int | None
    said: str = ""

    @property
    def agrees(self) -> bool:
        """Whether the status is 2xx."""
        return self.status is not None and 200 <= self.status < 300

    def __str__(self) -> str:
        """Readable text for status messages."""
        if self.status is None:
            return self.said
        return f"HTTP {self.status}: {self.said}" if self.said else f"HTTP {self.status}"


class HookCaller:
    """Calls webhooks for one operator. origins: allowed ones, ``https://HOST:PORT``; ca_file: additional CA
    certificates. Raises ValueError for an invalid origin.
    """

    def __init__(self, origins: Iterable[str] = (), ca_file: Path | None = None) -> None:
        self.origins = frozenset(allowed_origin(one) for one in origins)
        self._ca_file = ca_file
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: httpx.AsyncClient | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> HookCaller:
        """Start the thread, unless no origin is allowed."""
        if self.origins:
            self._client = _client(self._ca_file)
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=_turn, args=(self._loop,), name="webhooks", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Cancel every call in flight and stop the thread."""
        if self._loop is not None and self._thread is not None:
            asyncio.run_coroutine_threadsafe(self._end(), self._loop)
            self._thread.join(_END_S)
        self._loop = self._client = self._thread = None

    def post(self, call: Call) -> Future[HookAnswer]:
        """Start a call without waiting. A failure becomes an answer without a status."""
        if self._loop is None or self._client is None or origin_of(call.url) not in self.origins:
            done: Future[HookAnswer] = Future()
            done.set_result(HookAnswer(status=None, said="not called: its origin is not allowed"))
            return done
        return asyncio.run_coroutine_threadsafe(_answer(self._client, call), self._loop)

    async def _end(self) -> None:
        loop, client = asyncio.get_running_loop(), self._client
        under_way = asyncio.all_tasks() - {asyncio.current_task()}
        for one in under_way:
            one.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        if client is not None:
            await client.aclose()
        loop.stop()


def answer_of(done: Future[HookAnswer]) -> HookAnswer:
    """The answer of a finished call; without a status if it was cancelled or failed unexpectedly."""
    if done.cancelled():
        return HookAnswer(status=None, said="no answer: the call was ended")
    error = done.exception()
    return (
        done.result() if error is None else HookAnswer(status=None, said=f"no answer: {type(error).__name__}")
    )


def _turn(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


def _client(ca_file: Path | None) -> httpx.AsyncClient:
    """HTTP client without timeouts, because each call has one as a whole; proxies as in the environment."""
    return httpx.AsyncClient(
        timeout=None,  # set per call
        follow_redirects=False,
        cookies=CookieJar(policy=DefaultCookiePolicy(allowed_domains=[])),
        headers=_HEADERS,
        verify=trusted(ca_file),
    )


async def _answer(client: httpx.AsyncClient, call: Call) -> HookAnswer:
    """Perform ``call``. Once a status was received it counts, even if reading the body fails."""
    status, content = None, b""
    try:
        async with (
            asyncio.timeout(call.timeout_s),
            client.stream("POST", call.url, content=call.body) as response,
        ):
            status = response.status_code
            if not response.is_success:
                async for chunk in response.aiter_raw():
                    content += chunk
                    if len(content) >= MOST_BYTES:
                        break
    except TimeoutError:
        if status is None:
            return HookAnswer(status=None, said=f"no answer within {call.timeout_s:g} s")
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
        if status is None:
            return HookAnswer(status=None, said=f"no answer: {type(error).__name__}")
    return HookAnswer(status=status, said=_shown(content))


def _shown(content: bytes) -> str:
    """The beginning of an answer in printable ASCII."""
    text = " ".join(content[:MOST_BYTES].decode("utf-8", "replace").split())
    return ascii(text)[1:-1][:SHOWN]
