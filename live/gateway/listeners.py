"""Envoy's listeners and bootstrap: one public listener, one hop per replica, admin on loopback only. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from live.gateway.clusters import TYPES, discovered_cluster, duration, file_source, hop_name, replica_cluster
from live.gateway.routes import ROUTE_CONFIG
from live.gateway.settings import GatewayFiles, GatewaySettings
from live.gateway.table import Upstream

Json = dict[str, Any]
#: Name of the public listener in Envoy's statistics.
STAT_PREFIX = "gateway"
_FIELDS = {
    "at": "%START_TIME(%s.%6f)%",
    "route": "%ROUTE_NAME%",
    "cluster": "%UPSTREAM_CLUSTER%",
    "replica": "%UPSTREAM_HOST_NAME%",
    "code": "%RESPONSE_CODE%",
    "flags": "%RESPONSE_FLAGS%",
    "attempts": "%UPSTREAM_REQUEST_ATTEMPT_COUNT%",
    "first_ms": "%RESPONSE_DURATION%",
    "ms": "%DURATION%",
}


def bootstrap(
    settings: GatewaySettings, files: GatewayFiles, clusters: Iterable[str], upstreams: Iterable[Upstream]
) -> Json:
    """Envoy's start configuration: clusters with discovered endpoints, replicas by address,
    listener source.
    """
    hops = [replica_cluster(one, settings) for one in upstreams] if settings.resettable else []
    place = files.listeners
    return {
        "node": {"id": "selvage", "cluster": "selvage"},
        "admin": {"address": _socket("127.0.0.1", settings.admin_port)},
        "layered_runtime": {
            "layers": [{"name": "static", "static_layer": {}}, {"name": "admin", "admin_layer": {}}]
        },
        "bootstrap_extensions": [_extension("envoy.bootstrap.internal_listener", _INTERNAL)],
        "dynamic_resources": {"lds_config": file_source(place.parent, place.name)},
        "static_resources": {
            "clusters": [*(discovered_cluster(name, settings, files) for name in clusters), *hops]
        },
    }


def listeners(
    settings: GatewaySettings, files: GatewayFiles, upstreams: Iterable[Upstream], without: str = ""
) -> list[Json]:
    """The public listener, and every replica's hop except that of replica ``without``."""
    hops = [_hop(one) for one in upstreams if one.replica != without] if settings.resettable else []
    return [_door(settings, files), *hops]


def _door(settings: GatewaySettings, files: GatewayFiles) -> Json:
    manager = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
    place = files.routes
    options = {
        "stat_prefix": STAT_PREFIX,
        "codec_type": "AUTO",
        "stream_idle_timeout": duration(settings.idle_timeout_s),
        "access_log": [_log(files.requests_log)],
        "rds": {"route_config_name": ROUTE_CONFIG, "config_source": file_source(place.parent, place.name)},
        "http_filters": [_router(files)],
    }
    return {
        "@type": f"{TYPES}envoy.config.listener.v3.Listener",
        "name": "door",
        "address": _socket(settings.listen_address, settings.listen_port),
        "filter_chains": [
            {"filters": [_extension("envoy.filters.network.http_connection_manager", manager, options)]}
        ],
    }


def _router(files: GatewayFiles) -> Json:
    """The router filter, which logs a row for every attempt at a replica."""
    options = {"upstream_log": [_log(files.attempts_log)]}
    return _extension("envoy.filters.http.router", "envoy.extensions.filters.http.router.v3.Router", options)


def _hop(upstream: Upstream) -> Json:
    name = hop_name(upstream.replica)
    options = {"stat_prefix": name, "cluster": name, "idle_timeout": "0s"}
    proxy = "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy"
    return {
        "@type": f"{TYPES}envoy.config.listener.v3.Listener",
        "name": name,
        "internal_listener": {},
        "filter_chains": [{"filters": [_extension("envoy.filters.network.tcp_proxy", proxy, options)]}],
    }


def _log(path: object) -> Json:
    options = {"path": str(path), "log_format": {"json_format": _FIELDS}}
    return _extension(
        "envoy.access_loggers.file", "envoy.extensions.access_loggers.file.v3.FileAccessLog", options
    )


def _extension(name: str, kind: str, options: Json | None = None) -> Json:
    return {"name": name, "typed_config": {"@type": TYPES + kind, **(options or {})}}


def _socket(address: str, port: int) -> Json:
    return {"socket_address": {"address": address, "port_value": port}}


_INTERNAL = "envoy.extensions.bootstrap.internal_listener.v3.InternalListener"
