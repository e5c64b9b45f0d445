"""Documents with profiles and policies from an OCI registry: fetched outside the loop, by digest."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes import client

from contracts.loading.files import sha256_of
from contracts.loading.oci import STORE_VARIABLE, OciUri
from k8s.operator.drills.admission import DrillPlace, judge_drill
from k8s.operator.namespace import NamespaceOperator
from k8s.resources.kinds import GROUP, VERSION
from live.artefacts.access import RegistryOrigins
from live.artefacts.fetch import RegistryAccess, fetch
from tests.support.cluster.cluster_worlds import SHED, Bench, Object
from tests.support.cluster.drilled_pods import drill_spec
from tests.support.cluster.promotions import CANDIDATE, everything, evidence, promote, until
from tests.support.paths import ROOT
from tests.support.servers.oci_registry import OciRegistry, oci_registry

pytestmark = [pytest.mark.needs("kube_api"), pytest.mark.slow]

LIBRARY = ROOT / "contracts" / "library"
PROFILE = ("fp8.yaml", "fp8.npz", "reference.npz", "prompts.jsonl")
POLICY = ("routing.yaml", "routing.onnx", "routing-episodes.json")


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OciRegistry]:
    """A registry, and an empty local store."""
    monkeypatch.setenv(STORE_VARIABLE, str(tmp_path / "store"))
    with oci_registry() as found:
        yield found


def operator_of(bench: Bench, registry: OciRegistry) -> NamespaceOperator:
    """An operator that may use the registry."""
    return bench.operator(registries=RegistryAccess(registries=(RegistryOrigins(origin=registry.url),)))


def by_digest(kernels: list[Object], uri: str) -> None:
    """Give the first kernel the profile at ``uri`` instead of a stated capacity."""
    kernels[0]["profile"] = uri
    del kernels[0]["capacity_rps"]


def reason(bench: Bench) -> tuple[str, str]:
    """Status and reason of ResolvedRefs."""
    return bench.conditions()["ResolvedRefs"]


def said(bench: Bench) -> str:
    """Message of ResolvedRefs."""
    conditions = bench.read("RoutePolicy", "chat")["status"]["conditions"]
    return str(next(one["message"] for one in conditions if one["type"] == "ResolvedRefs"))


def turns_until(bench: Bench, operator: NamespaceOperator, wanted: tuple[str, str]) -> None:
    """Run turns until ResolvedRefs is ``wanted``; fetching takes real time."""
    deadline_at_s = time.monotonic() + 180.0
    while reason(bench) != wanted:
        assert time.monotonic() < deadline_at_s, said(bench)
        bench.turns(operator, 1)
        time.sleep(0.05)


def test_a_profile_by_digest_is_fetched_and_used(bench: Bench, registry: OciRegistry) -> None:
    """The first turn reports the profile as not fetched and does not wait; later the route is written."""
    uri = registry.folder(LIBRARY / "profiles", *PROFILE)
    bench.everything(lambda pool: by_digest(pool["spec"]["kernels"], uri))
    operator = operator_of(bench, registry)
    bench.turns(operator, 1)
    assert reason(bench) == ("False", "ArtefactNotFetched")
    assert not operator.loops
    turns_until(bench, operator, ("True", "Resolved"))
    bench.turns(operator, 3)
    assert bench.conditions()["Ready"] == ("True", "Serving")
    came = len(registry.came)
    bench.turns(operator, 5)
    assert len(registry.came) == came


def test_a_policy_artefact_by_digest_is_read_with_its_files(bench: Bench, registry: OciRegistry) -> None:
    """Manifest, network and episodes come as one artefact; the network is checked against the fleet."""
    uri = registry.folder(LIBRARY / "policies", *POLICY)
    pin = sha256_of(LIBRARY / "policies" / "routing.yaml")
    bench.everything()
    operator = operator_of(bench, registry)
    bench.turns(operator, 2)
    spec = {"policy": "learned", "mode": "observe", "artifact": {"uri": uri, "sha256": pin}}
    bench.change("RoutePolicy", "chat", spec)
    operator.nudge()
    bench.turns(operator, 1)
    assert reason(bench) == ("False", "ArtefactNotFetched")
    assert bench.conditions()["Degraded"] == ("True", "LastGoodConfiguration")
    turns_until(bench, operator, ("False", "DoesNotFit"))
    assert "files/routing.yaml onnx: expected at most 8 kernels" in said(bench)


def test_a_failed_fetch_keeps_the_last_good_and_is_retried(bench: Bench, registry: OciRegistry) -> None:
    """A failing registry is named; the configuration in force stays, and the fetch is retried later."""
    uri = registry.folder(LIBRARY / "profiles", *PROFILE)
    bench.everything()
    operator = operator_of(bench, registry)
    bench.turns(operator, 3)
    registry.status = 503
    held, registry.held = registry.held, {}
    kernels = bench.read("KernelPool", "chat-pool")["spec"]["kernels"]
    by_digest(kernels, uri)
    bench.change("KernelPool", "chat-pool", {"kernels": kernels})
    operator.nudge()
    deadline_at_s = time.monotonic() + 180.0
    while "HTTP 503" not in said(bench):
        assert time.monotonic() < deadline_at_s
        bench.turns(operator, 1)
        time.sleep(0.05)
    assert operator.loops["chat"].documents.pool.spec.kernels[0].profile != uri
    registry.held, registry.status = held, 200
    bench.turns(operator, 30)
    turns_until(bench, operator, ("True", "Resolved"))
    assert operator.loops["chat"].documents.pool.spec.kernels[0].profile == uri


def test_an_operator_without_registries_calls_none(bench: Bench, registry: OciRegistry) -> None:
    """The author of a pool cannot make the operator call a registry that its options do not allow."""
    uri = registry.folder(LIBRARY / "profiles", *PROFILE)
    bench.everything(lambda pool: by_digest(pool["spec"]["kernels"], uri))
    operator = bench.operator()
    for _ in range(3):
        bench.turns(operator, 1)
        time.sleep(0.2)
    assert f"--registry https://{registry.host}" in said(bench)
    assert registry.came == []


def test_evidence_by_digest_lets_a_candidate_in(bench: Bench, registry: OciRegistry) -> None:
    """A promotion whose evaluation is in a registry waits for the fetch and then enters its shadow stage."""
    everything(bench)
    kept = evidence(bench)
    name = kept["uri"].removeprefix("configmap:").partition("/")[0]
    text = client.CoreV1Api(bench.api).read_namespaced_config_map(name, bench.namespace).data
    uri = registry.push({key: one.encode() for key, one in text.items()})
    promote(bench, {**kept, "uri": uri})
    operator = operator_of(bench, registry)
    bench.turns(operator, 2)
    offline = operator.promotions.attempts[CANDIDATE].offline
    assert offline is not None
    assert offline.reason == "ArtefactNotFetched"
    until(bench, operator, "Shadow", most=90)


def test_a_drill_waits_for_what_its_pool_names(bench: Bench, registry: OciRegistry) -> None:
    """The drill runner reports what has to be fetched and requests it."""
    uri = registry.folder(LIBRARY / "profiles", *PROFILE)
    bench.everything(lambda pool: by_digest(pool["spec"]["kernels"], uri))
    head = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "FaultDrill", "metadata": {"name": "late"}}
    wanted: list[OciUri] = []
    allowed = frozenset({bench.namespace})
    place = DrillPlace(namespace=bench.namespace, allowed=allowed, shed=SHED, missing=wanted.append)
    seen = bench.cluster().resources()
    verdict = judge_drill({**head, "spec": drill_spec()}, seen, place)
    assert (verdict.resolved.status, verdict.resolved.reason) == ("False", "ArtefactNotFetched")
    assert [str(one) for one in wanted] == [uri]
    fetch(wanted[0], RegistryAccess(registries=(RegistryOrigins(origin=registry.url),)))
    assert judge_drill({**head, "spec": drill_spec()}, seen, place).resolved.status == "True"
