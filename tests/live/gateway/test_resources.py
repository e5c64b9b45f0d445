"""Envoy's configuration as written: only /v1/ is routed, admin is on loopback, versions name contents."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from live.gateway.clusters import assignments, slice_cluster
from live.gateway.driver import listener_file, table_files
from live.gateway.listeners import bootstrap
from live.gateway.routes import route_configuration
from live.gateway.settings import GatewayFiles, GatewaySettings
from live.gateway.table import GatewayTable, ShadowRoute, SliceRoute, Upstream, WeightedUpstream

FILES = GatewayFiles(folder=Path("/fleet/gateway"))
SETTINGS = GatewaySettings(listen_port=8000, admin_port=9901)
UPSTREAMS = tuple(
    Upstream(replica=f"r{n}", kernel=f"k{n}", address="127.0.0.1", port=9000 + n) for n in range(2)
)
ENDPOINTS = tuple(WeightedUpstream(upstream=upstream, weight=3) for upstream in UPSTREAMS)
TABLE = GatewayTable(
    version=4,
    routes=(
        SliceRoute(slice="prose", endpoints=ENDPOINTS),
        SliceRoute(slice="code", endpoints=ENDPOINTS[:1], shed_per_million=250_000),
    ),
    default_slice="prose",
    shadows=(ShadowRoute(slice="code", kernel="k1", ratio=0.5),),
    shadow_upstreams=UPSTREAMS,
)


def routes(table: GatewayTable = TABLE) -> list[dict[str, Any]]:
    """Routes in order."""
    found: list[dict[str, Any]] = route_configuration(table, SETTINGS)["virtual_hosts"][0]["routes"]
    return found


def test_only_the_public_interface_is_routed() -> None:
    """Every route to a server matches below /v1/; the last one answers the rest itself."""
    serving = [route for route in routes() if "route" in route]
    assert serving
    assert all(route["match"]["prefix"] == "/v1/" for route in serving)
    assert routes()[-1]["match"] == {"prefix": "/"}
    assert routes()[-1]["direct_response"]["status"] == 404


def test_the_default_slice_comes_last_and_needs_no_header() -> None:
    """Named slices are recognised by the header; without one, or with an unknown one, the default applies."""
    names = [route["name"] for route in routes()]
    assert names == ["shed:code", "serve:code", "serve:prose", "nothing"]
    headers = routes()[1]["match"]["headers"]
    assert headers == [{"name": "x-selvage-slice", "string_match": {"exact": "code"}}]
    assert "headers" not in routes()[2]["match"]


def test_shed_shares_are_answered_429_with_a_time_to_come_back() -> None:
    """The share per million in the table is the fraction of the route that answers by itself."""
    shed = routes()[0]
    assert shed["match"]["runtime_fraction"]["default_value"] == {
        "numerator": 250_000,
        "denominator": "MILLION",
    }
    assert shed["direct_response"]["status"] == 429
    assert json.loads(shed["direct_response"]["body"]["inline_string"])["error"]["code"] == 429
    assert shed["response_headers_to_add"][0]["header"] == {"key": "retry-after", "value": "1"}


def test_answers_are_retried_on_another_host() -> None:
    """A request without an answer is retried at an untried host; unknown clusters are refused."""
    policy = routes()[1]["route"]["retry_policy"]
    assert policy["retry_host_predicate"][0]["name"] == "envoy.retry_host_predicates.previous_hosts"
    assert policy["host_selection_retry_max_attempts"] == 5
    assert "per_try_timeout" not in policy
    assert route_configuration(TABLE, SETTINGS)["validate_clusters"] is True
    limited = route_configuration(TABLE, replace(SETTINGS, per_try_s=2.0))
    assert "2.000s" in json.dumps(limited)


def test_copies_go_to_the_shadow_kernel_alone() -> None:
    """A shadowed slice mirrors its share to the cluster of the kernel, which holds that kernel's replicas."""
    mirror = routes()[1]["route"]["request_mirror_policies"]
    assert [one["cluster"] for one in mirror] == ["shadow-k1"]
    assert "request_mirror_policies" not in routes()[2]["route"]
    shadow = assignments(TABLE, SETTINGS)["shadow-k1"]["endpoints"][0]["lb_endpoints"]
    assert [one["endpoint"]["hostname"] for one in shadow] == ["r1"]


def test_admin_listens_on_loopback_whatever_the_gateway_listens_on() -> None:
    """The admin interface can stop Envoy, so it is unreachable from outside."""
    written = bootstrap(replace(SETTINGS, listen_address="0.0.0.0"), FILES, ["slice-prose"], UPSTREAMS)
    assert written["admin"]["address"]["socket_address"]["address"] == "127.0.0.1"


def test_ejected_hosts_serve_only_when_no_other_is_left_and_retries_have_no_ceiling() -> None:
    """If most are ejected there is no panic, if all are there is: no outage by ejecting the last replica."""
    cluster = bootstrap(SETTINGS, FILES, ["slice-prose"], UPSTREAMS)["static_resources"]["clusters"][0]
    assert cluster["common_lb_config"]["healthy_panic_threshold"] == {"value": 1.0}
    assert cluster["circuit_breakers"]["thresholds"][0]["max_retries"] > 1000


def test_versions_name_their_content() -> None:
    """Equal tables give equal files; another weight gives another version of that slice alone."""
    same = {one.path: one.version for one in table_files(TABLE, SETTINGS, FILES)}
    changed_route = replace(TABLE.routes[0], endpoints=ENDPOINTS[:1])
    other = replace(TABLE, routes=(changed_route, TABLE.routes[1]))
    changed = {one.path: one.version for one in table_files(other, SETTINGS, FILES)}
    assert same == {one.path: one.version for one in table_files(TABLE, SETTINGS, FILES)}
    differing = [path for path in same if same[path] != changed[path]]
    assert differing == [FILES.endpoints(slice_cluster("prose"))]


def test_a_hop_can_be_left_out_and_nothing_else() -> None:
    """Without one replica's hop the listeners are the others, including the public one."""
    whole = json.loads(listener_file(SETTINGS, FILES, UPSTREAMS).content)["resources"]
    less = json.loads(listener_file(SETTINGS, FILES, UPSTREAMS, without="r0").content)["resources"]
    assert [one["name"] for one in whole] == ["door", "replica-r0", "replica-r1"]
    assert [one["name"] for one in less] == ["door", "replica-r1"]
