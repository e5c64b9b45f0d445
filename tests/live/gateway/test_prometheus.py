"""A gateway's Prometheus metrics as counts by slice and kernel: unknown is neither bad nor good."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Sequence

import httpx
import numpy as np
import pytest

from contracts.compiled.contract import FleetLayout
from contracts.telemetry import HISTOGRAM_EDGES_MS
from live.errors import LiveError
from live.gateway.prometheus import ClusterNames, GatewayMetrics, cluster_deltas, read_clusters
from live.observe.traffic import GatewayTraffic, TrafficCounter
from live.ports import ClusterCounts, GatewaySample

LAYOUT = FleetLayout(
    kernels=("fp8", "bf16"),
    slices=("prose", "numbers"),
    replicas=("fp8-0", "bf16-0"),
    replica_kernel=np.array([0, 1]),
    probe_metrics=(),
    known_good=1,
)
NAMES = ClusterNames(
    pattern=re.compile(r"httproute/chat/chat/rule/(?P<slice>\d+)(/backend/(?P<kernel>\d+))?"),
    slices={"0": "numbers", "1": "prose"},
    kernels={"0": "fp8", "1": "bf16", "2": ""},
)
FP8 = "httproute/chat/chat/rule/1/backend/0"


def text(cluster: str, began: int, classes: dict[str, int], times: dict[str, int] | None = None) -> str:
    """Envoy's export for one cluster; times: edge in ms -> answers up to it."""
    own = f'envoy_cluster_name="{cluster}"'
    lines = [
        "# TYPE envoy_cluster_upstream_rq counter",
        f'envoy_cluster_upstream_rq{{envoy_response_code="200",{own}}} 12345',
        "# TYPE envoy_cluster_upstream_rq_total counter",
        f"envoy_cluster_upstream_rq_total{{{own}}} {began}",
        "# TYPE envoy_cluster_upstream_rq_xx counter",
    ]
    lines += [
        f'envoy_cluster_upstream_rq_xx{{envoy_response_code_class="{name}",{own}}} {count}'
        for name, count in classes.items()
    ]
    lines.append("# TYPE envoy_cluster_upstream_rq_time histogram")
    for edge, count in (times or {}).items():
        lines.append(f'envoy_cluster_upstream_rq_time_bucket{{{own},le="{edge}"}} {count}')
    return "\n".join(lines) + "\n"


def between(before: str, now: str) -> list[ClusterCounts]:
    """A proxy's counts between two texts."""
    return cluster_deltas(read_clusters(before, NAMES), read_clusters(now, NAMES))


def traffic(clusters: Sequence[ClusterCounts]) -> GatewayTraffic:
    """The counts in the record's form."""
    sample = GatewaySample(
        read_at_s=0.0,
        requests=(),
        attempts=(),
        hosts=(),
        unreadable=0,
        clusters=tuple(clusters),
        tells_replicas=False,
    )
    return TrafficCounter(LAYOUT).count(sample)


def test_clusters_count_by_slice_and_kernel() -> None:
    """Answers, failures and times of a rule's backend count for its slice on its kernel."""
    before = text(FP8, 10, {"2": 9, "5": 1}, {"250": 5, "500": 9, "+Inf": 10})
    now = text(FP8, 20, {"2": 17, "4": 1, "5": 2}, {"250": 5, "500": 16, "+Inf": 20})
    found = traffic(between(before, now))
    assert found.offered.tolist() == [10, 0]
    assert found.answered.tolist() == [[8, 0], [0, 0]]
    assert found.failed.tolist() == [[1, 0], [0, 0]]
    times = dict(zip((*HISTOGRAM_EDGES_MS, np.inf), found.latency_le[0, 0, 0].tolist(), strict=True))
    assert (times[250.0], times[500.0], times[np.inf]) == (0, 7, 10)
    assert found.replica_answered.tolist() == [0, 0]


def test_the_first_failure_counts() -> None:
    """Envoy exports a class of answers from its first one on, and that one is not lost."""
    found = traffic(between(text(FP8, 5, {"2": 5}), text(FP8, 6, {"2": 5, "5": 1})))
    assert found.failed[0, 0] == 1


