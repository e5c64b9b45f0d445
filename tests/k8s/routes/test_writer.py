"""Writing a route on a real API server: only our own routes, and never against other writers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from kubernetes import client

from k8s.api.routes import ApiRoutes
from k8s.routes.rules import Rule, route_rules, rule_slices, table_of
from k8s.routes.writer import OWNER, WRITTEN, RouteError, WrittenRoute, put_rules
from tests.k8s.routes.test_rules import shape_of

pytestmark = [pytest.mark.needs("kube_api"), pytest.mark.waits]

SHAPE = shape_of(2, 2)


def rules(first: float) -> list[Rule]:
    """Rules of a table whose first slice sends ``first`` to the first kernel."""
    return route_rules(np.array([[first, 1.0 - first, 0.0], [0.0, 0.9, 0.1]]), SHAPE)


@pytest.fixture
def routes(api: client.ApiClient, namespace: str) -> ApiRoutes:
    """Routes of the test's namespace."""
    return ApiRoutes(api, namespace)


def ours(routes: ApiRoutes) -> WrittenRoute:
    """The route under test."""
    return WrittenRoute(name="chat", owner="team/chat", gateway="front", hostnames=("chat.example.org",))


def stored(routes: ApiRoutes) -> dict[str, Any]:
    """The route on the server."""
    found = routes.read("chat")
    assert found is not None
    return found


def test_a_route_is_made_and_reads_back_as_written(routes: ApiRoutes) -> None:
    """A new route has our rules and host names."""
    assert put_rules(routes, ours(routes), rules(0.7)).written
    assert stored(routes)["spec"]["rules"] == rules(0.7)
    assert stored(routes)["spec"]["hostnames"] == ["chat.example.org"]


def test_equal_rules_are_not_written_again(routes: ApiRoutes) -> None:
    """Equal rules cause no write; different ones do."""
    put_rules(routes, ours(routes), rules(0.7))
    before = stored(routes)["metadata"]["resourceVersion"]
    assert not put_rules(routes, ours(routes), rules(0.7)).written
    assert stored(routes)["metadata"]["resourceVersion"] == before
    assert put_rules(routes, ours(routes), rules(0.6)).written


def test_a_foreign_edit_is_reported_and_left_alone(routes: ApiRoutes) -> None:
    """Rules edited by another client raise ForeignEdit and stay as they are."""
    put_rules(routes, ours(routes), rules(0.7))
    edited = stored(routes)
    edited["spec"]["rules"][0]["backendRefs"][0]["weight"] = 1
    routes.replace(edited)
    with pytest.raises(RouteError, match="edited by another client") as caught:
        put_rules(routes, ours(routes), rules(0.5))
    assert caught.value.reason == "ForeignEdit"
    assert stored(routes)["spec"]["rules"][0]["backendRefs"][0]["weight"] == 1


def test_an_edited_route_is_overwritten_if_its_hash_was_removed(routes: ApiRoutes) -> None:
    """An edited route is overwritten if its hash annotation was removed."""
    put_rules(routes, ours(routes), rules(0.7))
    edited = stored(routes)
    edited["spec"]["rules"] = edited["spec"]["rules"][:1]
    del edited["metadata"]["annotations"][WRITTEN]
    routes.replace(edited)
    assert put_rules(routes, ours(routes), rules(0.5)).written
    assert stored(routes)["spec"]["rules"] == rules(0.5)


def test_edits_outside_the_rules_are_kept(routes: ApiRoutes) -> None:
    """Host names edited by another client stay as they are."""
    put_rules(routes, ours(routes), rules(0.7))
    edited = stored(routes)
    edited["spec"]["hostnames"] = ["other.example.org"]
    routes.replace(edited)
    put_rules(routes, ours(routes), rules(0.5))
    assert stored(routes)["spec"]["hostnames"] == ["other.example.org"]


def test_a_route_of_another_owner_is_left_alone(routes: ApiRoutes) -> None:
    """A route with another policy's annotation raises RouteOwnedByOther and stays as it is."""
    put_rules(routes, ours(routes), rules(0.7))
    other = WrittenRoute(name="chat", owner="team/other")
    with pytest.raises(RouteError, match="belongs to team/chat") as caught:
        put_rules(routes, other, rules(0.5))
    assert caught.value.reason == "RouteOwnedByOther"
    assert stored(routes)["metadata"]["annotations"][OWNER] == "team/chat"


def test_a_missing_route_without_a_gateway_is_reported(routes: ApiRoutes) -> None:
    """Without a route and without a gateway to create it for, the error says what to create."""
    with pytest.raises(RouteError, match="create it with parentRefs") as caught:
        put_rules(routes, WrittenRoute(name="chat", owner="team/chat"), rules(0.5))
    assert caught.value.reason == "RouteMissing"


class Racing(ApiRoutes):
    """Another client writes between our read and our write, ``races`` times."""

    races = 0

    def read(self, name: str) -> dict[str, Any] | None:
        found = super().read(name)
        if found is not None and self.races > 0:
            self.races -= 1
            labels = {"turn": str(self.races)}
            super().replace({**found, "metadata": {**found["metadata"], "labels": labels}})
        return found


def test_a_write_survives_writes_of_others(api: client.ApiClient, namespace: str) -> None:
    """A write is retried after conflicts, and given up with WriteConflict after five."""
    racing = Racing(api, namespace)
    put_rules(racing, ours(racing), rules(0.7))
    racing.races = 3
    assert put_rules(racing, ours(racing), rules(0.2)).written
    assert stored(racing)["spec"]["rules"] == rules(0.2)
    racing.races = 100
    with pytest.raises(RouteError, match="changed 5 times") as caught:
        put_rules(racing, ours(racing), rules(0.1))
    assert caught.value.reason == "WriteConflict"
    assert stored(racing)["spec"]["rules"] == rules(0.2)


@pytest.mark.parametrize(
    "slices",
    [
        ("code", "Code", "prose"),
        ("a_b", "a-b"),
        ("a_.b", "a..b", "x"),
        ("slice-0", "Slice-0", "slice-x", "q_.b"),
    ],
)
def test_slices_with_any_names_are_routed(routes: ApiRoutes, slices: tuple[str, ...]) -> None:
    """Slices may have any name: the server accepts the route, and each slice has its own rule."""
    shape = replace(shape_of(len(slices), 1), slices=slices, default_slice=slices[-1])
    table = np.array([[at / 10, 1.0 - at / 10] for at in range(len(slices))])
    put_rules(routes, ours(routes), route_rules(table, shape))
    found = stored(routes)["spec"]["rules"]
    assert np.array_equal(np.asarray(table_of(found, shape)), table)
    told = rule_slices(shape)
    assert [told[rule["name"]] for rule in found] == [*slices]
