"""Runners that die, drills that are deleted, pods that disappear: faults in force are undone."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from kubernetes import client

from k8s.api.drills import ApiDrillCluster
from k8s.operator.drills.cluster import FINALIZER
from k8s.operator.objects import Manifest
from tests.support.cluster.drilled_pods import DrillWorld
from tests.support.cluster.granted import RUNNER, account_process
from tests.support.cluster.kube_api import kubeconfig
from tests.support.paths import ROOT
from tests.support.waiting import PATIENCE_S

pytestmark = [
    pytest.mark.waits,
    pytest.mark.needs("kube_api", "vllm", "aiohttp", "own_endpoints"),
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]


class Dying(ApiDrillCluster):
    """A cluster whose runner dies just after it has written the drill's note."""

    def write_config(self, config: Manifest) -> None:
        """Write the ConfigMap, then die."""
        super().write_config(config)
        raise KeyboardInterrupt


def finalizers(world: DrillWorld) -> list[str]:
    """Finalizers of the drill."""
    return list(world.bench.read("FaultDrill", "late")["metadata"].get("finalizers") or [])


def test_a_runner_that_dies_between_note_and_injection_leaves_nothing(world: DrillWorld) -> None:
    """The next runner finds the note, confirms that no fault is in force, and ends the drill."""
    world.apply()
    dying = world.drills(Dying(world.bench.api, world.bench.namespace, timeout_s=20.0))
    dying.turn()
    (work,) = dying._works.values()
    assert work.join(PATIENCE_S)
    assert finalizers(world) == [FINALIZER]
    drills = world.drills()
    world.until(drills, lambda: world.phase() == "Done")
    assert world.conditions()["Passed"] == ("Unknown", "RunnerLost")
    assert finalizers(world) == []
    assert world.in_force("chat-fp8-0") == []


def test_the_next_runner_undoes_the_faults_of_a_killed_one(
    world: DrillWorld, tmp_path: Path, api: client.ApiClient
) -> None:
    """After SIGKILL of the runner's process, the next runner undoes the faults in the note."""
    world.apply(time_to_live_s=300.0)
    command = [
        *account_process(RUNNER), "kubernetes", "drills", "--gateway", world.gateway,
        "--namespace", world.bench.namespace, "--allow-namespace", world.bench.namespace,
        "--token-file", str(world.token_file), "--records", str(tmp_path / "records"),
        "--drill-port", str(world.door), "--health-port", "0",
    ]  # fmt: skip
    environment = os.environ | {
        "KUBECONFIG": str(kubeconfig(api.configuration, tmp_path)),
        "PYTHONPATH": str(ROOT),
    }
    with (tmp_path / "runner.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        deadline_at_s = time.monotonic() + 3.0 * PATIENCE_S
        while world.in_force("chat-fp8-0") != ["late"]:
            assert process.poll() is None, (tmp_path / "runner.log").read_text()
            assert time.monotonic() < deadline_at_s, (tmp_path / "runner.log").read_text()
            time.sleep(0.2)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=120)
    world.until(world.drills(), lambda: world.phase() == "Done")
    assert world.conditions()["Passed"] == ("Unknown", "RunnerLost")
    assert world.in_force("chat-fp8-0") == []
    assert finalizers(world) == []


def test_a_drill_that_is_deleted_is_undone_first(world: DrillWorld) -> None:
    """Deleting a drill first undoes it, then completes."""
    world.apply(time_to_live_s=300.0)
    drills = world.drills()
    world.until(drills, lambda: world.in_force("chat-fp8-0") == ["late"])
    world.bench.delete("FaultDrill", "late")
    assert finalizers(world) == [FINALIZER]

    def gone() -> bool:
        found = world.bench.custom.list_namespaced_custom_object(
            "selvage.dev", "v1alpha1", world.bench.namespace, "faultdrills"
        )
        return not found["items"]

    world.until(drills, gone)
    assert world.in_force("chat-fp8-0") == []


@pytest.mark.parametrize("how", ["created again", "more replicas", "deleted", "another contract"])
def test_a_drill_ends_with_the_objects_that_it_was_judged_by(world: DrillWorld, how: str) -> None:
    """If the pool or contract is deleted, replaced or changed, the fault is undone.

    The drill is inconclusive: nothing is concluded from the pods that are there afterwards.
    """
    world.apply(time_to_live_s=300.0)
    drills = world.drills()
    world.until(drills, lambda: world.in_force("chat-fp8-0") == ["late"])
    if how in ("deleted", "created again"):
        world.bench.delete("KernelPool", "chat-pool")
    if how == "created again":
        world.bench.apply("pool")
    if how == "more replicas":
        kernels = world.bench.read("KernelPool", "chat-pool")["spec"]["kernels"]
        world.bench.change("KernelPool", "chat-pool", {"kernels": [one | {"replicas": 3} for one in kernels]})
    if how == "another contract":
        name = world.bench.read("RoutePolicy", "chat")["spec"]["contract"]
        world.bench.change("KernelContract", name, {"detection": {"window_s": 33.0}})
    world.until(drills, lambda: world.phase() == "Done")
    assert world.conditions()["Passed"][0] == "Unknown"
    status = world.bench.read("FaultDrill", "late")["status"]
    assert status["verdict"] in ("Inconclusive", "Invalid")
    told = {"more replicas": "was changed", "another contract": "was changed"}.get(how, f"was {how}")
    told = told.replace("was created again", "was deleted and created again")
    kind = "KernelContract" if how == "another contract" else "KernelPool chat-pool"
    assert kind in world.told()
    assert f"{told} while the drill ran" in world.told()
    assert world.in_force("chat-fp8-0") == []
    assert finalizers(world) == []


def test_a_runner_that_is_stopped_undoes_its_faults(world: DrillWorld) -> None:
    """A runner that is stopped undoes its faults and reports the drill as inconclusive."""
    world.apply(time_to_live_s=300.0)
    drills = world.drills()
    world.until(drills, lambda: world.in_force("chat-fp8-0") == ["late"])
    drills.leave()
    assert world.in_force("chat-fp8-0") == []
    assert world.conditions()["Passed"][0] == "Unknown"
    assert finalizers(world) == []


def test_the_successor_of_a_deleted_pod_is_not_touched(world: DrillWorld) -> None:
    """If the pod with the fault is deleted, a later pod at its address is not touched."""
    world.apply(time_to_live_s=300.0)
    drills = world.drills()
    world.until(drills, lambda: world.in_force("chat-fp8-0") == ["late"])
    (work,) = drills._works.values()
    drills._works.clear()  # as if the runner had died
    world.delete_pod("chat-fp8-0")
    world.make_pod("fp8", 0)  # another pod; the server at its address has a fault of that name in force
    fresh = world.drills()
    world.until(fresh, lambda: world.phase() == "Done")
    assert finalizers(world) == []
    assert "gone with it" in str(world.bench.read("FaultDrill", "late")["status"])
    assert world.in_force("chat-fp8-0") == ["late"]
    work.stop("the test ends")  # a request in flight at interpreter exit would abort the process
    assert work.join(PATIENCE_S)
