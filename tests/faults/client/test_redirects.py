"""The token and body of a drill call go only to the called server, never to a redirect's target."""

from __future__ import annotations

from faults.client.wire import bearer, call
from tests.support.servers.hook_server import hook_server


def test_a_redirect_is_an_answer_and_takes_no_secret_along() -> None:
    """A server that sends elsewhere is not followed: neither key nor token reaches another address."""
    with hook_server() as server:
        server.statuses["/moved"] = 307
        headers = {**bearer("sk-1"), "x-token": "t"}
        assert call(f"{server.url}/moved", {"a": 1}, within_s=10.0, headers=headers).status == 307
        assert [path for path, _ in server.came] == ["/moved"]


def test_without_a_key_nothing_is_told() -> None:
    """An empty key is no header."""
    assert bearer("") == {}
    assert bearer("sk-1") == {"Authorization": "Bearer sk-1"}
