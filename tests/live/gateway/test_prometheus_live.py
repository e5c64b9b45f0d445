"""A real Envoy's Prometheus export, by its real names."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from live.gateway.clusters import slice_cluster
from live.gateway.prometheus import ClusterNames, ClusterReading, cluster_deltas, read_clusters
from tests.support.servers.gateways import SLICES, Bench, gateway

pytestmark = [pytest.mark.needs("envoy", "aiohttp")]

NAMES = ClusterNames(
    pattern=re.compile(re.escape(slice_cluster("")) + "(?P<slice>.+)(?P<kernel>)"),
    slices={name: name for name in SLICES},
    kernels={"": "k0"},
)
PROSE = ("prose", "k0")


def flushed(bench: Bench) -> ClusterReading:
    """Counts of prose, once every request is in the histogram, which is merged periodically."""
    deadline_at_s = time.monotonic() + 180.0
    while time.monotonic() < deadline_at_s:
        text = bench.client.get(f"{bench.driver.admin.url}/stats/prometheus").text
        found = read_clusters(text, NAMES)[PROSE]
        if found.counts.get(float("inf")) == found.began:
            return found
        time.sleep(0.2)
    raise AssertionError("the histogram never caught up")


def test_metrics_of_an_envoy_are_counts_by_cluster(tmp_path: Path) -> None:
    """Requests, answers, failures and times of a cluster equal those of the clients."""
    with gateway(tmp_path, replicas=1) as bench:
        bench.ask()
        before = flushed(bench)
        for _ in range(8):
            assert bench.ask().status_code == 200
        bench.set_mode("r0", status=501)
        assert bench.ask().status_code == 501
        (found,) = cluster_deltas({PROSE: before}, {PROSE: flushed(bench)})
    assert (found.offered, found.answered, found.failed) == (9, 8, 1)
    assert found.edges_ms[-1] == float("inf")
    assert found.counts[-1] == 9
