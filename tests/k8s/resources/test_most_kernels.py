"""The most kernels that a pool may have in a cluster, where each is a backend in every rule of a route."""

from __future__ import annotations

import copy

import pytest
from kubernetes import client

from k8s.routes.rules import MOST_BACKENDS
from tests.k8s.resources.test_definition import create, refusal
from tests.support.cluster.resource_cases import Change, Object, pool

pytestmark = pytest.mark.waits


def kernels(count: int) -> Change:
    """A change to ``count`` serving kernels: the known-good one and copies of the first other one."""

    def change(spec: Object) -> None:
        known_good = [one for one in spec["kernels"] if one["role"] == "known_good"]
        first = next(one for one in spec["kernels"] if one["role"] == "serving")
        more = [{**copy.deepcopy(first), "name": f"more-{at}"} for at in range(count - 1)]
        spec["kernels"] = [*known_good, *more]
        for home in spec["home"]:
            home["kernel"] = known_good[0]["name"]

    return change


@pytest.mark.needs("kube_api")
def test_a_pool_may_have_as_many_kernels_as_a_rule_holds(api: client.ApiClient, namespace: str) -> None:
    """The server accepts a pool of 15 serving kernels and refuses 16: a rule holds 16 backends."""
    most, over = pool(), pool()
    kernels(MOST_BACKENDS - 1)(most["spec"])
    assert len(create(api, namespace, most)["spec"]["kernels"]) == MOST_BACKENDS - 1
    kernels(MOST_BACKENDS)(over["spec"])
    assert "an HTTPRoute rule holds 16 backends" in refusal(api, namespace, over)
