"""How an operator observes servers and gateways, configured by the documents alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from contracts.documents import KernelContract, KernelPool, RoutePolicy
from contracts.documents.pool import BackendRef
from contracts.errors import DocumentError
from contracts.telemetry import ReplicaState, SampleRates
from k8s.operator.admission import Documents
from k8s.operator.fleet import controller_setup
from k8s.operator.objects import Cluster
from k8s.operator.pods.replicas import KernelBackend, PodDiscovery
from k8s.operator.telemetry.pool_reader import Sensing
from k8s.operator.telemetry.pool_source import Watching
from k8s.operator.telemetry.probing import Access, Probing, probe_rates
from k8s.resources.kinds import document_of
from live.control.clocks import SteadyClock
from live.run.options import ProbeOptions
from tests.support.cluster.cluster_worlds import SHED, sample

RATES = SampleRates(probes_per_s=1.0, scrape_interval_s=1.0)


def documents(without_capacity: bool = False) -> Documents:
    """The sample's documents."""
    pool, contract, policy = (document_of(sample(name)[0]) for name in ("pool", "contract", "policy"))
    assert isinstance(pool, KernelPool)
    assert isinstance(contract, KernelContract)
    assert isinstance(policy, RoutePolicy)
    if without_capacity:
        kernels = tuple(one.model_copy(update={"capacity_rps": None}) for one in pool.spec.kernels)
        pool = pool.model_copy(update={"spec": pool.spec.model_copy(update={"kernels": kernels})})
    return Documents(policy=policy, pool=pool, contract=contract)


@dataclass
class Endpoints:
    """The part of a cluster that discovery needs: one kernel's endpoints."""

    pods: list[str] = field(default_factory=list)
    places_version: int | None = None

    def service(self, name: str) -> dict[str, Any]:
        """A Service without a selector."""
        return {"metadata": {"name": name}, "spec": {}}

    def endpoint_slices(self, service: str) -> list[dict[str, Any]]:
        """One slice."""
        listed = [{"addresses": ["::1"], "targetRef": {"name": pod}} for pod in self.pods]
        return [{"ports": [{"port": 8000}], "endpoints": listed}]


def sensing() -> Sensing:
    """The sample as a telemetry source gets it."""
    found = documents()
    setup = controller_setup(found, RATES).setup
    discovery = PodDiscovery(cast(Cluster, Endpoints()), [])
    return Sensing(setup=setup, documents=found, discovery=discovery, clock=SteadyClock(), namespace="chat")


PLACES = [
    (Watching(), "httproute/chat/chat/rule/0/backend/0", ("numbers", "fp8")),
    (Watching(), "httproute/chat/chat/rule/1/backend/1", ("prose", "bf16")),
    (Watching(), "httproute/chat/chat/rule/1/backend/2", ("prose", "")),
    (Watching(), "httproute/chat/chat/rule/1", ("prose", "")),
    (Watching(), "httproute/chat/chat/rule/2", None),
    (Watching(), "httproute/other/chat/rule/1", None),
    (Watching(clusters=r"(?P<slice>\w+)\.(?P<kernel>[\w-]+)"), "prose.chat-fp8", ("prose", "fp8")),
    (Watching(clusters=r"(?P<slice>\w+)\.(?P<kernel>[\w-]+)"), "prose.fp8", ("prose", "fp8")),
    (Watching(clusters=r"(?P<slice>\w+)\.(?P<kernel>[\w-]+)"), "prose.int4", None),
]


@pytest.mark.parametrize(("watching", "cluster", "place"), PLACES)
def test_clusters_are_slices_and_kernels_by_number_or_name(
    watching: Watching, cluster: str, place: tuple[str, str] | None
) -> None:
    """Rules and backends are recognised by number or by name; other clusters of the gateway are ignored."""
    assert watching.names(sensing(), SHED).place(cluster) == place


@pytest.mark.parametrize("clusters", [r"outbound\|8000\|\|(?P<kernel>.*)", "(?P<slice>", "prose"])
def test_an_expression_without_a_slice_group_is_refused(clusters: str) -> None:
    """An expression that cannot tell slices apart is refused with an example."""
    with pytest.raises(DocumentError, match="gateway-clusters"):
        Watching(clusters=clusters)


def test_capacity_comes_from_the_profiles_where_the_pool_states_none() -> None:
    """Capacities come from the pool if stated, else from measured step times, as on live servers."""
    stated = controller_setup(documents(), RATES).setup.fleet
    assert stated.capacity_rps.tolist() == [8.0, 5.0]
    assert stated.engine is None
    derived = controller_setup(documents(without_capacity=True), RATES).setup.fleet
    assert derived.engine is not None
    assert bool(np.all((derived.capacity_rps > 0.0) & (derived.capacity_rps < 1e5)))


def test_the_rate_of_probes_is_the_budget_over_the_prompts() -> None:
    """Token budget over the mean length of prompts of slices that have any; the default without probes."""
    options = ProbeOptions(tokens_per_s=128.0)
    probing = Probing(options=options, references=Path("unused"), access=Access())
    assert probe_rates(probing, ["prose", "nobody"], 1.0).probes_per_s == pytest.approx(2.0)
    assert probe_rates(probing, ["nobody"], 1.0) == probe_rates(None, ["prose"], 1.0)
    assert probing.slices(["prose", "nobody"]) == ["prose"]


def test_the_key_is_in_no_text_of_a_setting() -> None:
    """The repr of settings does not contain the key."""
    assert "secret" not in repr(Access(api_key="secret"))
    probing = Probing(options=ProbeOptions(), references=Path("unused"), access=Access(api_key="secret"))
    assert "secret" not in repr(Watching(probing=probing))


def test_a_pod_that_takes_the_place_of_another_is_seen_to_be_new() -> None:
    """The slot of a deleted pod is empty once, so the next pod is not taken for it."""
    endpoints = Endpoints(pods=["a"])
    discovery = PodDiscovery(
        cast(Cluster, endpoints),
        [KernelBackend(kernel="fp8", backend=BackendRef(name="chat-fp8", port=8000), replicas=1)],
    )
    seen = []
    for pods in (["a"], ["b"], ["b"]):
        endpoints.pods = pods
        discovery.refresh()
        seen.append([(one.pod, one.slot) for one in discovery.pods])
    assert seen == [[("a", "fp8-0")], [], [("b", "fp8-0")]]
    assert discovery.replicas()[0].url == "http://[::1]:8000"
    assert discovery.replicas()[0].state == ReplicaState.READY
    assert discovery.ready_url(BackendRef(name="chat-fp8", port=8000)) == "http://[::1]:8000"
