"""An Envoy before stand-in servers, for tests of the gateway's mechanics."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import httpx

from live.fleet.envoy import with_ports, write_gateway
from live.gateway.admin import EnvoyAdmin
from live.gateway.driver import GatewayDriver
from live.gateway.process import envoy_command, find_envoy, free_ports, validate
from live.gateway.settings import GatewayFiles, GatewaySettings
from live.gateway.table import GatewayTable, ShadowRoute, SliceRoute, Upstream, WeightedUpstream

_STAND_IN = (sys.executable, "-P", str(Path(__file__).with_name("dummy_server.py")))
SLICES = ("prose", "code")


def table_of(
    upstreams: tuple[Upstream, ...],
    weights: dict[str, int],
    *,
    version: int = 1,
    shed: int = 0,
    shadows: tuple[ShadowRoute, ...] = (),
) -> GatewayTable:
    """Both slices on the replicas of ``weights``."""
    named = [one for one in upstreams if weights.get(one.replica)]
    listed = tuple(WeightedUpstream(upstream=one, weight=weights[one.replica]) for one in named)
    routes = tuple(SliceRoute(slice=name, endpoints=listed, shed_per_million=shed) for name in SLICES)
    return GatewayTable(
        version=version, routes=routes, default_slice="prose", shadows=shadows, shadow_upstreams=upstreams
    )


@dataclass(frozen=True, slots=True)
class Bench:
    """A running gateway: its driver, its address, its servers."""

    url: str
    driver: GatewayDriver
    upstreams: tuple[Upstream, ...]
    servers: dict[str, subprocess.Popen[bytes]]
    files: GatewayFiles
    client: httpx.Client

    def apply(self, weights: dict[str, int], **more: Any) -> float:
        """Put weights in force; see ``table_of``."""
        return self.driver.apply(table_of(self.upstreams, weights, **more))

    def server(self, name: str) -> str:
        """Address of a stand-in."""
        return next(f"http://{u.address}:{u.port}" for u in self.upstreams if u.replica == name)

    def set_mode(self, name: str, **mode: object) -> None:
        """Change the behaviour of a stand-in."""
        self.client.put(f"{self.server(name)}/mode", json=mode).raise_for_status()

    def count(self, name: str) -> int:
        """Completions that reached a stand-in."""
        return int(self.client.get(f"{self.server(name)}/count").json()["count"])

    def ask(self, slice_name: str = "prose", **body: object) -> httpx.Response:
        """One completion through the gateway."""
        headers = {"x-selvage-slice": slice_name}
        return self.client.post(f"{self.url}/v1/completions", json={"max_tokens": 2, **body}, headers=headers)


@contextmanager
def gateway(folder: Path, replicas: int = 3, settings: GatewaySettings | None = None) -> Iterator[Bench]:
    """Envoy before ``replicas`` stand-ins r0, r1, ... of kernels k0, k1, ...; all with equal weights."""
    ports = free_ports(replicas + 2)
    upstreams = tuple(
        Upstream(replica=f"r{n}", kernel=f"k{n}", address="127.0.0.1", port=ports[n]) for n in range(replicas)
    )
    chosen, files = (
        with_ports(settings or GatewaySettings(), ports[-2:]),
        GatewayFiles(folder=folder / "gateway"),
    )
    shadows = (ShadowRoute(slice="code", kernel=f"k{replicas - 1}", ratio=0.0),)
    first = table_of(upstreams, {u.replica: 100 for u in upstreams}, version=0, shadows=shadows)
    write_gateway(chosen, files, first, upstreams)
    binary = find_envoy()
    validate(binary, files)
    log = folder / "envoy.log"
    with log.open("wb") as stream, ExitStack() as ends:
        servers = {
            one.replica: _process(ends, [*_STAND_IN, one.replica, str(one.port)], stream) for one in upstreams
        }
        _process(ends, envoy_command(binary, chosen, files), stream)
        admin = EnvoyAdmin(f"http://127.0.0.1:{chosen.admin_port}")
        url, driver = f"http://127.0.0.1:{chosen.listen_port}", GatewayDriver(chosen, files, admin)
        ends.callback(driver.close)
        client = ends.enter_context(httpx.Client(timeout=10.0))
        bench = Bench(url, driver, upstreams, servers, files, client)
        _await_up(bench, admin)
        yield bench


@contextmanager
def stand_ins(folder: Path, names: tuple[str, ...]) -> Iterator[dict[str, str]]:
    """Addresses of stand-in servers that answer with their names, once all of them do."""
    urls = {
        name: f"http://127.0.0.1:{port}" for name, port in zip(names, free_ports(len(names)), strict=True)
    }
    with (folder / "stand-ins.log").open("wb") as stream, ExitStack() as ends:
        for name, url in urls.items():
            _process(ends, [*_STAND_IN, name, url.rpartition(":")[2]], stream)
        deadline_at_s = time.monotonic() + 180.0
        while not all(_answers(f"{url}/count") for url in urls.values()):
            assert time.monotonic() < deadline_at_s, "the servers did not come up"
            time.sleep(0.05)
        yield urls


def _process(ends: ExitStack, command: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start ``command``; it is killed at the end."""
    process = subprocess.Popen(command, stdout=log, stderr=log)
    ends.callback(process.wait)
    ends.callback(process.kill)
    return process


def _await_up(bench: Bench, admin: EnvoyAdmin) -> None:
    deadline_at_s = time.monotonic() + 180.0
    waiting = [f"{bench.server(name)}/count" for name in bench.servers]
    while waiting or not admin.is_live():
        waiting = [url for url in waiting if not _answers(url)]
        assert time.monotonic() < deadline_at_s, "the gateway or its servers did not come up"
        time.sleep(0.05)


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=1.0).status_code == 200
    except httpx.HTTPError:
        return False
