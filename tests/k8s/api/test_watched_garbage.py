"""A watch over servers that answer what no API server answers: a kind is listed anew, and never given up."""

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
    """Answers listings of one kind by garbage until it is sound; a watch stays open until the end."""

    def __init__(self) -> None:
        self.garbage: list[bytes] = [b"[]", b'{"items": 5}', b"<html>", b"null", b'{"items": [3]}']
        self.ended = threading.Event()

    def answer(self, kind: str, *_: object, **asked: Any) -> SimpleNamespace:
        """One answer of the client, nobody has read it."""
        if asked.get("watch"):
            return SimpleNamespace(status=200, stream=self._wait, close=lambda: None)
        told = self.garbage.pop() if kind == SERVICES and self.garbage else json.dumps(LISTED).encode()
        return SimpleNamespace(status=200, data=told)

    def _wait(self, **_: object) -> list[bytes]:
        self.ended.wait(0.05)
        return []


def test_a_listing_that_is_none_ends_no_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """After garbage of every form the kind is listed, and the places are known again."""
    from kubernetes import client

    monkeypatch.setattr("k8s.api.watched.PAUSE_S", 0.01)
    server = Server()
    watch = NamespaceWatch(client.ApiClient(), "default")
    for kind in BUILT_IN:
        watch._methods[kind] = lambda *given, kind=kind, **asked: server.answer(kind, *given, **asked)
    until_at_s = time.monotonic() + 50.0
    with watch:
        while watch.places is None:
            assert time.monotonic() < until_at_s, "nobody lists that kind any more"
            time.sleep(0.01)
    server.ended.set()
    assert not server.garbage
