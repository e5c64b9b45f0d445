"""Users' requests through the whole data path while a drill breaks one server: they move, none is lost."""

from __future__ import annotations

from contextlib import ExitStack

import httpx
import numpy as np
import pytest

from live.load import SLICE_HEADER, LoadRecord, LoadTap
from tests.support.cluster.cluster_worlds import Object
from tests.support.cluster.data_paths import MODEL, DataPath, loaded
from tests.support.cluster.path_documents import contract, drill, meta_contract, policy, pool, route
from tests.support.cluster.route_revisions import assert_never_empty, every_revision

pytestmark = [
    pytest.mark.needs("kube_api", "kubectl", "vllm", "envoy", "aiohttp", "torch", "own_endpoints"),
    pytest.mark.slow,
    pytest.mark.timeout(1500),
]

#: Requests of a slice from which a share is computed.
ENOUGH = 60
#: Standard deviations by which a share may differ from the weights in force.
SIGMAS = 5.0
STRUCK = "chat-fp16-0"


def documents(path: DataPath) -> tuple[Object, ...]:
    """Contract, pool, policy ``sequential`` and route."""
    governing = policy(meta_contract(path.folder)), route(path.bench.namespace)
    return contract(), pool(), *governing


def share(found: list[LoadRecord], kernel: str) -> float:
    """Share of ``found`` that pods of ``kernel`` answered."""
    return float(np.mean([one.replica.startswith(f"chat-{kernel}-") for one in found]))


def assert_as_weighted(path: DataPath, found: list[LoadRecord], kernel: str) -> None:
    """The share of requests to ``kernel`` agrees with the weights in force when each request began."""
    shares = [path.gateway.shares("prose", one.started_at_s) for one in found]
    chances = np.array([one[f"chat-{kernel}"] for one in shares])
    off = abs(share(found, kernel) - chances.mean()) * len(found)
    assert off <= SIGMAS * np.sqrt((chances * (1.0 - chances)).sum()) + 1.0, (off, len(found), kernel)


def share_of(path: DataPath, kernel: str) -> float:
    """Share of prose that is sent to ``kernel`` now."""
    return path.gateway.shares("prose")[f"chat-{kernel}"]


def enough(path: DataPath, since_at_s: float) -> list[LoadRecord]:
    """Requests on prose that began after ``since_at_s``, once there are enough."""
    path.until(lambda: len(path.answered("prose", since_at_s)) >= ENOUGH, f"{ENOUGH} answers on prose")
    return path.answered("prose", since_at_s)


def test_a_drill_moves_users_and_loses_none(path: DataPath) -> None:
    """A silently wrong server gets no more requests; overflow goes to the other kernel, then all return.

    Shares follow the weights in the route, no request fails, and no revision has an empty rule.
    """
    with ExitStack() as stack:
        path.governed(stack, *documents(path))
        seen = stack.enter_context(every_revision(path.bench))
        stack.enter_context(loaded(path, rate_rps=5.0))
        path.until(lambda: path.bench.conditions()["Ready"][0] == "True", "Ready")
        before = enough(path, 0.0)
        assert share(before, "fp16") == 1.0
        assert {one.replica for one in before} == {STRUCK, "chat-fp16-1"}
        during = _struck(path)
        assert 0.0 < share(during, "fp32") < 1.0
        assert STRUCK not in {one.replica for one in during}
        path.until(lambda: share_of(path, "fp16") == 1.0, "prose came home")
        path.until(lambda: STRUCK in path.gateway.history[-1].pods, "the struck pod came back")
        after = enough(path, path.gateway.history[-1].at_s)
        assert STRUCK in {one.replica for one in after}
        for found in (before, during, after):
            assert_as_weighted(path, found, "fp32")
    assert_never_empty(seen)
    assert [one for one in path.tap.records if not one.complete] == []


def _struck(path: DataPath) -> list[LoadRecord]:
    """Break a server with a drill; returns requests on prose after others took over."""
    path.apply(drill("bits"))
    path.until(lambda: STRUCK not in path.gateway.history[-1].pods, "the struck pod was left out")
    moved_at_s = path.until(lambda: share_of(path, "fp32") >= 0.1, "prose overflowed")
    found = enough(path, moved_at_s)
    waited = path.kubectl.run(
        "wait",
        f"--namespace={path.bench.namespace}",
        "faultdrill/bits",
        "--for=condition=Passed",
        "--timeout=300s",
    )
    assert waited.returncode == 0, f"{path.bench.read('FaultDrill', 'bits').get('status')}\n{path.told()}"
    return found


def test_requests_beyond_capacity_get_429_with_retry_after(path: DataPath) -> None:
    """If requests queue on both kernels the route sheds, and shed requests get 429 with Retry-After."""
    with ExitStack() as stack:
        path.governed(stack, *documents(path))
        tap = LoadTap()
        stack.enter_context(loaded(path, rate_rps=30.0, tap=tap, answer_tokens=128))
        path.until(lambda: path.gateway.shares("prose")["selvage-refuse"] > 0.0, "the route shed")
        path.until(lambda: any(one.status == 429 for one in list(tap.records)), "a request was refused")
        asked = {"model": MODEL, "prompt": [50, 51, 52], "max_tokens": 1}
        refused = None
        for _ in range(1000):
            answer = httpx.post(
                f"{path.gateway.url}/v1/completions",
                json=asked,
                headers={SLICE_HEADER: "prose"},
                timeout=300.0,
            )
            if answer.status_code == httpx.codes.TOO_MANY_REQUESTS:
                refused = answer
                break
    assert refused is not None, path.told()
    assert int(refused.headers["retry-after"]) > 0
    assert {one.status for one in tap.records} == {200, 429}
