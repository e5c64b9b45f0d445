"""A fault that only a new process ends; last of the live tests, because it ends their server."""

from __future__ import annotations

import time

import pytest

from faults.client.wire import DrillRefusedError
from tests.faults.inside.test_document import scheduled
from tests.support.servers.drilled_server import TTL_S, Server

pytestmark = [pytest.mark.needs("vllm", "torch"), pytest.mark.slow]


def test_an_engine_that_raises_is_gone(server: Server) -> None:
    """Last, because it ends the server: requests fail, and an undo finds the replica gone."""
    injected = server.faults.inject(scheduled("raise"), TTL_S)
    assert server.answer().status == 500
    assert server.faults.verify(injected).happened
    deadline = time.monotonic() + 120.0
    gone = False
    while not gone and time.monotonic() < deadline:
        try:
            gone = server.faults.undo().gone
        except DrillRefusedError:
            time.sleep(0.2)
    assert gone
