"""The operator as a process: it scrapes, becomes ready, leaves routes behind, and reports failures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from kubernetes import client

from live.control.journal import read_log
from scripts.guard import EXIT_BUG
from tests.support.cluster.cluster_worlds import Bench
from tests.support.cluster.granted import OPERATOR, account_process, granted, noted
from tests.support.cluster.kube_api import free_port, kubeconfig
from tests.support.paths import ROOT
from tests.support.servers.scraped_server import scraped_server

pytestmark = [pytest.mark.needs("kube_api", "own_endpoints"), pytest.mark.slow]

#: Longest wait, s; a quiet machine needs a tenth of it.
PATIENCE_S = 240.0


def await_ready(bench: Bench, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the policy is ready; AssertionError with the end of the log if it never is."""
    until_at_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < until_at_s and process.poll() is None:
        if bench.conditions().get("Ready", ("", ""))[0] == "True":
            return
        time.sleep(0.2)
    raise AssertionError(f"{bench.conditions()}\n{log.read_text()[-4000:]}")


def assert_lines(rows: list[dict[str, Any]], namespace: str) -> None:
    """The log has start, lead, documents, conditions and end, each with its fields."""
    for row in rows:
        assert {"time", "level", "logger", "message"} <= row.keys()
        datetime.fromisoformat(row["time"])
    begun = next(row for row in rows if row["message"] == "the operator begins")
    assert (begun["level"], begun["namespace"]) == ("info", namespace)
    assert any(row["message"] == "this replica leads" for row in rows)
    taken = next(row for row in rows if row["message"] == "policy chat: its documents are in force")
    assert (taken["policy"], taken["route"]) == ("chat", "chat")
    ready = [row for row in rows if row.get("condition") == "Ready" and row["name"] == "chat"]
    assert ready[-1]["status"] == "True"
    assert any(row["logger"].startswith("kopf.") for row in rows)
    assert not any(row["logger"].startswith(("httpx", "kubernetes")) for row in rows)
    assert any(row["message"] == "the operator ends; routes stay as they are" for row in rows)


def test_a_process_makes_the_sample_ready_and_leaves_its_route(
    api: client.ApiClient, namespace: str, tmp_path: Path, calls: Path
) -> None:
    """The process makes the sample ready by scraping, exports metrics, and leaves the route when it ends."""
    bench, metrics = Bench(api=api, namespace=namespace), free_port()
    for name in ("contract", "pool", "policy", "route"):
        bench.apply(name)
    log = tmp_path / "operator.log"
    command = [*account_process(OPERATOR), "kubernetes", "operator"]
    command += ["--namespace", namespace, "--metrics-port", str(metrics), "--health-port", "0"]
    command += ["--references", str(tmp_path / "references"), "--api-key-file", str(tmp_path / "no-secret")]
    command += ["--decision-log", str(tmp_path / "log")]
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig(api.configuration, tmp_path))}
    with scraped_server() as port, log.open("wb") as out:
        bench.servers(port=port)
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=out, stderr=out)
        try:
            await_ready(bench, process, log)
            told = httpx.get(f"http://127.0.0.1:{metrics}/metrics", timeout=30.0).text
            status = [sys.executable, "-m", "scripts.cli.main", "status", "--kubernetes"]
            shown = subprocess.check_output(
                [*status, "--namespace", namespace], cwd=ROOT, env=environment, text=True
            )
        finally:
            process.terminate()
            try:
                process.wait(PATIENCE_S)
            finally:
                process.kill()
                process.wait()
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    assert_lines(rows, namespace)
    assert {call for call in granted(OPERATOR) if call[:2] == ("watch", "selvage.dev")} <= {
        call for _, call, _ in noted(calls)
    }
    assert 'selvage_weight_ratio{kernel="fp8",policy="chat",slice="prose"} 1.0' in told
    assert 'selvage_probe_tokens_total{kernel="fp8",policy="chat"}' in told
    assert any(row["kind"] == "tick" for row in read_log(tmp_path / "log" / "chat"))
    assert "prose: fp8 100%" in shown
    assert bench.weights("prose")["chat-fp8"] == 10_000


_FAILING = """
from tests.support.cluster.granted_process import install

install("selvage-operator")
from k8s.process import serve
from scripts.cli.main import main

def turn(self):
    raise ValueError("nobody foresaw this")

serve.Loop.turn = turn
main()
"""


def test_a_process_whose_loop_fails_says_so_and_leaves_the_route(
    api: client.ApiClient, namespace: str, tmp_path: Path
) -> None:
    """An unexpected error in the loop ends the process with 70, so that the pod restarts; routes stay."""
    bench = Bench(api=api, namespace=namespace)
    bench.apply("route")
    before = bench.route()["metadata"]["resourceVersion"]
    command = [sys.executable, "-c", _FAILING, "kubernetes", "operator", "--namespace", namespace]
    command += ["--metrics-port", "0", "--health-port", "0", "--references", str(tmp_path / "references")]
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig(api.configuration, tmp_path))}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert done.returncode == EXIT_BUG, done.stderr[-4000:]
    assert "nobody foresaw this" in done.stderr
    assert bench.route()["metadata"]["resourceVersion"] == before
