"""Conditions that gateways set on a route show in the conditions of its policy."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from k8s.routes.gateways import gateway_reports, unconfirmed_reason
from tests.support.cluster.cluster_worlds import Bench
from tests.support.cluster.held_cluster import POLICY, HeldWorld

pytestmark = pytest.mark.waits

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
    """Status of one gateway for a route."""
    said = [{**one, "observedGeneration": generation} for one in conditions]
    return {
        "parentRef": {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "front"},
        "controllerName": "example.org/gateway",
        "conditions": said,
    }


def route(*parents: Object) -> Object:
    """A route of generation 3 with the given status of its parents."""
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
        (
            route(parent([FINE[0], {**NO_BACKEND, "reason": "RefNotPermitted", "message": "no grant"}], 3)),
            "ResolvedRefs is False (RefNotPermitted): no grant",
        ),
        (route(parent([{**FINE[0], "type": "PartiallyInvalid"}], 3)), "PartiallyInvalid is True"),
        (route(parent([{**FINE[0], "status": "Unknown"}], 3)), None),
    ],
)
def test_refusals_of_the_current_route_are_reported(found: Object, told: str | None) -> None:
    """A refusal by any gateway counts if it is about this generation; an unobserved route has no verdict."""
    verdicts = gateway_reports(found).verdicts
    said = "; ".join(one for one in verdicts.values() if one) if verdicts else None
    assert said == told if not told else told in (said or "")


def named(*names: str, **ref: Any) -> Object:
    """A route of generation 3 with the given gateways as parents."""
    found = route()
    found["spec"] = {"parentRefs": [{"name": one, **ref} for one in names]}
    return found


def spoken(found: Object, *parents: Object) -> Object:
    """``found`` with the given status of its parents."""
    return {**found, "status": {"parents": list(parents)}}


def of(name: str, conditions: list[Object], generation: int, **ref: Any) -> Object:
    """Status of gateway ``name``."""
    told = parent(conditions, generation)
    return {**told, "parentRef": {**told["parentRef"], "name": name, **ref}}


@pytest.mark.parametrize(
    ("found", "behind", "silent", "told"),
    [
        (named(), {}, (), "names no gateway"),
        (named("front"), {}, ("front",), "front has said nothing"),
        (spoken(named("front"), of("front", FINE, 3)), {}, (), ""),
        (spoken(named("front"), of("front", FINE, 2)), {"front": 2}, (), "front has not accepted"),
        (spoken(named("front", "side"), of("front", FINE, 3)), {}, ("side",), "side has said nothing"),
        (
            spoken(named("front", "side"), of("front", FINE, 3), of("side", FINE, 1)),
            {"side": 1},
            (),
            "side has not accepted",
        ),
        # A gateway that is no longer a parent, and whose controller is gone, is not waited for.
        (spoken(named("front"), of("front", FINE, 3), of("gone", FINE, 1)), {}, (), ""),
        (
            spoken(named("front", sectionName="web"), of("front", FINE, 2, sectionName="other")),
            {},
            ("front/web",),
            "front/web has said nothing",
        ),
        (
            spoken(named("front", namespace="infra"), of("front", FINE, 2, namespace="infra")),
            {"infra/front": 2},
            (),
            "infra/front has not accepted",
        ),
        # Controllers that report generation 0 are believed.
        (spoken(named("front"), of("front", [{**FINE[0]}], 0)), {}, (), ""),
    ],
)
def test_gateways_that_have_not_accepted_the_current_route_are_named(
    found: Object, behind: dict[str, int], silent: tuple[str, ...], told: str
) -> None:
    """A verdict on an earlier generation does not count; a gateway without any verdict is only mentioned."""
    said = gateway_reports(found)
    assert (dict(said.behind), said.silent) == (behind, silent)
    assert told in unconfirmed_reason(said)
    assert bool(unconfirmed_reason(said)) is bool(told)


def test_a_move_is_in_force_once_its_gateways_accept_it() -> None:
    """While a gateway is briefly behind, the route is written but not in force: promotion windows stop.

    If it stays behind, Programmed is Unknown and Ready False. A refusal stays until that gateway accepts.
    """
    world = HeldWorld()
    operator, cluster = world.operator(), world.cluster
    speak = partial(cluster.speak, ["front", "side"])
    world.turns(operator, 3)
    loop = operator.loops[POLICY]
    assert loop.in_force
    assert "whether they are in force is unknown" in cluster.condition("Programmed")[2]
    speak({"front": (FINE, 0), "side": (FINE, 0)})
    world.turns(operator, 6)
    assert (loop.in_force, cluster.condition("Programmed")[:2]) == (True, ("True", "Written"))
    assert "whether they are in force is unknown" not in cluster.condition("Programmed")[2]
    speak({"front": (FINE, 0), "side": (FINE, 1)})
    world.turns(operator, 6)
    assert (loop.in_force, cluster.condition("Programmed")[:2]) == (False, ("True", "Written"))
    assert "side has not accepted" in cluster.condition("Programmed")[2]
    world.turns(operator, 30)
    assert cluster.condition("Programmed")[:2] == ("Unknown", "GatewayBehind")
    assert cluster.condition("Ready")[:2] == ("False", "GatewayBehind")
    speak({"front": (FINE, 0), "side": ([NO_BACKEND], 0)})
    world.turns(operator, 6)
    assert (loop.in_force, cluster.condition("Programmed")[:2]) == (False, ("False", "GatewayRefused"))
    speak({"front": (FINE, 0), "side": ([NO_BACKEND], 1)})
    world.turns(operator, 6)
    assert cluster.condition("Programmed")[:2] == ("False", "GatewayRefused")
    speak({"front": (FINE, 0), "side": (FINE, 0)})
    world.turns(operator, 6)
    assert (loop.in_force, cluster.condition("Programmed")[:2]) == (True, ("True", "Written"))


@pytest.mark.needs("kube_api")
@pytest.mark.slow
def test_a_refusal_makes_the_policy_not_programmed(bench: Bench) -> None:
    """A gateway that cannot resolve a backend makes Programmed and Ready False, with its message."""
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
