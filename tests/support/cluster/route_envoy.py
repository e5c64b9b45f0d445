"""An HTTPRoute and the EndpointSlices behind it as Envoy's configuration, as gateways translate them. Pure.

Supported is the operator's output: path prefix, exact headers, weighted Services; anything else is refused,
so that no test passes by a gateway feature that is missing here. A rule becomes a route in the rules'
order, each of its backendRefs a cluster by Envoy Gateway's names, its weights a weighted cluster; a backend's
endpoints are the ready addresses of its Service's EndpointSlices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from live.gateway.clusters import assignment, duration
from live.gateway.driver import WatchedFile, versioned_resources
from live.gateway.listeners import STAT_PREFIX
from live.gateway.routes import ROUTE_CONFIG
from live.gateway.settings import GatewayFiles, GatewaySettings
from live.gateway.table import Upstream, WeightedUpstream

Object = dict[str, Any]

#: Timeout of a gateway without timeouts: answers may take any time.
_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """One backendRef of a rule."""

    cluster: str
    service: str
    weight: int


def backends(route: Object) -> list[list[Backend]]:
    """Backends of each rule of ``route``; ValueError for unsupported fields."""
    metadata = route["metadata"]
    strange = [rule["filters"] for rule in route["spec"]["rules"] if rule.get("filters")]
    if strange:
        raise ValueError(f"expected rules without filters, got {strange[0]}")
    prefix = f"httproute/{metadata['namespace']}/{metadata['name']}/rule"
    return [
        [_backend(f"{prefix}/{n}/backend/{m}", ref) for m, ref in enumerate(rule["backendRefs"])]
        for n, rule in enumerate(route["spec"]["rules"])
    ]


def route_resource(route: Object) -> Object:
    """Envoy's route configuration of ``route``."""
    rules = zip(route["spec"]["rules"], backends(route), strict=True)
    routes = [
        {"match": _match(match), **_action(found)} for rule, found in rules for match in rule["matches"]
    ]
    return {
        "@type": "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
        "name": ROUTE_CONFIG,
        "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}],
    }


def ready_addresses(slices: Iterable[Object]) -> dict[str, tuple[Upstream, ...]]:
    """Service -> the pods behind it: ready endpoints of its EndpointSlices, by the slice's own port."""
    found: dict[str, tuple[Upstream, ...]] = {}
    for one in slices:
        service = one["metadata"]["labels"]["kubernetes.io/service-name"]
        listed = [
            Upstream(
                replica=(each.get("targetRef") or {}).get("name", each["addresses"][0]),
                kernel=service,
                address=each["addresses"][0],
                port=int(one["ports"][0]["port"]),
            )
            for each in one.get("endpoints") or []
            if (each.get("conditions") or {}).get("ready") is not False
        ]
        found[service] = (*found.get(service, ()), *listed)
    return found


def gateway_files(
    route: Object, slices: Sequence[Object], settings: GatewaySettings, files: GatewayFiles
) -> list[WatchedFile]:
    """Every file that Envoy reads for ``route`` and its backends, endpoints first."""
    behind = ready_addresses(slices)
    found = [_endpoints(one, behind, settings, files) for rule in backends(route) for one in rule]
    statistics = f"http.{STAT_PREFIX}.rds.{ROUTE_CONFIG}"
    return [*found, versioned_resources(files.routes, statistics, [route_resource(route)], 0)]


def _endpoints(
    one: Backend, behind: Mapping[str, tuple[Upstream, ...]], settings: GatewaySettings, files: GatewayFiles
) -> WatchedFile:
    listed = [WeightedUpstream(upstream=each, weight=1) for each in behind.get(one.service, ())]
    resource = assignment(one.cluster, listed, settings)
    return versioned_resources(files.endpoints(one.cluster), f"cluster.{one.cluster}", [resource], 0)


def _backend(cluster: str, ref: Object) -> Backend:
    if (ref.get("group", ""), ref.get("kind", "Service")) != ("", "Service") or "namespace" in ref:
        raise ValueError(f"{cluster}: expected a Service of the route's own namespace, got {ref}")
    return Backend(cluster=cluster, service=ref["name"], weight=int(ref.get("weight", 1)))


def _match(match: Object) -> Object:
    path, headers = match["path"], match.get("headers", [])
    if path["type"] != "PathPrefix" or any(one["type"] != "Exact" for one in headers):
        raise ValueError(f"expected a path prefix and exact headers, got {match}")
    if match.keys() - {"path", "headers"}:
        raise ValueError(f"expected a path and headers alone, got {sorted(match)}")
    exact = [{"name": one["name"], "string_match": {"exact": one["value"]}} for one in headers]
    return {"prefix": path["value"], **({"headers": exact} if exact else {})}


def _action(found: Sequence[Backend]) -> Object:
    """The weighted clusters of a rule; a rule without any weight answers 500, as the Gateway API requires."""
    weighted = [{"name": one.cluster, "weight": one.weight} for one in found if one.weight > 0]
    if not weighted:
        return {"direct_response": {"status": 500}}
    return {
        "route": {
            "weighted_clusters": {"clusters": weighted},
            "timeout": duration(_TIMEOUT_S),
            # Envoy Gateway's own default: an unanswered request is retried.
            "retry_policy": {
                "retry_on": "connect-failure,refused-stream,unavailable,cancelled,retriable-status-codes",
                "retriable_status_codes": [503],
                "num_retries": 2,
            },
        }
    }
