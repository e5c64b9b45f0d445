"""Envoy's routes: slices by header, shedding as a direct 429, mirrored requests for shadow kernels. Pure.

Only ``/v1/`` is routed: a server's other endpoints (metrics, development routes) stay internal.
"""

from __future__ import annotations

import json
from typing import Any

from live.gateway.clusters import duration, shadow_cluster, slice_cluster
from live.gateway.settings import GatewaySettings
from live.gateway.table import PER_MILLION, GatewayTable, ShadowRoute, SliceRoute

Json = dict[str, Any]
ROUTE_CONFIG = "selvage"
#: Prefixes of route names in the logs.
SERVE, SHED = "serve:", "shed:"
RETRIABLE = (500, 502, 503)


def route_configuration(table: GatewayTable, settings: GatewaySettings) -> Json:
    """All routes: named slices first, then requests without a known header, then a 404 for
    everything else.
    """
    named = [route for route in table.routes if route.slice != table.default_slice]
    default = next(route for route in table.routes if route.slice == table.default_slice)
    shadows = {shadow.slice: shadow for shadow in table.shadows}
    routes: list[Json] = []
    for route in [*named, default]:
        header = settings.slice_header if route is not default else ""
        routes += _slice_routes(route, header, shadows.get(route.slice), settings)
    routes.append(_nothing())
    return {
        "@type": "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
        "name": ROUTE_CONFIG,
        "validate_clusters": True,
        "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}],
    }


def _slice_routes(
    route: SliceRoute, header: str, shadow: ShadowRoute | None, settings: GatewaySettings
) -> list[Json]:
    match: Json = {"prefix": "/v1/"}
    if header:
        match["headers"] = [{"name": header, "string_match": {"exact": route.slice}}]
    serving = [_serve(route, match, shadow, settings)]
    return [_shed(route, match, settings), *serving] if route.shed_per_million else serving


def _serve(route: SliceRoute, match: Json, shadow: ShadowRoute | None, settings: GatewaySettings) -> Json:
    action: Json = {
        "cluster": slice_cluster(route.slice),
        "timeout": duration(settings.request_timeout_s),
        "idle_timeout": duration(settings.idle_timeout_s),
        "retry_policy": _retries(settings),
    }
    if shadow is not None:
        action["request_mirror_policies"] = [_copies(shadow)]
    return {
        "name": SERVE + route.slice,
        "match": match,
        "route": action,
        "response_headers_to_add": [_header("x-selvage-replica", "%UPSTREAM_HOST_NAME%")],
    }


def _shed(route: SliceRoute, match: Json, settings: GatewaySettings) -> Json:
    fraction = _fraction(route.shed_per_million, f"selvage.shed.{route.slice}")
    error = {"message": "shed: the slice has no capacity left; try again later", "type": "overloaded_error"}
    return {
        "name": SHED + route.slice,
        "match": {**match, "runtime_fraction": fraction},
        "direct_response": {
            "status": 429,
            "body": {"inline_string": json.dumps({"error": {**error, "code": 429}})},
        },
        "response_headers_to_add": [
            _header("retry-after", str(settings.retry_after_s)),
            _header("content-type", "application/json"),
        ],
    }


def _retries(settings: GatewaySettings) -> Json:
    """Retry at another host as long as no host has answered; an answer that has begun is never repeated."""
    hosts = "envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"
    policy: Json = {
        "retry_on": "connect-failure,refused-stream,reset,retriable-status-codes",
        "retriable_status_codes": list(RETRIABLE),
        "num_retries": settings.retries,
        "retry_host_predicate": [
            {
                "name": "envoy.retry_host_predicates.previous_hosts",
                "typed_config": {"@type": f"type.googleapis.com/{hosts}"},
            }
        ],
        "host_selection_retry_max_attempts": settings.host_attempts,
        "retry_back_off": {"base_interval": "0.010s", "max_interval": "0.050s"},
    }
    if settings.per_try_s:
        policy["per_try_timeout"] = duration(settings.per_try_s)
    return policy


def _copies(shadow: ShadowRoute) -> Json:
    per_million = round(PER_MILLION * shadow.ratio)
    fraction = _fraction(per_million, f"selvage.shadow.{shadow.slice}")
    return {"cluster": shadow_cluster(shadow.kernel), "runtime_fraction": fraction}


def _fraction(per_million: int, runtime_key: str) -> Json:
    """A share of requests; operators can override it immediately through Envoy's runtime."""
    share = {"numerator": per_million, "denominator": "MILLION"}
    return {"default_value": share, "runtime_key": runtime_key}


def _nothing() -> Json:
    body = {"inline_string": '{"error": {"message": "not routed", "type": "not_found", "code": 404}}'}
    return {
        "name": "nothing",
        "match": {"prefix": "/"},
        "direct_response": {"status": 404, "body": body},
    }


def _header(key: str, value: str) -> Json:
    return {"header": {"key": key, "value": value}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}
