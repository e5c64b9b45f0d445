"""One server for all tests of faults on live servers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

from faults.client.wire import DrillError
from tests.support.servers.drilled_server import Server, drilled_server


@pytest.fixture(scope="session")
def started_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server, started when it is first asked for."""
    with drilled_server(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture
def server(started_server: Server) -> Iterator[Server]:
    """The server without a fault; faults of a failed test are undone."""
    yield started_server
    with suppress(DrillError):
        started_server.faults.undo()
