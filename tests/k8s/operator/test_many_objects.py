"""A namespace with a thousand objects on a real API server: numbers of calls are bounded."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import pytest

from k8s.api.cluster import ApiCluster
from k8s.api.watched import NamespaceWatch
from k8s.resources.kinds import GROUP, VERSION, resource_named
from tests.support.cluster.cluster_worlds import Bench, Object, sample
from tests.support.cluster.granted import rights
from tests.support.waiting import until

pytestmark = [pytest.mark.needs("kube_api"), pytest.mark.slow]

#: Contracts and pools without a policy, and policies that drive one pool each: 1,000 objects in all.
IDLE, DRIVEN = 480, 20
#: Most Events per contract or pool in the first turn.
EVENTS_EACH = 4


class Counted:
    """A client that counts calls by verb and resource, without object names."""

    def __init__(self, bench: Bench) -> None:
        self.api = rights(bench.api)
        self.seen: Counter[tuple[str, str]] = Counter()
        inner = self.api.rest_client.request

        def request(method: str, url: str, **arguments: Any) -> Any:
            parts = urlsplit(url).path.split("/")
            rest = parts[parts.index("namespaces") + 2 :]
            self.seen[method, "/".join([rest[0], *rest[2:]])] += 1
            return inner(method, url, **arguments)

        self.api.rest_client.request = request

    def since(self) -> Counter[tuple[str, str]]:
        """Calls since the last call of this method."""
        found, self.seen = self.seen, Counter()
        return found


def filled(bench: Bench) -> None:
    """Create a thousand objects: renamed copies of the sample's."""
    (contract,), (pool,), (policy,), (route,) = (
        sample(one) for one in ("contract", "pool", "policy", "route")
    )
    made: list[tuple[str, str, str, Object]] = []
    for n in range(IDLE + DRIVEN):
        made.append((*_place("KernelContract"), _named(contract, f"contract-{n}")))
        made.append((*_place("KernelPool"), _named(pool, f"pool-{n}")))
    for n in range(DRIVEN):
        found = _named(policy, f"policy-{n}")
        found["spec"] |= {"pool": f"pool-{n}", "contract": f"contract-{n}"}
        found["spec"] |= {"route": {**found["spec"]["route"], "name": f"route-{n}"}}
        owned = _named(route, f"route-{n}")
        owned["metadata"]["annotations"] = {"selvage.dev/route-policy": f"{bench.namespace}/policy-{n}"}
        made += [(*_place("RoutePolicy"), found), ("gateway.networking.k8s.io", "v1", "httproutes", owned)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda one: _make(bench, *one), made))


def _place(kind: str) -> tuple[str, str, str]:
    return GROUP, VERSION, resource_named(kind).plural


def _named(found: Object, name: str) -> Object:
    return {**found, "metadata": {"name": name}, "spec": dict(found["spec"])}


def _make(bench: Bench, group: str, version: str, plural: str, body: Object) -> None:
    bench.custom.create_namespaced_custom_object(group, version, bench.namespace, plural, body)


def test_a_thousand_objects_cost_four_lists_and_one_status_each(bench: Bench) -> None:
    """The first turn writes each status once; later turns write none; a listing is one call per kind."""
    filled(bench)
    bench.servers()
    counted = Counted(bench)
    with NamespaceWatch(counted.api, bench.namespace, timeout_s=20.0) as watched:
        until(lambda: watched.places is not None)
        cluster = ApiCluster(counted.api, bench.namespace, timeout_s=20.0, watched=watched)
        operator = bench.operator(cluster)
        bench.turns(operator, 1)
        first = counted.since()
        lists = {one: count for one, count in first.items() if one[0] == "GET" and "/" not in one[1]}
        for kind in ("kernelcontracts", "kernelpools", "routepolicies", "kernelpromotions"):
            assert lists["GET", kind] == 1
        assert first["PATCH", "kernelcontracts/status"] == IDLE + DRIVEN
        assert first["PATCH", "kernelpools/status"] == IDLE + DRIVEN
        assert first["PATCH", "routepolicies/status"] == DRIVEN
        assert first["POST", "events"] <= EVENTS_EACH * 2 * (IDLE + DRIVEN) + 10 * DRIVEN
        assert len(operator.loops) == DRIVEN
        assert first["PUT", "httproutes"] == DRIVEN
        bench.turns(operator, 12)
        counted.since()
        bench.turns(operator, 10)
        quiet = counted.since()
        assert sum(count for (verb, what), count in quiet.items() if what.endswith("/status")) == 0, quiet
        assert sum(quiet[verb, "events"] for verb in ("POST", "PATCH")) == 0, quiet
        assert quiet["GET", "kernelpools"] <= 2
        assert sum(quiet.values()) <= 2 * 4 + DRIVEN * (2 + 2), quiet
    (body,) = [one for one in _routes(bench) if one["metadata"]["name"] == f"route-{DRIVEN - 1}"]
    assert all(sum(ref["weight"] for ref in rule["backendRefs"]) == 10_000 for rule in body["spec"]["rules"])


def _routes(bench: Bench) -> list[Object]:
    found = bench.custom.list_namespaced_custom_object(
        "gateway.networking.k8s.io", "v1", bench.namespace, "httproutes"
    )
    return list(found["items"])
