"""A resource that was deleted and created again under its name is a new resource."""

from __future__ import annotations

import pytest

from k8s.operator.objects import ClusterError
from tests.support.cluster.cluster_worlds import Bench

pytestmark = [pytest.mark.needs("kube_api"), pytest.mark.waits]


def test_a_new_resource_does_not_get_the_status_of_the_deleted_one(bench: Bench) -> None:
    """The status of the deleted policy is not written to the new one, though both have generation 1.

    So a client that waits for Ready does not read an old answer.
    """
    bench.everything()
    operator = bench.operator()
    bench.turns(operator, 6)
    before = bench.read("RoutePolicy", "chat")
    assert bench.conditions()["Ready"][0] == "True"
    bench.delete("RoutePolicy", "chat")
    bench.apply("policy")
    with pytest.raises(ClusterError, match="status of RoutePolicy chat"):
        bench.cluster().write_status(before, before["status"])
    assert bench.conditions() == {}
    operator.nudge()
    bench.turns(operator, 3)
    assert bench.conditions()["Ready"][0] == "True"
    assert not operator.publisher.problem


def test_a_deleted_object_gets_no_status(bench: Bench) -> None:
    """Writing the status of a deleted object is an error of the server and creates no object."""
    bench.apply("contract")
    found = bench.read("KernelContract", "chat-contract")
    bench.delete("KernelContract", "chat-contract")
    with pytest.raises(ClusterError, match="404"):
        bench.cluster().write_status(found, {"observedGeneration": 1})
