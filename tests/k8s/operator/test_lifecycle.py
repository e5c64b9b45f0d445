"""Upgrade and uninstall: routes stay as they were last written."""

from __future__ import annotations

import pytest
from kubernetes import client

from k8s.resources.definition import definitions
from k8s.resources.kinds import GROUP, RESOURCES, VERSION
from tests.support.cluster.cluster_worlds import Bench

pytestmark = [pytest.mark.needs("kube_api"), pytest.mark.slow, pytest.mark.waits]

HARD = 0.02
_MERGE = "application/merge-patch+json"


def test_an_upgrade_continues_with_the_table_in_force(bench: Bench) -> None:
    """Applying the definitions again and starting a new operator leave route and table version unchanged."""
    old = bench.struck("fp8", HARD)
    old.forget()
    before, version = bench.route(), bench.read("RoutePolicy", "chat")["status"]["version"]
    extensions = client.ApiextensionsV1Api(bench.api)
    for one in definitions():
        extensions.patch_custom_resource_definition(one["metadata"]["name"], one, _content_type=_MERGE)
    assert bench.route() == before
    bench.turns(bench.operator(), 5)
    assert bench.route()["spec"] == before["spec"]
    assert bench.weights("prose")["chat-bf16"] == 10_000
    assert bench.read("RoutePolicy", "chat")["status"]["version"] == version


@pytest.mark.parametrize("operator_first", [True, False])
def test_an_uninstall_leaves_the_route_as_it_is(bench: Bench, operator_first: bool) -> None:
    """Whether the operator or our documents are removed first, the route object does not change."""
    bench.everything()
    operator = bench.operator()
    bench.turns(operator, 4)
    before = bench.route()
    assert "ownerReferences" not in before["metadata"]
    if operator_first:
        operator.forget()
    for kind in RESOURCES:
        bench.custom.delete_collection_namespaced_custom_object(GROUP, VERSION, bench.namespace, kind.plural)
    if not operator_first:
        operator.nudge()
        bench.turns(operator, 5)
        assert not operator.loops
        operator.forget()
    assert bench.route() == before
