"""HTTP calls of webhooks beside the operator's loop: one thread, a whole time for each call, no redirects.

Whoever writes a promotion must not make the operator call what it alone can reach: a call goes to an origin
that the operator was started with, or nowhere. Nothing is sent but the body; no cookie is kept.
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

#: No more of an answer is read.
MOST_BYTES = 4096
#: Characters of it that are shown.
SHOWN = 120
#: Who ends waits so long for the thread; a name that is still being looked up may take longer.
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
    """What came back. status None: no answer; said: its beginning, escaped, or why there is none."""

    status: int | None
    said: str = ""

    @property
    def agrees(self) -> bool:
        """2xx."""
        return self.status is not None and 200 <= self.status < 300

    def __str__(self) -> str:
        """For people."""
        if self.status is None:
            return self.said
        return f"HTTP {self.status}: {self.said}" if self.said else f"HTTP {self.status}"


class HookCaller:
    """Posts for one operator. origins: those that may be called, ``https://HOST:PORT``; ca_file: authorities
    that are believed beside the usual ones. ValueError for what is no origin.
    """

    def __init__(self, origins: Iterable[str] = (), ca_file: Path | None = None) -> None:
        self.origins = frozenset(allowed_origin(one) for one in origins)
        self._ca_file = ca_file
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: httpx.AsyncClient | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> HookCaller:
        """Itself; without origins there is nothing to run."""
        if self.origins:
            self._client = _client(self._ca_file)
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=_turn, args=(self._loop,), name="webhooks", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End every call that is under way."""
        if self._loop is not None and self._thread is not None:
            asyncio.run_coroutine_threadsafe(self._end(), self._loop)
            self._thread.join(_END_S)
        self._loop = self._client = self._thread = None

    def post(self, call: Call) -> Future[HookAnswer]:
        """Begin a call; never waits, and its failure is an answer without a status."""
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
    """The answer of a call that is done; one without a status where it was ended or failed unforeseen."""
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
    """Times are of whole calls, so the client has none; proxies as the environment names them."""
    return httpx.AsyncClient(
        timeout=None,  # a call has one as a whole
        follow_redirects=False,
        cookies=CookieJar(policy=DefaultCookiePolicy(allowed_domains=[])),
        headers=_HEADERS,
        verify=trusted(ca_file),
    )


async def _answer(client: httpx.AsyncClient, call: Call) -> HookAnswer:
    """A status that came counts, whatever becomes of the body after it."""
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
