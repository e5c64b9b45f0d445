"""A candidate kernel in the sample's namespace: its servers, its evidence, its promotion."""

from __future__ import annotations

import hashlib
from typing import Any

from kubernetes import client

from contracts.assess.evaluate import evaluate
from contracts.assess.gate import parse_waiver
from contracts.assess.observations import ALL_SPLITS, from_samples
from contracts.assess.samples import load_samples
from contracts.documents import KernelContract, KernelProfile
from contracts.documents.profile import HEALTHY
from contracts.loading.loader import load_as
from contracts.loading.uris import resolve_uri
from k8s.operator.namespace import NamespaceOperator
from k8s.resources.kinds import GROUP, VERSION, document_of
from scripts.cli.judging.tables import evaluation_json
from tests.support.cluster.cluster_worlds import Bench, Object, pod, sample

CANDIDATE = "next"
#: Clauses that no profile measures, left out so that an evaluation may succeed.
WAIVED = ("O-fingerprint=no traffic before the shadow", "R-ttft-p95=no traffic before the shadow")
STAGE = {"stability_s": 8.0, "least_probes": 4, "deadline_s": 60.0}


def everything(bench: Bench, profile: str = "w8a8", **changes: Any) -> None:
    """The whole sample with a candidate of ``profile``; ``changes`` to its entry in the pool."""
    bench.everything(lambda pool: with_candidate(pool, profile, changes))
    core = client.CoreV1Api(bench.api)
    _, service = sample("fp8")
    labels = {**service["spec"]["selector"], "selvage.dev/kernel": CANDIDATE}
    service["metadata"]["name"] = f"chat-{CANDIDATE}"
    service["spec"]["selector"] = labels
    core.create_namespaced_service(bench.namespace, service)
    names = [f"chat-{CANDIDATE}-{n}" for n in range(2)]
    for name in names:
        core.create_namespaced_pod(bench.namespace, pod(name, labels))
    bench.endpoints(CANDIDATE, names)


def evidence(bench: Bench, profile: str = "w8a8", waived: tuple[str, ...] = WAIVED) -> Object:
    """The evaluation of ``profile`` under the applied contract, in a ConfigMap; returns a reference to it."""
    contract = document_of(bench.read("KernelContract", "chat-contract"))
    assert isinstance(contract, KernelContract)
    place = resolve_uri(f"package:contracts/library/profiles/{profile}.yaml", "")
    pinned = load_as(KernelProfile, place).spec.samples
    samples = load_samples(resolve_uri(pinned.uri, place), pinned.sha256)
    seen = from_samples(samples, pinned.sha256, HEALTHY, ALL_SPLITS)
    text = evaluation_json(evaluate(contract, seen, waivers=[parse_waiver(w) for w in waived]), (), ())
    core = client.CoreV1Api(bench.api)
    body = {"metadata": {"generateName": "evidence-"}, "data": {"evaluation.json": text}}
    name = core.create_namespaced_config_map(bench.namespace, body).metadata.name
    return {"uri": f"configmap:{name}/evaluation.json", "sha256": hashlib.sha256(text.encode()).hexdigest()}


def promote(bench: Bench, found: Object, name: str = CANDIDATE, **spec: Any) -> Object:
    """Apply a promotion based on the evaluation ``found``."""
    body = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "KernelPromotion",
        "metadata": {"name": name},
        "spec": {
            "description": "a test",
            "policy": "chat",
            "candidate": CANDIDATE,
            "offline": {"evaluation": found},
            "shadow": STAGE,
            "canary": STAGE,
            **spec,
        },
    }
    made: Object = bench.custom.create_namespaced_custom_object(
        GROUP, VERSION, bench.namespace, "kernelpromotions", body, field_validation="Strict"
    )
    return made


def status(bench: Bench, name: str = CANDIDATE) -> Object:
    """Its status."""
    found: Object = bench.read("KernelPromotion", name).get("status") or {}
    return found


def until(bench: Bench, operator: NamespaceOperator, stage: str, most: int = 60) -> list[dict[str, int]]:
    """Turn until the candidate is in ``stage``; returns the weights of the slice prose in every turn."""
    seen = []
    for _ in range(most):
        bench.turns(operator, 1)
        seen.append(bench.weights("prose"))
        if operator.promotions.attempts[CANDIDATE].state.stage == stage:
            return seen
    state = operator.promotions.attempts[CANDIDATE].state
    raise AssertionError(f"after {most} turns: {state}")


def with_candidate(pool: Object, profile: str, changes: dict[str, Any]) -> None:
    """Add a candidate of ``profile`` to a pool; ``changes`` to its entry."""
    kernel = {
        "name": CANDIDATE,
        "profile": f"package:contracts/library/profiles/{profile}.yaml",
        "replicas": 2,
        "role": "candidate",
        "capacity_rps": 8.0,
        "backend": {"name": f"chat-{CANDIDATE}", "port": 8000},
    }
    pool["spec"]["kernels"].append({**kernel, **changes})
