"""Envoy's clusters: one per slice and per shadowed kernel with discovered endpoints, one per replica. Pure.

A slice's cluster balances over replicas by weight. With ``resettable``, its endpoints are internal listeners
of the same Envoy, one per replica, that forward bytes. Removing such a listener closes every connection
through it; Envoy offers no other way to end requests that are under way.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from live.gateway.settings import GatewayFiles, GatewaySettings
from live.gateway.table import GatewayTable, Upstream, WeightedUpstream

Json = dict[str, Any]
#: Prefix of Envoy's message type names.
TYPES = "type.googleapis.com/"
_MANY = 1_000_000


def slice_cluster(slice_name: str) -> str:
    """Name of the cluster that serves a slice."""
    return f"slice-{slice_name}"


def shadow_cluster(kernel: str) -> str:
    """Name of the cluster that receives mirrored requests for a kernel."""
    return f"shadow-{kernel}"


def hop_name(replica: str) -> str:
    """Name of one replica's internal listener and of its cluster."""
    return f"replica-{replica}"


def duration(seconds: float) -> str:
    """``seconds`` as a duration in protobuf's JSON."""
    return f"{seconds:.3f}s"


def discovered_cluster(name: str, settings: GatewaySettings, files: GatewayFiles) -> Json:
    """A cluster with endpoints that Envoy reads from the cluster's own file."""
    place = files.endpoints(name)
    return {
        "name": name,
        "type": "EDS",
        "connect_timeout": duration(settings.connect_timeout_s),
        "lb_policy": "ROUND_ROBIN",
        "eds_cluster_config": {"service_name": name, "eds_config": file_source(place.parent, place.name)},
        # Ejected hosts are used again only when every host is ejected, so ejection never empties a slice.
        "common_lb_config": {"healthy_panic_threshold": {"value": 1.0}},
        "circuit_breakers": {
            "thresholds": [
                {
                    "max_connections": _MANY,
                    "max_pending_requests": _MANY,
                    "max_requests": _MANY,
                    "max_retries": _MANY,
                }
            ]
        },
        "outlier_detection": _outliers(settings),
        "typed_extension_protocol_options": _http_options(settings),
    }


def replica_cluster(upstream: Upstream, settings: GatewaySettings) -> Json:
    """The real address of a replica, behind its internal listener."""
    name = hop_name(upstream.replica)
    address = {"socket_address": {"address": upstream.address, "port_value": upstream.port}}
    return {
        "name": name,
        "type": "STATIC",
        "connect_timeout": duration(settings.connect_timeout_s),
        "circuit_breakers": {"thresholds": [{"max_connections": _MANY, "max_pending_requests": _MANY}]},
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}],
        },
    }


def assignment(cluster: str, endpoints: Iterable[WeightedUpstream], settings: GatewaySettings) -> Json:
    """The endpoints of one cluster."""
    listed = [_endpoint(endpoint, settings) for endpoint in endpoints]
    return {
        "@type": f"{TYPES}envoy.config.endpoint.v3.ClusterLoadAssignment",
        "cluster_name": cluster,
        "endpoints": [{"lb_endpoints": listed}] if listed else [],
        "policy": {"overprovisioning_factor": 100},
    }


def assignments(table: GatewayTable, settings: GatewaySettings) -> dict[str, Json]:
    """Cluster -> its endpoints, for every cluster that ``table`` decides."""
    found = {
        slice_cluster(route.slice): assignment(slice_cluster(route.slice), route.endpoints, settings)
        for route in table.routes
    }
    for kernel in sorted({shadow.kernel for shadow in table.shadows}):
        copies = [
            WeightedUpstream(upstream=u, weight=1) for u in table.shadow_upstreams if u.kernel == kernel
        ]
        found[shadow_cluster(kernel)] = assignment(shadow_cluster(kernel), copies, settings)
    return found


def file_source(folder: object, name: str) -> Json:
    """A file as configuration source; Envoy reads it again when a name in its folder changes."""
    return {
        "resource_api_version": "V3",
        "path_config_source": {"path": f"{folder}/{name}", "watched_directory": {"path": str(folder)}},
    }


def _endpoint(endpoint: WeightedUpstream, settings: GatewaySettings) -> Json:
    upstream = endpoint.upstream
    address: Json = {"socket_address": {"address": upstream.address, "port_value": upstream.port}}
    if settings.resettable:
        address = {"envoy_internal_address": {"server_listener_name": hop_name(upstream.replica)}}
    return {
        "endpoint": {"address": address, "hostname": upstream.replica},
        "load_balancing_weight": endpoint.weight,
    }


def _outliers(settings: GatewaySettings) -> Json:
    """Outlier detection: a replica with failing connections is ejected for a while, faster than by a tick."""
    return {
        "consecutive_gateway_failure": settings.gateway_failures,
        "enforcing_consecutive_gateway_failure": 100,
        "consecutive_5xx": 5,
        "enforcing_consecutive_5xx": 0,
        "enforcing_success_rate": 0,
        "interval": "0.500s",
        "base_ejection_time": duration(settings.eject_s),
        "max_ejection_time": duration(6.0 * settings.eject_s),
        "max_ejection_percent": settings.max_ejected_percent,
    }


def _http_options(settings: GatewaySettings) -> Json:
    name = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
    return {
        name: {
            "@type": TYPES + name,
            "common_http_protocol_options": {"idle_timeout": duration(settings.upstream_idle_s)},
            "explicit_http_config": {"http_protocol_options": {}},
        }
    }
