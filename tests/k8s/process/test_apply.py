"""From an empty API server to a governed route, by the first commands of docs/kubernetes.md."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kubernetes import client

from tests.support.cluster.cluster_worlds import Bench, pod, sample
from tests.support.cluster.granted import OPERATOR, account_process
from tests.support.cluster.kube_api import Server, kubeconfig
from tests.support.cluster.kube_assets import assets, gateway_crds
from tests.support.cluster.kubectl import Kubectl
from tests.support.paths import ROOT
from tests.support.servers.scraped_server import scraped_server

pytestmark = [pytest.mark.needs("own_api", "kubectl"), pytest.mark.slow]


@contextmanager
def operator_process(folder: Path, found: Kubectl) -> Iterator[Path]:
    """Run the operator of namespace chat; yields its log."""
    command = [*account_process(OPERATOR), "kubernetes", "operator", "--namespace", "chat"]
    command += ["--metrics-port", "0", "--health-port", "0", "--references", str(folder / "references")]
    environment = {**os.environ, "KUBECONFIG": str(found.kubeconfig)}
    log = folder / "operator.log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=out, stderr=out)
    try:
        yield log
    finally:
        process.terminate()
        try:
            process.wait(60.0)
        finally:
            process.kill()
            process.wait()


def start_pods(bench: Bench, port: int) -> None:
    """Create the sample's pods, ready at their addresses, as controllers and kubelets would."""
    for kernel in ("fp8", "bf16"):
        _, service = sample(kernel)
        names = [f"chat-{kernel}-{n}" for n in range(2)]
        for name in names:
            labels = dict(service["spec"]["selector"])
            client.CoreV1Api(bench.api).create_namespaced_pod(bench.namespace, pod(name, labels))
        bench.endpoints(kernel, names, port)


def test_one_apply_of_the_sample_on_an_empty_server_leads_to_ready(tmp_path: Path) -> None:
    """Definitions, then one kubectl apply of the sample: with operator and servers it becomes Ready."""
    programs, gateway = assets(), gateway_crds()
    assert programs is not None
    assert gateway is not None
    with Server(programs) as server, client.ApiClient(server.configuration) as api, scraped_server() as port:
        bench = Bench(api=api, namespace="chat")
        found = Kubectl(kubeconfig=kubeconfig(server.configuration, tmp_path), folder=ROOT)
        crds = found.run("apply", "--server-side", "-f", str(gateway / "httproutes.yaml"))
        assert crds.returncode == 0, crds.stderr
        found.apply("k8s/manifests")
        with operator_process(tmp_path, found) as log:
            start_pods(bench, port)
            began_at_s = time.monotonic()
            applied = found.run("apply", "--server-side", "--validate=strict", "-k", "k8s/examples/chat")
            assert applied.returncode == 0, applied.stderr
            waited = found.run(
                "wait", "--namespace=chat", "routepolicy/chat", "--for=condition=Ready", "--timeout=100s"
            )
            assert waited.returncode == 0, f"{waited.stderr}\n{log.read_text()[-4000:]}"
        print(f"apply to Ready: {time.monotonic() - began_at_s:.1f} s")
        assert bench.weights("prose")["chat-fp8"] == 10_000
