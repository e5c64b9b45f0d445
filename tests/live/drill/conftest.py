"""One fleet of real servers for all tests of drills on it: each test restores it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from live.fleet.control import down
from live.fleet.state import FleetFolder
from tests.support.servers.live_fleets import POOL, bring_up


@pytest.fixture(scope="package")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetFolder]:
    """Three replicas that take faults."""
    place = tmp_path_factory.mktemp("drilled")
    try:
        yield bring_up(place, POOL, "--drills")
    finally:
        down(FleetFolder(path=place / "fleet"))
