"""A reset that is cut short, at any step, leaves every replica a hop for the next controller."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from live.errors import LiveError
from live.gateway.admin import EnvoyAdmin
from live.gateway.clusters import hop_name
from live.gateway.driver import GatewayDriver, listener_file, write_files
from live.gateway.settings import GatewayFiles, GatewaySettings
from live.gateway.table import Upstream

SETTINGS = GatewaySettings(listen_port=1, admin_port=2)
UPSTREAMS = tuple(Upstream(replica=f"r{n}", kernel="k", address="127.0.0.1", port=9000 + n) for n in range(3))


class WatchingEnvoy:
    """An admin interface that reports the listeners' file. answers: as long as it is above 0."""

    def __init__(self, files: GatewayFiles) -> None:
        self.files, self.answers = files, 1000

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.answers -= 1
        if self.answers < 0:
            raise httpx.ConnectError("it is gone")
        version = json.loads(self.files.listeners.read_text())["version_info"]
        rows: list[dict[str, Any]] = [{"name": "listener_manager.lds.version_text", "value": version}]
        return httpx.Response(200, json={"stats": rows})


@pytest.fixture
def files(tmp_path: Path) -> GatewayFiles:
    """Files of a running gateway."""
    found = GatewayFiles(folder=tmp_path)
    write_files([listener_file(SETTINGS, found, UPSTREAMS)])
    return found


def driver_of(files: GatewayFiles, envoy: WatchingEnvoy) -> GatewayDriver:
    """An actuator that changes them."""
    return GatewayDriver(
        SETTINGS, files, EnvoyAdmin("http://envoy", httpx.MockTransport(envoy)), timeout_s=0.1
    )


def hops(files: GatewayFiles) -> bytes:
    """The present listeners."""
    return files.listeners.read_bytes()


def test_the_next_controller_undoes_a_killed_reset(
    files: GatewayFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process ends while the hop is closed: the next driver opens it, and a third has nothing to do."""
    whole = hops(files)
    child = os.fork()
    if not child:
        driver = driver_of(files, WatchingEnvoy(files))
        monkeypatch.setattr(driver, "_await_drained", lambda _: os._exit(7))
        driver.reset("r1", UPSTREAMS)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert hops(files) != whole
    for recovered in (True, False):
        driver = driver_of(files, WatchingEnvoy(files))
        assert driver.recovered is recovered
        assert hops(files) == whole
        driver.close()


@pytest.mark.parametrize("answers", range(7))
def test_an_envoy_that_goes_within_a_reset_leaves_every_hop_open(files: GatewayFiles, answers: int) -> None:
    """Whenever Envoy stops answering, the file has every hop again when the reset has failed or ended."""
    whole, envoy = hops(files), WatchingEnvoy(files)
    envoy.answers = answers
    driver = driver_of(files, envoy)
    with suppress(LiveError):
        driver.reset("r1", UPSTREAMS)
    assert hops(files) == whole
    assert not files.half_reset.exists()
    driver.close()


def test_a_whole_reset_closes_one_hop_and_opens_it(
    files: GatewayFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """During the reset the replica's hop is missing, the others are not."""
    whole = hops(files)
    seen: list[bytes] = []
    driver = driver_of(files, WatchingEnvoy(files))
    monkeypatch.setattr(driver, "_await_drained", lambda _: seen.append(hops(files)))
    driver.reset("r1", UPSTREAMS)
    (away,) = seen
    assert [hop_name(one) in away.decode() for one in ("r0", "r1", "r2")] == [True, False, True]
    assert hops(files) == whole
    driver.close()
