"""A watch of a server that answers garbage: the kind is listed again until that works."""

from __future__ import annotations

import json
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from k8s.api.watched import NamespaceWatch
from k8s.operator.pods.slots import BUILT_IN, SERVICES

pytest.importorskip("kubernetes")
LISTED = {"items": [], "metadata": {"resourceVersion": "7"}}


class Server:
    """Answers listings of one kind with garbage first, then correctly; a watch stays open briefly."""

    def __init__(self) -> None:
        self.garbage: list[bytes] = [b"[]", b'{"items": 5}', b"<html>", b"null", b'{"items": [3]}']
        self.ended = threading.Event()

    def answer(self, kind: str, *_: object, **asked: Any) -> SimpleNamespace:
        """One unread response of the client."""
        if asked.get("watch"):
            return SimpleNamespace(status=200, stream=self._wait, close=lambda: None)
        told = self.garbage.pop() if kind == SERVICES and self.garbage else json.dumps(LISTED).encode()
        return SimpleNamespace(status=200, data=told)

    def _wait(self, **_: object) -> list[bytes]:
        self.ended.wait(0.05)
        return []


def test_garbage_instead_of_a_listing_does_not_end_the_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """After several kinds of garbage the listing succeeds and ``places`` is set."""
    from kubernetes import client

    monkeypatch.setattr("k8s.api.watched.PAUSE_S", 0.01)
    server = Server()
    watch = NamespaceWatch(client.ApiClient(), "default")
    for kind in BUILT_IN:
        watch._methods[kind] = lambda *given, kind=kind, **asked: server.answer(kind, *given, **asked)
    until_at_s = time.monotonic() + 180.0
    with watch:
        while watch.places is None:
            assert time.monotonic() < until_at_s, "nobody lists that kind any more"
            time.sleep(0.01)
    server.ended.set()
    assert not server.garbage
