"""Servers of this machine are contacted directly, whatever proxy the environment names."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from live.bounded_http import whole_answer
from live.gateway.admin import EnvoyAdmin
from live.measure.endpoint import Endpoint


class Ready(BaseHTTPRequestHandler):
    """A server that is ready."""

    def do_GET(self) -> None:
        """As Envoy says it."""
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"LIVE")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server on loopback, in an environment with an unreachable proxy."""
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        for spelled in (name, name.upper()):
            monkeypatch.setenv(spelled, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Ready)
    beat = threading.Thread(target=server.serve_forever)
    beat.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        beat.join()


def test_envoy_is_asked_without_a_proxy(url: str) -> None:
    """Otherwise a fleet would not start, and no table would be acknowledged."""
    admin = EnvoyAdmin(url)
    assert admin.is_live()
    admin.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_server_here_is_probed_without_a_proxy_and_one_elsewhere_by_it(url: str, host: str) -> None:
    """Scrapes and probes use the endpoint's own route; hosts beyond this machine follow the environment."""
    here = url.replace("127.0.0.1", host)
    with Endpoint(url=here, model="").client() as client:
        assert whole_answer(client, "GET", "/health", 5.0).text == "LIVE"
        with pytest.raises(httpx.ConnectError):
            whole_answer(client, "GET", "http://192.0.2.1:8000/health", 5.0)
