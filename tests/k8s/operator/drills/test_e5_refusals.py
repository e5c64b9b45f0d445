"""What E5 refuses on a real API server: nothing is changed, and no output folder is left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from contracts.errors import DocumentError
from k8s.process.drills import LEASE
from k8s.process.election import Leadership
from scripts.e5_cluster import experiment
from scripts.e5_cluster.experiment import run_on
from scripts.e5_cluster.plan import ClusterOptions
from scripts.e5_cluster.ports import ExperimentError
from tests.support.cluster.cluster_worlds import Bench
from tests.support.cluster.e5_clusters import drill_file
from tests.support.cluster.granted import E5, rights

pytestmark = [pytest.mark.needs("kube_api"), pytest.mark.slow, pytest.mark.waits]


@pytest.fixture
def untouched(bench: Bench, tmp_path: Path) -> Iterator[Bench]:
    """The sample's documents; checks that they are unchanged afterwards."""
    for name in ("contract", "pool", "policy"):
        bench.apply(name)
    before = bench.read("RoutePolicy", "chat")
    yield bench
    after = bench.read("RoutePolicy", "chat")
    assert after["spec"] == before["spec"]
    assert after["metadata"].get("annotations") == before["metadata"].get("annotations")
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    assert not (tmp_path / "out").exists()


def run(bench: Bench, folder: Path, **changes: str) -> None:
    """Run E5 on the sample."""
    own: dict[str, Any] = {"namespace": bench.namespace, "route_policy": "chat"} | changes
    options = ClusterOptions(
        out=folder / "out", drills=(str(drill_file(folder)),), policies=("fixed",), hold_s=80.0, **own
    )
    run_on(rights(bench.api, E5), options)


def held(bench: Bench, lease: str) -> Leadership:
    """A Lease with a holder."""
    found = Leadership(rights(bench.api, E5), bench.namespace, "somebody", timeout_s=20.0, lease=lease)
    assert found.step()
    return found


def test_missing_objects_are_refused(untouched: Bench, tmp_path: Path) -> None:
    """An unknown policy, an unknown namespace and a namespace without a drill runner are refused."""
    with pytest.raises(DocumentError, match="there are: chat"):
        run(untouched, tmp_path, route_policy="other")
    with pytest.raises(DocumentError, match="there are: none"):
        run(untouched, tmp_path, namespace="nowhere")
    with pytest.raises(DocumentError, match="expected a drill runner"):
        run(untouched, tmp_path)


def test_two_runs_on_one_policy_are_refused(
    untouched: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second run waits as long as the lease of a killed run may last, then names the policy in use."""
    monkeypatch.setattr(experiment, "_PATIENCE_S", 1.0)
    held(untouched, LEASE)
    held(untouched, "selvage-e5-chat")
    with pytest.raises(ExperimentError, match="another selvage e5 runs on RoutePolicy chat"):
        run(untouched, tmp_path)


def test_a_pool_in_alarm_is_left_to_its_operator(untouched: Bench, tmp_path: Path) -> None:
    """While a clause is in alarm, E5 refuses to start and quotes the operator's condition."""
    held(untouched, LEASE)
    body = {
        "observedGeneration": 1,
        "conditions": [
            {
                "type": "Degraded",
                "status": "True",
                "reason": "ClauseInAlarm",
                "observedGeneration": 1,
                "message": "a clause is in alarm: fp8 on prose",
                "lastTransitionTime": "2030-01-31T18:00:00Z",
            }
        ],
    }
    untouched.custom.patch_namespaced_custom_object_status(
        "selvage.dev", "v1alpha1", untouched.namespace, "routepolicies", "chat", {"status": body}
    )
    with pytest.raises(DocumentError, match="fp8 on prose"):
        run(untouched, tmp_path)
