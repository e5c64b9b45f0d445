"""The tests' translation of a route to Envoy: equal to what the operator wrote; anything else is refused."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from k8s.routes.rules import Backend, Mirror, RouteShape, route_rules
from live.gateway.settings import GatewayFiles, GatewaySettings
from tests.support.cluster.cluster_worlds import SHED
from tests.support.cluster.route_envoy import gateway_files, ready_addresses, route_resource

SHAPE = RouteShape(
    slices=("prose", "numbers"),
    default_slice="prose",
    slice_header="x-selvage-slice",
    kernels=(Backend(name="chat-fp16", port=8000), Backend(name="chat-fp32", port=8000)),
    shed=SHED,
)
TABLE = np.array([[0.75, 0.25, 0.0], [0.0, 0.9, 0.1]])


def route(shape: RouteShape = SHAPE) -> dict[str, Any]:
    """A route as the operator writes it."""
    return {
        "metadata": {"namespace": "here", "name": "chat"},
        "spec": {"rules": copy.deepcopy(route_rules(TABLE, shape))},
    }


def endpoint_slice(service: str, *endpoints: dict[str, Any]) -> dict[str, Any]:
    """One EndpointSlice of ``service``."""
    labels = {"kubernetes.io/service-name": service}
    return {"metadata": {"labels": labels}, "ports": [{"port": 9000}], "endpoints": list(endpoints)}


def test_every_weight_of_the_table_is_one_of_a_weighted_cluster() -> None:
    """Routes keep the rules' order, headers and weights; backends of weight 0 are left out."""
    numbers, prose = route_resource(route())["virtual_hosts"][0]["routes"]
    exact = {"name": "x-selvage-slice", "string_match": {"exact": "numbers"}}
    assert numbers["match"] == {"prefix": "/", "headers": [exact]}
    assert prose["match"] == {"prefix": "/"}
    told = [
        {one["name"]: one["weight"] for one in each["route"]["weighted_clusters"]["clusters"]}
        for each in (numbers, prose)
    ]
    place = "httproute/here/chat/rule"
    assert told == [
        {f"{place}/0/backend/1": 9000, f"{place}/0/backend/2": 1000},
        {f"{place}/1/backend/0": 7500, f"{place}/1/backend/1": 2500},
    ]


def test_a_rule_without_any_weight_answers_500() -> None:
    """As the Gateway API requires: 500, and no other rule answers instead."""
    found = route()
    for ref in found["spec"]["rules"][1]["backendRefs"]:
        ref["weight"] = 0
    _, prose = route_resource(found)["virtual_hosts"][0]["routes"]
    assert prose["direct_response"] == {"status": 500}


def test_endpoints_that_are_not_listed_or_not_ready_get_nothing(tmp_path: Path) -> None:
    """Endpoints are the ready addresses in the backend's own EndpointSlices, at their port."""
    slices = [
        endpoint_slice(
            "chat-fp16",
            {"addresses": ["127.0.3.1"], "conditions": {"ready": True}, "targetRef": {"name": "a"}},
            {"addresses": ["127.0.3.2"], "conditions": {"ready": False}, "targetRef": {"name": "b"}},
        ),
        endpoint_slice("other", {"addresses": ["127.0.9.9"]}),
    ]
    assert [one.replica for one in ready_addresses(slices)["chat-fp16"]] == ["a"]
    files = GatewayFiles(folder=tmp_path)
    wanted = gateway_files(route(), slices, GatewaySettings(resettable=False), files)
    told = b"".join(one.content for one in wanted)
    assert b"127.0.3.1" in told
    assert b"127.0.3.2" not in told
    assert b"127.0.9.9" not in told
    assert len(wanted) == 2 * 3 + 1  # a file per backend of each rule, and the routes


def test_what_is_not_translated_is_refused() -> None:
    """A mirror, an InferencePool and another kind of match raise errors instead of being left out."""
    mirrored = Mirror(backend=SHAPE.kernels[1], ratio=0.1)
    odd = route()
    odd["spec"]["rules"][0]["matches"][0]["path"]["type"] = "Exact"
    pooled = Backend(name="p", port=None, group="inference.networking.k8s.io", kind="InferencePool")
    shapes = {
        "filters": replace(SHAPE, mirrors=(mirrored,)),
        "Service": replace(SHAPE, kernels=(SHAPE.kernels[0], pooled)),
    }
    for told, shape in shapes.items():
        with pytest.raises(ValueError, match=told):
            route_resource(route(shape))
    with pytest.raises(ValueError, match="path prefix"):
        route_resource(odd)
