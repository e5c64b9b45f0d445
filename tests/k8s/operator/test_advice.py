"""Advice on a real API server: the label of each pod, and that a pool always has usable pods."""

from __future__ import annotations

import pytest
from kubernetes import client

from k8s.operator.advice import ADVICE
from tests.support.cluster.cluster_worlds import Bench

pytestmark = [pytest.mark.needs("kube_api"), pytest.mark.slow, pytest.mark.waits]

HARD = 0.02


def advised(bench: Bench) -> dict[str, str]:
    """Pod -> its advice label."""
    pods = client.CoreV1Api(bench.api).list_namespaced_pod(bench.namespace).items
    return {pod.metadata.name: pod.metadata.labels.get(ADVICE, "") for pod in pods}


def test_pods_are_labelled_with_their_kernels_contract(bench: Bench) -> None:
    """Pods are labelled kept until their kernel breaks its contract; observe mode moves no weight."""
    bench.everything()
    bench.change("RoutePolicy", "chat", {"mode": "observe"})
    before = bench.route()["metadata"]["resourceVersion"]
    operator = bench.operator(advises=True)
    bench.turns(operator, 16)
    assert set(advised(bench).values()) == {"kept"}
    bench.drift["fp8"] = HARD
    bench.turns(operator, 40)
    assert advised(bench) == {
        "chat-fp8-0": "broken",
        "chat-fp8-1": "broken",
        "chat-bf16-0": "kept",
        "chat-bf16-1": "kept",
    }
    assert bench.route()["metadata"]["resourceVersion"] == before


def test_if_all_kernels_are_broken_the_known_good_one_is_the_last_resort(bench: Bench) -> None:
    """If all kernels are broken, the known-good kernel's pods are labelled last-resort, not broken."""
    bench.everything()
    operator = bench.operator(advises=True)
    bench.turns(operator, 16)
    bench.drift.update(fp8=HARD, bf16=HARD)
    bench.turns(operator, 40)
    found = advised(bench)
    assert {found["chat-bf16-0"], found["chat-bf16-1"]} == {"last-resort"}
    assert {found["chat-fp8-0"], found["chat-fp8-1"]} == {"broken"}


def test_pods_without_telemetry_are_labelled_unknown(bench: Bench) -> None:
    """Pods of a pool without telemetry are labelled unknown."""
    bench.everything()
    operator = bench.operator(advises=True)
    bench.turns(operator, 16)
    bench.silent = True
    bench.turns(operator, 40)
    assert set(advised(bench).values()) == {"unknown"}


def test_without_advise_no_label_is_written(bench: Bench) -> None:
    """Without --advise the operator writes no advice label."""
    bench.everything()
    bench.turns(bench.operator(), 4)
    assert set(advised(bench).values()) == {""}
