"""What a gateway says against a route is said of its policy."""

from __future__ import annotations

from typing import Any

import pytest

from k8s.routes.writer import gateway_refusal
from tests.support.cluster.cluster_worlds import Bench

Object = dict[str, Any]

NO_BACKEND = {
    "type": "ResolvedRefs",
    "status": "False",
    "reason": "BackendNotFound",
    "message": "Service chat-fp8 not found",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}
FINE = [
    {
        "type": kind,
        "status": "True",
        "reason": kind,
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    for kind in ("Accepted", "ResolvedRefs")
]


def parent(conditions: list[Object], generation: int) -> Object:
    """What one gateway says of a route."""
    said = [{**one, "observedGeneration": generation} for one in conditions]
    return {
        "parentRef": {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "front"},
        "controllerName": "example.org/gateway",
        "conditions": said,
    }


def route(*parents: Object) -> Object:
    """A route of generation 3 with what its parents say."""
    return {"metadata": {"name": "chat", "generation": 3}, "status": {"parents": list(parents)}}


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (route(), None),
        (route(parent([NO_BACKEND], 2)), None),
        (route(parent(FINE, 3)), ""),
        (route(parent(FINE, 3), parent([NO_BACKEND], 3)), "BackendNotFound): Service chat-fp8 not found"),
        (
            route(parent([{**FINE[0], "status": "False", "reason": "NotAllowed"}], 3)),
            "Accepted is False (NotAllowed)",
        ),
        (route(parent([{**FINE[0], "type": "PartiallyInvalid"}], 3)), "PartiallyInvalid is True"),
        (route(parent([{**FINE[0], "status": "Unknown"}], 3)), ""),
    ],
)
def test_refusals_of_the_route_as_it_is_now_are_told(found: Object, told: str | None) -> None:
    """Any gateway's no counts, of this generation alone; who has not looked yet says nothing."""
    said = gateway_refusal(found)
    assert said == told if not told else told in (said or "")


@pytest.mark.needs("kube_api")
@pytest.mark.slow
def test_a_refusal_makes_the_policy_not_programmed(bench: Bench) -> None:
    """A gateway that cannot resolve a backend makes Programmed and Ready False with its words."""
    bench.everything()
    operator = bench.operator()

    def says(conditions: list[Object]) -> None:
        status = {"parents": [parent(conditions, bench.route()["metadata"]["generation"])]}
        bench.custom.patch_namespaced_custom_object_status(
            "gateway.networking.k8s.io",
            "v1",
            bench.namespace,
            "httproutes",
            "chat",
            {"status": status},
            _content_type="application/merge-patch+json",
        )

    bench.turns(operator, 4)
    assert bench.conditions()["Programmed"] == ("True", "Written")
    says([NO_BACKEND])
    bench.turns(operator, 7)
    assert bench.conditions()["Programmed"] == ("False", "GatewayRefused")
    assert bench.conditions()["Ready"] == ("False", "GatewayRefused")
    found = bench.read("RoutePolicy", "chat")["status"]["conditions"]
    (told,) = [one["message"] for one in found if one["type"] == "Programmed"]
    assert "gateway front" in told
    assert "Service chat-fp8 not found" in told
    says(FINE)
    bench.turns(operator, 7)
    assert bench.conditions()["Programmed"] == ("True", "Written")
