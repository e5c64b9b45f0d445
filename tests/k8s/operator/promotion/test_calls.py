"""Webhook calls to a real server: what counts as an answer, and which origins may be called."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from k8s.operator.promotion.calls import (
    SHOWN,
    Call,
    HookAnswer,
    HookCaller,
    answer_of,
)
from live.origins import allowed_origin, origin_of
from tests.support.cluster.kube_api import free_port
from tests.support.servers.hook_server import HookServer, hook_server
from tests.support.waiting import PATIENCE_S


@pytest.fixture
def server() -> Iterator[HookServer]:
    """A webhook server."""
    with hook_server() as found:
        yield found


@pytest.fixture
def caller(server: HookServer) -> Iterator[HookCaller]:
    """A caller that may call only that server."""
    with HookCaller([server.url]) as found:
        yield found


def asked(caller: HookCaller, url: str, timeout_s: float = 30.0) -> HookAnswer:
    """Result of one call."""
    return caller.post(Call(url=url, body=b'{"a": 1}', timeout_s=timeout_s)).result(PATIENCE_S)


@pytest.mark.parametrize("status", [200, 204, 403, 409, 500])
def test_an_answer_is_its_status(server: HookServer, caller: HookCaller, status: int) -> None:
    """The body arrives unchanged, the status is returned, and only 2xx agrees."""
    server.statuses["/a"] = status
    found = asked(caller, f"{server.url}/a")
    assert found.status == status
    assert found.agrees == (status < 300)
    assert server.at("/a") == [{"a": 1}]


def test_what_a_server_says_is_shown_short_and_escaped(server: HookServer, caller: HookCaller) -> None:
    """The start of an answer is shown, without control characters, however much is sent."""
    server.statuses["/a"] = 409
    server.bodies["/a"] = "no\x1b[31m\r\n\x00way ü".encode() + b"y" * 5_000_000
    found = asked(caller, f"{server.url}/a")
    assert found.status == 409
    assert found.said.startswith("no\\x1b[31m \\x00way \\xfcyyy")
    assert found.said.isascii()
    assert found.said.isprintable()
    assert len(found.said) == SHOWN


def test_a_redirect_is_not_followed(server: HookServer, caller: HookCaller) -> None:
    """A redirect counts as an answer; its target is not called."""
    server.statuses["/a"] = 302
    assert asked(caller, f"{server.url}/a").status == 302
    assert [path for path, _ in server.came] == ["/a"]


@pytest.mark.parametrize("path", ["/hang", "/drip"])
def test_the_timeout_covers_the_whole_call(server: HookServer, caller: HookCaller, path: str) -> None:
    """A server that hangs or sends its head byte by byte gives no answer; other calls work meanwhile."""
    slow = caller.post(Call(url=server.url + path, body=b"{}", timeout_s=0.5))
    assert asked(caller, f"{server.url}/a").status == 200
    found = slow.result(PATIENCE_S)
    assert (found.status, found.said) == (None, "no answer within 0.5 s")


def test_a_status_counts_although_its_body_never_ends(server: HookServer, caller: HookCaller) -> None:
    """A veto counts although its body never ends."""
    assert asked(caller, f"{server.url}/slow-body", timeout_s=0.5).status == 403


def test_a_closed_port_is_no_answer(server: HookServer) -> None:
    """If nothing listens, there is no answer and no exception."""
    url = f"http://127.0.0.1:{free_port()}"
    with HookCaller([url]) as caller:
        found = asked(caller, url)
    assert (found.status, found.said) == (None, "no answer: ConnectError")


def test_origins_that_are_not_allowed_are_not_called(server: HookServer) -> None:
    """No call goes to an origin that is not allowed, nor after the caller has ended."""
    with HookCaller(["http://127.0.0.1:1"]) as caller:
        assert "not allowed" in asked(caller, f"{server.url}/a").said
    assert "not allowed" in asked(caller, "http://127.0.0.1:1/a").said
    with HookCaller() as caller:
        assert "not allowed" in asked(caller, f"{server.url}/a").said
    assert server.came == []


def test_no_cookie_is_kept(server: HookServer, caller: HookCaller) -> None:
    """A cookie from one hook is not sent to another hook of the same origin."""
    for _ in range(2):
        asked(caller, f"{server.url}/a")
    assert server.cookies == [None, None]


def test_the_end_ends_calls_that_are_under_way(server: HookServer) -> None:
    """Ending the caller does not wait for a server that hangs; the call has no status."""
    with HookCaller([server.url]) as caller:
        call = caller.post(Call(url=f"{server.url}/hang", body=b"{}", timeout_s=3600.0))
    assert call.done()
    assert answer_of(call).status is None


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("http://hooks.example/a", "http://hooks.example:80"),
        ("HTTPS://Hooks.Example/a", "https://hooks.example:443"),
        ("https://hooks.example:8443", "https://hooks.example:8443"),
        ("https://[::1]:8443/a", "https://[::1]:8443"),
        ("https://allowed.example@evil.example/a", "https://evil.example:443"),
        ("https://allowed.example:443@evil.example:443/", "https://evil.example:443"),
    ],
)
def test_an_origin_is_scheme_host_and_port(url: str, origin: str) -> None:
    """The origin is what is connected to, whatever else the URL contains."""
    assert origin_of(url) == origin


@pytest.mark.parametrize("url", ["file:///etc/passwd", "hooks.example", "https://", "", "gopher://a:70"])
def test_what_has_no_origin_is_refused(url: str) -> None:
    """A URL without an http or https origin is refused."""
    with pytest.raises(ValueError, match="origin"):
        origin_of(url)


@pytest.mark.parametrize(
    "text",
    ["https://a.example/path", "https://me:x@a.example", "https://a.example?b", "https://a.example#b", "*"],
)
def test_an_option_names_an_origin_and_no_more(text: str) -> None:
    """An option with a path, a user or a query is refused, and so is a wildcard."""
    with pytest.raises(ValueError, match="origin"):
        allowed_origin(text)
    assert allowed_origin("https://a.example/") == "https://a.example:443"
