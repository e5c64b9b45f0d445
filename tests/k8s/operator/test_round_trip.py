"""From evidence to weights in counted calls: the tick in which a clause breaks writes the route."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

from k8s.api.cluster import ApiCluster
from k8s.operator.namespace import NamespaceOperator
from tests.support.cluster.cluster_worlds import Bench
from tests.support.cluster.granted import rights

pytestmark = [pytest.mark.needs("kube_api"), pytest.mark.slow]

HARD = 0.02


class Calls:
    """A client that records verb and resource of each call in order."""

    def __init__(self, bench: Bench) -> None:
        self.api = rights(bench.api)
        self.seen: list[tuple[str, str]] = []
        self.written_at_s = 0.0
        """When the last write of a route was answered, on the monotonic clock."""
        inner = self.api.rest_client.request

        def request(method: str, url: str, **arguments: Any) -> Any:
            parts = urlsplit(url).path.split("/")
            rest = parts[parts.index("namespaces") + 2 :]
            self.seen.append((method, "/".join(rest)))
            answer = inner(method, url, **arguments)
            if self.seen[-1] == ("PUT", "httproutes/chat"):
                self.written_at_s = time.monotonic()
            return answer

        self.api.rest_client.request = request

    def of(self, resource: str) -> list[str]:
        """Verbs of the calls on ``resource``."""
        return [method for method, path in self.seen if path == resource]


def counted(bench: Bench, turns: int) -> tuple[NamespaceOperator, Calls]:
    """An operator with everything applied after ``turns`` turns, and its calls from the start."""
    bench.everything()
    calls = Calls(bench)
    operator = bench.operator(ApiCluster(calls.api, bench.namespace, timeout_s=20.0))
    bench.turns(operator, turns)
    return operator, calls


def test_evidence_that_crosses_its_threshold_is_in_the_route_within_the_tick(bench: Bench) -> None:
    """In the tick whose decision moves weights, the route is read once and written once."""
    operator, calls = counted(bench, 16)
    bench.drift["fp8"] = HARD
    prose = list(operator.loops["chat"].setup.layout.slices).index("prose")
    for _ in range(40):
        before, calls.seen = bench.weights("prose"), []
        table = operator.loops["chat"].controller.state.table[0, prose].copy()
        began_at_s = time.monotonic()
        bench.turns(operator, 1)
        turn = operator.loops["chat"].standing.turn
        assert turn is not None
        assert turn.decision is not None
        moved = bool(turn.decision.moved[0])
        assert moved == (bench.weights("prose") != before or calls.of("httproutes/chat").count("PUT") == 1)
        if not moved:
            assert "PUT" not in calls.of("httproutes/chat")
            continue
        assert calls.of("httproutes/chat")[:2] == ["GET", "PUT"]
        assert calls.of("httproutes/chat").count("PUT") == 1
        print(f"turn to written route: {1000.0 * (calls.written_at_s - began_at_s):.0f} ms")
        assert not np.array_equal(operator.loops["chat"].controller.state.table[0], table)
        return
    raise AssertionError("nothing moved")


def test_the_route_is_the_first_write_after_the_decision(bench: Bench) -> None:
    """In a tick that moves weights, the route is written before state, status and Events."""
    operator, calls = counted(bench, 16)
    bench.drift["fp8"] = HARD
    for _ in range(40):
        calls.seen = []
        bench.turns(operator, 1)
        writes = [path for method, path in calls.seen if method != "GET"]
        if "httproutes/chat" in writes:
            assert writes[0] == "httproutes/chat"
            return
    raise AssertionError("nothing moved")


def test_a_changing_pool_writes_its_status_at_most_once_a_tick(bench: Bench) -> None:
    """While pods change and events wake the operator at every tick, a status is written once a tick."""
    operator, calls = counted(bench, 4)
    statuses = (
        "kernelpools/chat-pool/status",
        "routepolicies/chat/status",
        "kernelcontracts/chat-contract/status",
    )
    written = 0
    for n in range(20):
        calls.seen = []
        bench.endpoints("fp8", [f"chat-fp8-{k}" for k in range(n % 2 + 1)])
        operator.nudge()
        bench.turns(operator, 1)
        operator.nudge()
        operator.turn()  # within the same tick
        counts = [len(calls.of(one)) for one in statuses]
        assert max(counts) <= 1, (n, counts)
        written += counts[0]
    assert written >= 10, "the pool's status did not follow"
