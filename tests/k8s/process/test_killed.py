"""The operator's process is killed around each write: the next one continues, and no rule is ever empty."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kubernetes import client

from tests.support.cluster.cluster_worlds import Bench
from tests.support.cluster.kube_api import kubeconfig
from tests.support.cluster.route_revisions import assert_never_empty, every_revision
from tests.support.paths import ROOT
from tests.support.waiting import PATIENCE_S

pytestmark = [pytest.mark.needs("kube_api"), pytest.mark.slow, pytest.mark.waits]

#: An operator with made-up telemetry, which waits at a given place to be killed.
PROGRAM = """
import os, sys, threading
from kubernetes import client
from k8s.api.cluster import ApiCluster
from k8s.api.routes import ApiRoutes
from k8s.api.connection import cluster_client
from tests.support.cluster.cluster_worlds import Bench

namespace, where, now_s, marker = sys.argv[1:5]

def held(*_, **__):
    open(marker, "w").close()
    threading.Event().wait()

inner = ApiRoutes.replace
def replace(self, route, **others):
    if where == "before the route":
        held()
    found = inner(self, route, **others)
    if where == "after the route":
        held()
    return found

with cluster_client() as api:
    bench = Bench(api=api, namespace=namespace, now_s=float(now_s))
    operator = bench.operator()
    bench.turns(operator, 16)
    ApiRoutes.replace = replace
    if where == "before the state":
        ApiCluster.write_config = held
    if where == "before the status":
        ApiCluster.write_status = held
    bench.drift["fp8"] = 0.02
    bench.turns(operator, 60)
"""


def killed(bench: Bench, where: str, folder: Path) -> None:
    """Start the process, wait until it has reached ``where``, and kill it there."""
    marker = folder / "marker"
    command = [sys.executable, "-c", PROGRAM, bench.namespace, where, str(bench.now_s), str(marker)]
    environment = {
        **os.environ,
        "KUBECONFIG": str(kubeconfig(bench.api.configuration, folder)),
        "PYTHONPATH": str(ROOT),
    }
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
    try:
        deadline_at_s = time.monotonic() + PATIENCE_S
        while not marker.exists():
            assert process.poll() is None, (folder / "log").read_text()[-4000:]
            assert time.monotonic() < deadline_at_s, (folder / "log").read_text()[-4000:]
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(30)


@pytest.mark.parametrize(
    "where", ["before the route", "after the route", "before the state", "before the status"]
)
def test_an_operator_killed_mid_write_is_continued_by_the_next(
    api: client.ApiClient, namespace: str, tmp_path: Path, where: str
) -> None:
    """After SIGKILL around each write of a move the route is complete, and the next operator finishes it."""
    bench = Bench(api=api, namespace=namespace)
    bench.everything()
    bench.turns(bench.operator(), 2)
    with every_revision(bench) as seen:
        killed(bench, where, tmp_path)
        bench.now_s += 80.0
        bench.drift["fp8"] = 0.02
        bench.turns(bench.operator(), 40)
        assert bench.weights("prose")["chat-bf16"] == 10_000
        assert bench.conditions()["Programmed"][0] == "True"
    assert_never_empty(seen)
