"""Clauses on generations are probed in a cluster as on live servers; if they cannot be, it is reported."""

from __future__ import annotations

import json
from concurrent.futures import wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import httpx
import pytest

from contracts.compiled.contract import FleetLayout
from contracts.documents import KernelContract
from contracts.documents.pool import BackendRef
from contracts.loading.loader import load_as
from contracts.loading.shipped import LIBRARY
from contracts.loading.uris import resolve_uri
from k8s.operator.fleet import controller_setup
from k8s.operator.pods.replicas import PodDiscovery
from k8s.operator.telemetry.pool_reader import Sensing
from k8s.operator.telemetry.probing import Access, ClusterProber, Probing
from live.control.clocks import SteadyClock
from live.measure.endpoint import Endpoint
from live.ports import LiveReplica
from live.run.options import ProbeOptions
from tests.k8s.operator.telemetry.test_pool_source import RATES, documents
from tests.support.servers.generating import FakeServer
from tests.support.servers.token_servers import TokenServer

CLAUSE = "N-generation-gap"


@dataclass(frozen=True)
class Reached(Access):
    """Access in which every URL leads to one server."""

    server: FakeServer = field(default_factory=FakeServer)

    def endpoint(self, url: str, model: str = "") -> Endpoint:
        """An endpoint of the server."""
        return Endpoint(url=url, model=model, transport=httpx.MockTransport(self._answer))

    def _answer(self, request: httpx.Request) -> httpx.Response:
        """Score prompts as ``TokenServer`` does; everything else is answered by the server."""
        if request.method == "GET" and request.url.path not in ("/metrics", "/v1/models"):
            return httpx.Response(404)
        body = json.loads(request.content or "{}")
        if request.method == "POST" and not body.get("stream"):
            return httpx.Response(200, json=TokenServer().completion(body))
        return self.server.respond(request)


class There:
    """The part of discovery that a prober needs before any pod is probed."""

    def ready_url(self, backend: BackendRef) -> str:
        """URL of the reference."""
        return f"http://{backend.name}"

    def replicas(self) -> tuple[LiveReplica, ...]:
        """No replica yet."""
        return ()


def prober(server: FakeServer, folder: Path) -> ClusterProber:
    """A prober of the sample with a clause on generations, after its reference has answered."""
    found = documents()
    asked = load_as(KernelContract, resolve_uri(f"{LIBRARY}serving-generation.yaml", ""))
    (clause,) = (one for one in asked.spec.clauses if one.id == CLAUSE)
    spec = found.contract.spec
    own = spec.model_copy(update={"clauses": (*spec.clauses, clause.model_copy(update={"slices": None}))})
    found = replace(found, contract=found.contract.model_copy(update={"spec": own}))
    sensing = Sensing(
        setup=controller_setup(found, RATES).setup,
        documents=found,
        discovery=cast(PodDiscovery, There()),
        clock=SteadyClock(),
        namespace="chat",
    )
    one = ClusterProber(
        Probing(options=ProbeOptions(), references=folder, access=Reached(server=server)), sensing
    )
    one.step(0.0)
    assert one._asked is not None
    wait([one._asked])
    one.step(1.0)
    return one


@pytest.mark.parametrize(
    ("server", "kinds", "problem"),
    [
        (FakeServer(), {"pair", "turns", "cancel"}, ""),
        (FakeServer(cuts=2), set(), "did not end well"),
    ],
)
def test_a_clause_on_generations_is_probed_or_reported(
    server: FakeServer, kinds: set[str], problem: str, tmp_path: Path
) -> None:
    """If the reference does not generate to the end, this is reported, and the other probes still run."""
    one = prober(server, tmp_path)
    try:
        assert one._plan_known is not None, one.problem
        assert {plan.kind.name for plan in one._plan_known.generation} == kinds
        assert len(one._plan_known.prompts) > 0
        assert (problem in one.problem) if problem else one.problem == ""
        layout: FleetLayout = one._layout
        assert "generation_gap" in layout.probe_metrics
    finally:
        one.close()