def test_what_is_shed_and_what_no_kernel_is_told_of_are_offered_alone() -> None:
    """The refusing cluster, and a cluster of a whole rule, give a slice's offered requests and no more."""
    for cluster in ("httproute/chat/chat/rule/1/backend/2", "httproute/chat/chat/rule/1"):
        found = traffic(between(text(cluster, 1, {"4": 1}), text(cluster, 8, {"2": 7, "4": 1})))
        assert found.offered.tolist() == [7, 0]
        assert not found.answered.any()
        assert not found.failed.any()


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ("", text(FP8, 20, {"5": 20})),
        (text(FP8, 20, {"5": 20}), text(FP8, 3, {"5": 3})),
        (text("outbound|8000||other", 1, {"5": 1}), text("outbound|8000||other", 9, {"5": 9})),
        (
            text(FP8.replace("backend/0", "backend/9"), 1, {}),
            text(FP8.replace("backend/0", "backend/9"), 9, {}),
        ),
        (text(FP8, 9, {"2": 9}), ""),
    ],
    ids=["first reading", "restarted proxy", "cluster of others", "unknown backend", "gone"],
)
def test_what_is_not_known_counts_nothing(before: str, now: str) -> None:
    """A first reading, a fallen counter, foreign clusters and absent ones are neither bad nor good."""
    found = traffic(between(before, now))
    counts = (found.offered, found.answered, found.failed, found.latency_le)
    assert [int(one.sum()) for one in counts] == [0, 0, 0, 0]


def test_edges_that_changed_tell_no_times() -> None:
    """Counts stay; times are unknown if the edges changed."""
    (found,) = between(text(FP8, 1, {"2": 1}, {"500": 1}), text(FP8, 3, {"2": 3}, {"400": 3}))
    assert (found.answered, found.edges_ms) == (2, ())


def test_what_is_no_exposition_is_refused() -> None:
    """A page that is not Prometheus text is an error, not a count."""
    with pytest.raises(LiveError, match="no Prometheus text"):
        read_clusters("<html>{", NAMES)


def test_a_proxy_that_fails_is_said_and_the_others_count() -> None:
    """Proxies are added up; a failing one makes the sum unknown, with the reason, until it answers."""
    served = {"a": text(FP8, 1, {"2": 1}), "b": text(FP8, 5, {"2": 5}), "c": "other 1\n"}

    def respond(request: httpx.Request) -> httpx.Response:
        if request.url.host == "d":
            return httpx.Response(503)
        return httpx.Response(200, text=served[request.url.host])

    urls = [f"http://{name}/stats/prometheus" for name in "abcd"]
    with httpx.Client(transport=httpx.MockTransport(respond)) as client:
        gateway = GatewayMetrics(urls, NAMES, client)
        try:
            _until(gateway, lambda _: set(gateway._last) >= set(urls[:3]) and "HTTP 503" in gateway.problem)
            served |= {"a": text(FP8, 4, {"2": 4}), "b": text(FP8, 7, {"2": 7})}
            found = _until(gateway, lambda seen: sum(one.answered for one in seen) >= 5)
        finally:
            gateway.close()
    assert sum(one.offered for one in found) == 5
    assert "http://c/" in gateway.problem
    assert "http://d/" in gateway.problem
    assert "http://a/" not in gateway.problem


@pytest.mark.parametrize("told", ["NaN", "+Inf"])
def test_a_proxy_that_counted_to_no_number_is_asked_again(told: str) -> None:
    """Its counts are unknown then, and count again once they are numbers."""
    served = [
        text(FP8, 7, {"2": 1}).replace("} 7\n", f"}} {told}\n"),
        text(FP8, 4, {"2": 4}),
        text(FP8, 6, {"2": 6}),
    ]
    broken = threading.Event()

    def respond(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, text=served.pop(0) if len(served) > 1 and broken.is_set() else served[0])

    with httpx.Client(transport=httpx.MockTransport(respond)) as client:
        gateway = GatewayMetrics(["http://a/"], NAMES, client)
        try:
            _until(gateway, lambda _: "a counter is" in gateway.problem)
            broken.set()
            found = _until(gateway, lambda seen: sum(one.answered for one in seen) >= 2)
        finally:
            gateway.close()
    assert sum(one.offered for one in found) == 2
    assert gateway.problem == ""


def _until(gateway: GatewayMetrics, holds: Callable[[list[ClusterCounts]], bool]) -> list[ClusterCounts]:
    """Read until ``holds`` of all counts so far."""
    seen: list[ClusterCounts] = []
    until_at_s = time.monotonic() + 180.0
    while time.monotonic() < until_at_s:
        sample = gateway.read()
        assert not sample.tells_replicas
        seen += sample.clusters
        if holds(seen):
            return seen
        time.sleep(0.005)
    raise AssertionError(gateway.problem)
