"""The controller's actuator in the live world: translates one plan into one gateway table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from contracts.compiled.contract import FleetLayout
from contracts.telemetry import ReplicaState
from controller.ports import RoutingPlan
from live.errors import LiveError, PlanError
from live.gateway.driver import GatewayDriver
from live.gateway.table import GatewayRotation, GatewayTable, ShadowRoute, Upstream, slice_routes
from live.ports import Discovery, LiveReplica


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingFrame:
    """What a plan's arrays refer to, and routing settings that no plan decides."""

    layout: FleetLayout
    default_slice: str
    shadows: tuple[ShadowRoute, ...] = ()
    #: Serve a slice without endpoints (its clients get 503) instead of refusing the plan.
    allow_empty: bool = False


def upstream_of(replica: LiveReplica) -> Upstream:
    """Address of ``replica`` for the gateway; PlanError if its URL cannot be used."""
    parts = urlsplit(replica.url)
    if parts.scheme != "http" or not _is_address(parts.hostname) or not parts.port or parts.path.strip("/"):
        raise PlanError(f"{replica.name}: expected http://ADDRESS:PORT, got {replica.url}")
    return Upstream(replica=replica.name, kernel=replica.kernel, address=str(parts.hostname), port=parts.port)


def _is_address(host: str | None) -> bool:
    """Whether ``host`` is an IP address, because Envoy does not resolve names here."""
    try:
        ip_address(host or "")
    except ValueError:
        return False
    return True


def gateway_table(
    plan: RoutingPlan,
    upstreams: Mapping[str, Upstream],
    frame: RoutingFrame,
    shares: Mapping[str, float] | None = None,
) -> GatewayTable:
    """The first fleet of ``plan`` as a gateway table; in the live world it is the only one. Pure.

    shares: replica under re-admission -> share of its full traffic.
    """
    rotation = GatewayRotation(in_rotation=plan.in_rotation[0], upstreams=upstreams, shares=shares or {})
    routes = slice_routes(plan.table[0], rotation, frame.layout, allow_empty=frame.allow_empty)
    shadowed = {shadow.kernel for shadow in frame.shadows}
    return GatewayTable(
        version=int(plan.version[0]),
        routes=routes,
        default_slice=frame.default_slice,
        shadows=frame.shadows,
        shadow_upstreams=tuple(u for u in upstreams.values() if u.kernel in shadowed),
    )


class EnvoyActuator:
    """``controller.ports.RouteActuator``, ``live.ports.StreamReset`` and ``ReplicaShares`` of one gateway.

    ``last_error`` says why the newest plan is not in force; "" if it is. ``live.control.loop`` resets the
    streams of hung replicas, and retries until that succeeds.
    """

    def __init__(self, driver: GatewayDriver, discovery: Discovery, frame: RoutingFrame) -> None:
        self._driver = driver
        self._discovery = discovery
        self._frame = frame
        self._shares: dict[str, float] = {}
        self.last_error = ""
        self.last_apply_s = 0.0

    def admit(self, shares: Mapping[str, float]) -> None:
        """``live.ports.ReplicaShares``: shares of replicas under re-admission, from the next ``apply`` on."""
        self._shares = dict(shares)

    def apply(self, plan: RoutingPlan) -> bool:
        """Put ``plan`` in force over the ready replicas; False, with nothing changed, on failure."""
        try:
            table = gateway_table(plan, self._ready(), self._frame, self._shares)
            self.last_apply_s = self._driver.apply(table)
        except LiveError as error:
            self.last_error = str(error)
            return False
        self.last_error = ""
        return True

    def reset(self, replica: str) -> None:
        """End every open request at ``replica``; those without a first byte are retried elsewhere."""
        known = tuple(upstream_of(one) for one in self._discovery.replicas())
        self._driver.reset(replica, known)

    def _ready(self) -> dict[str, Upstream]:
        ready = [one for one in self._discovery.replicas() if one.state == ReplicaState.READY]
        return {one.name: upstream_of(one) for one in ready}
