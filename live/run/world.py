"""The environment of a controller of live servers: its servers, their pool, and how to reach them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contracts.documents import KernelPool
from live.fleet.control import require_up
from live.fleet.state import FleetFolder
from live.gateway.driver import GatewayDriver
from live.measure.endpoint import Endpoint
from live.ports import Discovery, GatewayStatistics, LiveReplica, Unanswered
from live.run.options import RunOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The environment of a controller. fleet: identifies this run of the servers; "" if unknown.

    engine: known facts about a server's engine. restart: restarts a server and waits; None: not allowed.
    """

    folder: Path
    pool: KernelPool
    pool_file: Path
    replicas: tuple[LiveReplica, ...]
    discovery: Discovery
    model: str
    fleet: str = ""
    statistics: GatewayStatistics | None = None
    driver: GatewayDriver | None = None
    default_slice: str = ""
    engine: Callable[[str], dict[str, Any]] = lambda _: {}
    restart: Callable[[str], bool] | None = None

    def by_kernel(self) -> dict[str, tuple[str, ...]]:
        """Names of the replicas of every kernel."""
        kernels = dict.fromkeys(one.kernel for one in self.replicas)
        return {name: tuple(one.name for one in self.replicas if one.kernel == name) for name in kernels}

    def unreached(self) -> Mapping[str, Unanswered]:
        """Replica -> why it is not known to serve, if discovery checks that."""
        found: Mapping[str, Unanswered] = getattr(self.discovery, "failed", {})
        return found

    def trusted(self) -> tuple[str, str]:
        """Kernel and address of the server with the right answers: the reference kernel, else the known-good
        one.
        """
        order = {"reference": 0, "known_good": 1}
        kernels = sorted(self.pool.spec.kernels, key=lambda one: order.get(one.role, len(order)))
        urls = {one.kernel: one.url for one in reversed(self.replicas)}
        return next((one.name, urls[one.name]) for one in kernels if one.name in urls)


def engine_of(folder: FleetFolder) -> Callable[[str], dict[str, Any]]:
    """A function: server name -> the facts about its engine in the fleet's state."""

    def of(name: str) -> dict[str, Any]:
        server = next(one for one in require_up(folder).servers if one.name == name)
        return {"vllm": server.version, "arguments": list(server.arguments), "restarts": server.restarts}

    return of


def access(options: RunOptions, url: str, model: str = "") -> Endpoint:
    """The server at ``url`` with the run's key and certificates."""
    return Endpoint(
        url=url,
        model=model,
        api_key=options.api_key,
        ca_file=options.ca_file,
        key_file=options.key_file,
    )
