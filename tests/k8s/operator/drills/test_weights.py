"""A fault of weights through the cluster runner with a real engine: injected, verified, undone, verified."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kubernetes import client

from tests.support.cluster.cluster_worlds import Bench
from tests.support.cluster.drilled_pods import drill_spec, drill_world
from tests.support.servers.drilled_server import START_S

pytestmark = [
    pytest.mark.needs("kube_api", "vllm", "aiohttp", "torch", "own_endpoints"),
    pytest.mark.slow,
]


def test_weights_of_a_pod_are_changed_verified_and_restored(
    api: client.ApiClient, namespace: str, tmp_path: Path
) -> None:
    """Three bits on one of two fp8 pods: the canary of the weights is checked before, during and after."""
    fault = {
        "name": "bits",
        "kind": "requantise",
        "condition": "as-measured",
        "live": {"bits": 3},
        "target": {"kernel": "fp8", "replica_ratio": 0.5},
        "onset_s": 4.0,
    }
    with drill_world(Bench(api=api, namespace=namespace), tmp_path, engines=("chat-fp8-0",)) as world:
        load = drill_spec()["load"] | {"rate_rps": 8.0}
        world.apply("bits", faults=[fault], load=load, time_to_live_s=11.0)
        world.until(world.drills(), lambda: world.phase("bits") == "Done", START_S)
        assert world.conditions("bits")["Passed"] == ("True", "Passed"), world.told("bits")
        report = json.loads(world.note("bits")["outcome.json"])
        (found,) = report["faults"]
        assert (found["before"], found["happened"], found["replicas"]) == (False, True, ["fp8-0"])
        assert "canary" in found["evidence"]
        assert "KL" in found["evidence"]
        assert world.in_force("chat-fp8-0") == []
