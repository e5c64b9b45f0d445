"""E5 on a real API server: drills under two policies, one report, and everything restored afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from k8s.api.experiments import ApiExperiment
from scripts.e5_cluster.borrowed import UNDO
from scripts.e5_cluster.experiment import run_on
from scripts.e5_cluster.plan import ClusterOptions
from tests.support.cluster.drilled_pods import DrillWorld
from tests.support.cluster.e5_clusters import E5World, drill_file, running_cluster
from tests.support.cluster.granted import E5, Account, account_process, granted, rights
from tests.support.cluster.kube_api import kubeconfig
from tests.support.cluster.route_revisions import assert_never_empty, every_revision
from tests.support.paths import ROOT

pytestmark = [
    pytest.mark.needs("kube_api", "vllm", "aiohttp", "own_endpoints"),
    pytest.mark.waits,
    pytest.mark.slow,
]

HOLD_S = 16.0
PATIENCE_S = 240.0


@pytest.fixture
def cluster(world: DrillWorld) -> Iterator[E5World]:
    """The world with a running operator."""
    with running_cluster(world) as found:
        yield found


def options(cluster: E5World, folder: Path) -> ClusterOptions:
    """One drill, one policy that never acts and one that does, one seed."""
    return ClusterOptions(
        out=folder / "out",
        namespace=cluster.world.bench.namespace,
        route_policy="chat",
        drills=(str(drill_file(folder)),),
        policies=("fixed-bare", "hysteresis"),
        hold_s=HOLD_S,
    )


def test_drills_run_under_every_policy_and_all_is_as_before(cluster: E5World, tmp_path: Path) -> None:
    """Both policies are measured with the Role's rights alone; no route revision has an empty rule."""
    before = cluster.policy()["spec"]
    recorded = Account(cluster.world.bench.api.configuration, E5)
    with every_revision(cluster.world.bench) as seen:
        run_on(recorded.api, options(cluster, tmp_path))
    assert_never_empty(seen)
    pool = ApiExperiment(recorded.api, cluster.world.bench.namespace).inference_pool("none")
    assert pool is None  # the Role allows it for kernels behind an InferencePool
    assert recorded.calls == granted(E5)
    content = json.loads((tmp_path / "out" / "e5.json").read_text())
    header = content["header"]
    assert (header["target"], header["namespace"]) == ("kubernetes", cluster.world.bench.namespace)
    assert [one["counts"] for one in header["episodes"]] == [True, True], header["episodes"]
    visible = content["groups"]["visible"]
    assert visible["fixed-bare"]["detection_lag_s"]["mean"] == HOLD_S  # never acts: censored at the horizon
    assert visible["hysteresis"]["detection_lag_s"]["mean"] < HOLD_S
    assert 0.0 < visible["hysteresis"]["failed_ratio_incident"]["mean"] < 1.0
    assert "vLLM pods of a cluster" in (tmp_path / "out" / "report.html").read_text()
    assert {"fixed-bare", "hysteresis"} <= {one["policy"] for one in cluster.seen}
    assert_as_before(cluster, before)
    generation = cluster.policy()["metadata"]["generation"]
    run_on(rights(cluster.world.bench.api, E5), options(cluster, tmp_path))
    assert cluster.policy()["metadata"]["generation"] == generation


def assert_as_before(cluster: E5World, before: dict[str, object]) -> None:
    """Spec, annotations, drills and servers are as before."""
    now = cluster.policy()
    assert now["spec"] == before
    assert UNDO not in (now["metadata"].get("annotations") or {})
    assert cluster.drill_names() == []
    assert not cluster.struck()


def started(cluster: E5World, folder: Path, *words: str) -> subprocess.Popen[bytes]:
    """``selvage e5 --target kubernetes`` as a process."""
    api = cluster.world.bench.api
    command = [
        *account_process(E5), "e5", "--target", "kubernetes", "--route-policy", "chat",
        "--namespace", cluster.world.bench.namespace, "--out", str(folder / "out"), *words,
    ]  # fmt: skip
    environment = os.environ | {
        "KUBECONFIG": str(kubeconfig(api.configuration, folder)),
        "PYTHONPATH": str(ROOT),
    }
    with (folder / "e5.log").open("ab") as log:
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log)


def until_struck(cluster: E5World, process: subprocess.Popen[bytes], folder: Path) -> None:
    """Wait until a drill of the process has a fault in force."""
    deadline_at_s = time.monotonic() + PATIENCE_S
    while not cluster.struck():
        assert process.poll() is None, (folder / "e5.log").read_text()
        assert time.monotonic() < deadline_at_s, (folder / "e5.log").read_text()
        time.sleep(0.5)


def test_a_run_that_is_stopped_restores_everything(cluster: E5World, tmp_path: Path) -> None:
    """After TERM the drill is undone and deleted and the policy restored before the process ends."""
    before = cluster.policy()["spec"]
    words = ("--drills", str(drill_file(tmp_path)), "--policies", "sequential")
    process = started(cluster, tmp_path, *words)
    until_struck(cluster, process, tmp_path)
    assert cluster.policy()["spec"]["policy"] == "sequential"
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=PATIENCE_S) == 128 + signal.SIGTERM, (tmp_path / "e5.log").read_text()
    assert_as_before(cluster, before)


def test_undo_restores_what_a_killed_run_left(cluster: E5World, tmp_path: Path) -> None:
    """After KILL an annotation keeps the old spec; ``--undo`` restores it and ends the drill."""
    before = cluster.policy()["spec"]
    process = started(cluster, tmp_path, "--drills", str(drill_file(tmp_path)), "--policies", "breaker")
    until_struck(cluster, process, tmp_path)
    process.kill()
    process.wait(timeout=120)
    left = cluster.policy()
    assert left["spec"]["policy"] == "breaker"
    assert json.loads(left["metadata"]["annotations"][UNDO]) == before
    assert len(cluster.drill_names()) == 1
    undo = started(cluster, tmp_path, "--undo")
    assert undo.wait(timeout=PATIENCE_S) == 0, (tmp_path / "e5.log").read_text()
    assert_as_before(cluster, before)
