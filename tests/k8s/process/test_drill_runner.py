"""The drill runner as a process: it leads, logs, and ends on a signal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import httpx
import pytest
from kubernetes import client

from tests.support.cluster.granted import RUNNER, account_process
from tests.support.cluster.kube_api import free_port, kubeconfig
from tests.support.paths import ROOT
from tests.support.waiting import PATIENCE_S

pytestmark = [pytest.mark.needs("kube_api"), pytest.mark.slow]


def probed(port: int, path: str) -> int:
    """Status of a probe, 0 if nothing answers."""
    try:
        return httpx.get(f"http://127.0.0.1:{port}/{path}", timeout=30.0).status_code
    except httpx.HTTPError:
        return 0


def test_the_runner_logs_its_start_its_lead_and_its_end(
    api: client.ApiClient, namespace: str, tmp_path: Path
) -> None:
    """Without drills, the runner logs its start, its lead and its end as JSON lines, and answers probes."""
    log, health = tmp_path / "drills.log", free_port()
    command = [*account_process(RUNNER), "kubernetes", "drills", "--namespace", namespace]
    command += ["--gateway", "http://127.0.0.1:9", "--token-file", str(tmp_path / "token")]
    command += ["--health-port", str(health)]
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig(api.configuration, tmp_path))}
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=out, stderr=out)
        try:
            until_at_s = time.monotonic() + PATIENCE_S
            while b"this replica leads" not in log.read_bytes() and time.monotonic() < until_at_s:
                assert process.poll() is None, log.read_text()
                time.sleep(0.1)
            while probed(health, "readyz") != 200 and time.monotonic() < until_at_s:
                time.sleep(0.1)
            assert (probed(health, "readyz"), probed(health, "healthz")) == (200, 200)
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE_S)
        finally:
            process.kill()
            process.wait()
    rows = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    # Warnings about a busy API server may come in between.
    told = [row["message"] for row in rows if row["level"] == "info"]
    assert told == ["the drill runner begins", "this replica leads", "the drill runner ends"]
    assert rows[0]["namespace"] == namespace
