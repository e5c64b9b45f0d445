"""HTTP answers with limits on total time and total size.

The timeouts of HTTP clients restart with every read, so a server that sends one byte a second never times
out. Here one deadline covers the whole request: name look-up, connect, writes, and reads of status line,
headers and body. Answers are dated by a clock that steps of the system clock do not affect.
"""

from __future__ import annotations

import math
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from ipaddress import ip_address
from typing import Any

import httpcore
import httpx

#: Default size limit of an answer. The metrics of a server with hundreds of series are smaller.
MOST_BYTES = 32 * 2**20
#: A socket timeout of 0 would mean "no limit", so the remaining time is never rounded down to 0.
_LEAST_S = 1e-3


#: Difference between the system clock (Unix time) and the monotonic clock when this process started, s.
_AHEAD_S = time.time() - time.monotonic()


def monotonic_unix_s() -> float:
    """Unix time in s, advanced by the monotonic clock since this process started. It dates answers.

    If the system clock steps between an answer and its use, the answer neither ages nor lies in the future.
    """
    return _AHEAD_S + time.monotonic()


def system_clock_ahead_s() -> float:
    """How far the system clock stepped ahead of ``monotonic_unix_s`` (< 0: behind), in s."""
    return time.time() - monotonic_unix_s()


class OversizedAnswerError(httpx.RequestError):
    """An answer is larger than allowed; the rest was not read."""


class _Deadline(threading.local):
    """The deadline of this thread's requests; monotonic clock, s."""

    at_s: float = math.inf


_deadline = _Deadline()


@contextmanager
def time_limit(limit_s: float, *clients: httpx.Client) -> Iterator[None]:
    """In this block, requests of this thread through ``clients`` raise httpx.TimeoutException after
    ``limit_s``.
    """
    for client in clients:
        _hold(client)
    before = _deadline.at_s
    _deadline.at_s = min(before, time.monotonic() + limit_s)
    try:
        yield
    finally:
        _deadline.at_s = before


def whole_answer(
    client: httpx.Client,
    method: str,
    url: str,
    limit_s: float,
    most_bytes: int = MOST_BYTES,
    **parts: Any,
) -> httpx.Response:
    """The whole answer, read within ``limit_s``. ``parts``: further arguments of the request, as for httpx.

    Raises httpx.TimeoutException when the time is up, OversizedAnswerError beyond ``most_bytes``, and
    otherwise what httpx raises. All are httpx.HTTPError.
    """
    ends_at_s, read, size = time.monotonic() + limit_s, [], 0
    with time_limit(limit_s, client), client.stream(method, url, timeout=limit_s, **parts) as answer:
        for part in answer.iter_bytes():
            read.append(part)
            size += len(part)
            if size > most_bytes:
                raise OversizedAnswerError(f"more than {most_bytes} bytes", request=answer.request)
            if time.monotonic() > ends_at_s:
                raise httpx.ReadTimeout(f"no whole answer within {limit_s:g} s", request=answer.request)
    kept = [(name, value) for name, value in answer.headers.multi_items() if name not in _OF_THE_WAY]
    whole = httpx.Response(answer.status_code, headers=kept, content=b"".join(read), request=answer.request)
    whole.encoding = "utf-8"  # as JSON and metrics are; an answer may name an encoding that cannot decode it
    return whole


#: Headers about the transfer encoding; the content here is decoded already.
_OF_THE_WAY = ("content-encoding", "content-length", "transfer-encoding")


def _hold(client: httpx.Client) -> None:
    """Make connections that ``client`` opens from now on respect the deadline."""
    for transport in (client._transport, *client._mounts.values()):
        pool: Any = getattr(transport, "_pool", None)
        backend = getattr(pool, "_network_backend", None)
        if isinstance(backend, httpcore.NetworkBackend) and not isinstance(backend, _TimedBackend):
            pool._network_backend = _TimedBackend(backend)


def _left_s(timeout: float | None, error: type[Exception]) -> float | None:
    """The smaller of ``timeout`` and the remaining time, in s; raises ``error`` when no time remains."""
    if math.isinf(_deadline.at_s):
        return timeout
    left_s = _deadline.at_s - time.monotonic()
    if left_s <= 0.0:
        raise error("no whole answer in time")
    return max(_LEAST_S, left_s if timeout is None else min(timeout, left_s))


def addresses(host: str, port: int) -> list[str]:
    """Numeric addresses of ``host``, IPv4 first: servers listen on IPv4 by default, and IPv6 may be
    unreachable.

    Raises OSError for an unknown name.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    ordered = sorted(found, key=lambda one: one[0] != socket.AF_INET)
    return list(dict.fromkeys(str(one[4][0]) for one in ordered))


class _LookUps:
    """Name look-ups in threads of their own, because a look-up cannot be cancelled.

    At most one look-up of a name runs at a time, so a resolver that does not answer cannot pile up threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked: dict[tuple[str, int], Future[list[str]]] = {}

    def addresses(self, host: str, port: int, limit_s: float | None) -> list[str]:
        """As the function ``addresses``; raises httpcore.ConnectTimeout if there is no answer within
        ``limit_s``.
        """
        with self._lock:
            asked = self._asked.get((host, port))
            if asked is None:
                self._asked[host, port] = asked = Future()
                threading.Thread(target=self._ask, args=(host, port, asked), daemon=True).start()
        if not wait([asked], limit_s).done:
            raise httpcore.ConnectTimeout(f"{host}: its name was not looked up in time")
        return asked.result()

    def _ask(self, host: str, port: int, asked: Future[list[str]]) -> None:
        found: list[str] | None = None
        try:
            found = addresses(host, port)
        except Exception as error:  # raised in every thread that waits for this look-up
            asked.set_exception(error)
        finally:
            with self._lock:
                del self._asked[host, port]
        if found is not None:
            asked.set_result(found)


_look_ups = _LookUps()


def _is_numeric(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


class _TimedBackend(httpcore.NetworkBackend):
    """Connections that respect the deadline. Tries the addresses of a name in turn until one answers."""

    def __init__(self, inner: httpcore.NetworkBackend) -> None:
        self._inner = inner

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        try:
            left_s = _left_s(timeout, httpcore.ConnectTimeout)
            numeric = _is_numeric(host)
            found = addresses(host, port) if numeric else _look_ups.addresses(host, port, left_s)
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError(str(error)) from error
        first: Exception | None = None
        for at, address in enumerate(found):
            left_s = _left_s(timeout, httpcore.ConnectTimeout)
            share_s = None if left_s is None else left_s / (len(found) - at)
            try:
                stream = self._inner.connect_tcp(address, port, share_s, local_address, socket_options)
                return _TimedStream(stream)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                first = first or error
        raise first or httpcore.ConnectError(f"{host} has no address")

    def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore.NetworkStream:
        left_s = _left_s(timeout, httpcore.ConnectTimeout)
        return _TimedStream(self._inner.connect_unix_socket(path, left_s, socket_options))

    def sleep(self, seconds: float) -> None:
        self._inner.sleep(seconds)


class _TimedStream(httpcore.NetworkStream):
    """One connection; each of its reads and writes may take the time that remains."""

    def __init__(self, inner: httpcore.NetworkStream) -> None:
        self._inner = inner

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, _left_s(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, _left_s(timeout, httpcore.WriteTimeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: Any, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        left_s = _left_s(timeout, httpcore.ConnectTimeout)
        return _TimedStream(self._inner.start_tls(ssl_context, server_hostname, left_s))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)
