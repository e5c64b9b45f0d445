"""A real Envoy before stand-in servers: tables, retries, shedding, copies, resets, refusals."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from live.errors import ActuationError, LiveError
from live.gateway.admin import EnvoyAdmin
from live.gateway.driver import GatewayDriver, WatchedFile, versioned_resources
from live.gateway.process import find_envoy, require_free, validate
from live.gateway.settings import GatewayFiles, GatewaySettings
from live.gateway.statistics import GatewayLogs
from live.gateway.table import PER_MILLION, ShadowRoute
from live.load import LoadPlan, LoadRecord, run_load
from tests.support.servers.gateways import SLICES, Bench, gateway, table_of
from tests.support.waiting import until

pytestmark = [pytest.mark.needs("envoy", "aiohttp")]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """One gateway for most tests; ejected replicas return soon."""
    with gateway(tmp_path_factory.mktemp("shared"), settings=GatewaySettings(eject_s=0.2)) as running:
        yield running


@pytest.fixture
def bench(shared: Bench) -> Bench:
    """Envoy before three healthy stand-ins of equal weight."""
    for name in shared.servers:
        shared.set_mode(name)
    shared.apply(dict.fromkeys(shared.servers, 100))
    return shared


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Bench]:
    """A gateway that a test may break."""
    with gateway(tmp_path) as running:
        yield running


def load(bench: Bench, seconds: float, **more: Any) -> LoadPlan:
    """An open loop of 60 requests a second on both slices, 30 % streamed."""
    return LoadPlan(url=bench.url, rate_rps=60.0, seconds=seconds, slices=SLICES, **more)


def lost(records: list[LoadRecord]) -> list[LoadRecord]:
    """Requests that were not answered to their end."""
    return [record for record in records if not record.complete]


def answers(bench: Bench, count: int, slice_name: str = "prose") -> Counter[str]:
    """Number of answers by replica, of ``count`` requests."""
    return Counter(bench.ask(slice_name).headers.get("x-selvage-replica", "nobody") for _ in range(count))


def test_requests_follow_the_weights_of_the_table(bench: Bench) -> None:
    """Round robin by weight: of ten requests at 7 to 3 exactly seven and three arrive."""
    took_s = bench.apply({"r0": 700_000, "r1": 300_000}, version=2)
    assert took_s > 0.0
    # the main thread acknowledges; worker threads follow later
    until(lambda: answers(bench, 10) == {"r0": 7, "r1": 3})
    assert answers(bench, 40) == {"r0": 28, "r1": 12}
    assert bench.driver.apply(table_of(bench.upstreams, {"r0": 700_000, "r1": 300_000}, version=2)) == 0.0


def test_weight_changes_under_load_lose_no_request(bench: Bench) -> None:
    """Through 40 changes and removals under open-loop load, a third streamed, every request is answered."""

    def change() -> None:
        for number in range(40):
            weights = {f"r{n}": 0 if n == number % 3 else 1 + number % 5 for n in range(3)}
            bench.apply(weights, version=10 + number)
            time.sleep(0.05)

    records = run_load(load(bench, 5.0), change)
    assert len(records) > 200
    assert lost(records) == []
    assert {record.replica for record in records} == {"r0", "r1", "r2"}


def test_a_killed_server_costs_no_request_that_another_can_serve(own: Bench) -> None:
    """After SIGKILL of one of three, only streams that had begun on it end early; nothing else fails."""

    def kill() -> None:
        time.sleep(1.0)
        own.servers["r1"].kill()

    records = run_load(load(own, 3.0), kill)
    assert [record for record in lost(records) if not (record.streamed and record.replica == "r1")] == []
    late = [record for record in records if record.started_at_s > records[0].started_at_s + 1.5]
    assert {record.replica for record in late} == {"r0", "r2"}


def test_errors_of_one_server_are_answered_by_another(bench: Bench) -> None:
    """A broken engine's error status is retried elsewhere; every try has a row, clients get one answer."""
    logs = GatewayLogs(bench.files, bench.driver.admin, SLICES)
    time.sleep(0.6)
    logs.read()
    bench.set_mode("r0", status=500)
    assert [bench.ask().status_code for _ in range(9)] == [200] * 9
    time.sleep(0.6)
    sample = logs.read()
    assert {request.code for request in sample.requests} == {200}
    failed = [attempt for attempt in sample.attempts if attempt.code == 500]
    assert {attempt.replica for attempt in failed} == {"r0"}
    assert max(request.attempts for request in sample.requests) == 2
    counted = {host.replica: host for host in sample.hosts if host.slice == "prose"}
    assert counted["r0"].failed >= len(failed) > 0
    assert sum(host.succeeded for host in counted.values()) >= 9


def test_a_hung_servers_requests_live_on_when_its_endpoint_goes(bench: Bench) -> None:
    """Removing the endpoint ends no request: stuck ones stay, new ones go elsewhere."""
    outcome = _stuck_request(bench)
    bench.apply({"r1": 1, "r2": 1}, version=3)
    assert set(answers(bench, 6)) == {"r1", "r2"}
    time.sleep(1.5)
    assert outcome == []


def test_a_reset_sends_unanswered_requests_elsewhere(bench: Bench) -> None:
    """After a reset the stuck request is answered by another replica, and the replica can serve again."""
    outcome = _stuck_request(bench)
    bench.apply({"r1": 1, "r2": 1}, version=3)
    bench.driver.reset("r0", bench.upstreams)
    until(lambda: bool(outcome))
    assert outcome[0].status_code == 200
    assert outcome[0].headers["x-selvage-replica"] in {"r1", "r2"}
    bench.set_mode("r0")
    bench.apply({"r0": 1}, version=4)
    assert answers(bench, 3) == {"r0": 3}


def test_a_reset_leaves_other_replicas_alone(bench: Bench) -> None:
    """Streams on other replicas continue through a reset, and the gateway stays open."""
    for name in ("r1", "r2"):
        bench.set_mode(name, token_s=0.05)
    bench.apply({"r1": 1, "r2": 1}, version=3)
    plan = load(bench, 2.0, streamed_ratio=1.0, answer_tokens=40)
    records = run_load(plan, lambda: _reset(bench, "r0"))
    assert lost(records) == []


def test_shed_shares_get_429_at_once(bench: Bench) -> None:
    """With everything shed every request is answered 429 with a Retry-After, and no server sees it."""
    before = sum(bench.count(name) for name in bench.servers)
    bench.apply({"r0": 1}, version=5, shed=PER_MILLION)
    answer = bench.ask()
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
    assert answer.json()["error"]["code"] == 429
    assert sum(bench.count(name) for name in bench.servers) == before
    bench.apply({"r0": 1}, version=6, shed=PER_MILLION // 2)
    codes = Counter(bench.ask().status_code for _ in range(200))
    assert 60 < codes[429] < 140
    assert codes[200] + codes[429] == 200


def test_a_share_is_copied_to_the_shadow_kernel(bench: Bench) -> None:
    """Every request of a fully shadowed slice is copied once, without waiting for the copy."""
    bench.set_mode("r2", hang=True)
    before = bench.count("r2")
    shadow = (ShadowRoute(slice="code", kernel="k2", ratio=1.0),)
    bench.apply({"r0": 1}, version=7, shadows=shadow)
    assert answers(bench, 10, "code") == {"r0": 10}
    assert answers(bench, 5, "prose") == {"r0": 5}
    until(lambda: bench.count("r2") == before + 10)


def test_requests_without_a_known_header_belong_to_the_default_slice(bench: Bench) -> None:
    """An unknown slice is served as the default one; paths outside /v1/ are not served at all."""
    assert bench.ask("unheard-of").status_code == 200
    assert httpx.get(f"{bench.url}/count", timeout=5.0).status_code == 404


@pytest.mark.parametrize("cluster", ["nowhere", ""])
def test_a_refused_table_leaves_the_last_one_in_force(bench: Bench, cluster: str) -> None:
    """A table that Envoy refuses is an error; files and traffic are unchanged, and the next table works."""
    bench.apply({"r0": 1}, version=2)
    routes = bench.files.routes
    before = routes.read_bytes()
    with pytest.raises(ActuationError, match="refused"):
        bench.driver.exchange([_bad_routes(routes, cluster)])
    assert routes.read_bytes() == before
    assert answers(bench, 3) == {"r0": 3}
    assert bench.apply({"r1": 1}, version=3) > 0.0
    assert answers(bench, 3) == {"r1": 3}


def test_a_silent_gateway_is_an_error_and_the_table_is_put_back(own: Bench) -> None:
    """Without an acknowledgement in time the files hold the last table again."""
    hasty = _hasty_driver(own, 0.3)
    before = own.files.endpoints("slice-prose").read_bytes()
    with pytest.raises(ActuationError, match="did not acknowledge"):
        hasty.exchange([replace(_endpoints(own), statistics="cluster.of_nobody")])
    assert own.files.endpoints("slice-prose").read_bytes() == before
    hasty.close()


def test_a_second_driver_is_refused(bench: Bench) -> None:
    """Two controllers on one gateway would undo each other's tables."""
    with pytest.raises(LiveError, match="another controller drives"):
        GatewayDriver(bench.driver.settings, bench.files, bench.driver.admin)


def test_a_reset_without_replicas_is_refused(bench: Bench) -> None:
    """A reset names a replica, and requires hops."""
    with pytest.raises(LiveError, match="no such replica"):
        bench.driver.reset("r9", bench.upstreams)


def test_envoy_refuses_a_broken_bootstrap_before_it_serves(tmp_path: Path) -> None:
    """The check reports Envoy's own message."""
    files = GatewayFiles(folder=tmp_path)
    files.bootstrap.write_text('{"admin": {"address": 7}}')
    with pytest.raises(LiveError, match="Envoy refuses it"):
        validate(find_envoy(), files)


def test_a_taken_port_is_named(bench: Bench) -> None:
    """The error for a taken port names the port and its purpose."""
    with pytest.raises(LiveError, match=f"port {bench.driver.settings.listen_port} for the gateway"):
        require_free("127.0.0.1", bench.driver.settings.listen_port, "the gateway")


def test_without_hops_tables_work_and_resets_are_refused(tmp_path: Path) -> None:
    """Hops are optional: without them everything but the reset is the same."""
    with gateway(tmp_path, settings=GatewaySettings(resettable=False)) as plain:
        plain.apply({"r0": 3, "r1": 1}, version=2)
        assert answers(plain, 8) == {"r0": 6, "r1": 2}
        with pytest.raises(LiveError, match="without hops"):
            plain.driver.reset("r0", plain.upstreams)


def _hasty_driver(bench: Bench, timeout_s: float) -> GatewayDriver:
    """The driver again, with a shorter time limit."""
    bench.driver.close()
    admin = EnvoyAdmin(bench.driver.admin.url)
    return GatewayDriver(bench.driver.settings, bench.files, admin, timeout_s)


def _reset(bench: Bench, name: str) -> None:
    bench.driver.reset(name, bench.upstreams)


def _endpoints(bench: Bench) -> WatchedFile:
    path = bench.files.endpoints("slice-prose")
    return versioned_resources(path, "cluster.slice-prose", [], 99)


def _bad_routes(path: Path, cluster: str) -> WatchedFile:
    routes = [{"match": {"prefix": "/"}, "route": {"cluster": cluster}}]
    resource = {
        "@type": "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
        "name": "selvage",
        "validate_clusters": True,
        "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}],
    }
    return versioned_resources(path, "http.gateway.rds.selvage", [resource], 99)


def _stuck_request(bench: Bench) -> list[httpx.Response]:
    """A request that waits at r0, which hangs; its answer appears in the list."""
    bench.apply({"r0": 1}, version=2)
    bench.set_mode("r0", hang=True)
    outcome: list[httpx.Response] = []

    def ask() -> None:
        body, headers = {"max_tokens": 2}, {"x-selvage-slice": "prose"}
        with suppress(httpx.HTTPError):  # the gateway may end first
            outcome.append(
                httpx.post(f"{bench.url}/v1/completions", json=body, headers=headers, timeout=30.0)
            )

    before = bench.count("r0")
    threading.Thread(target=ask, daemon=True).start()
    until(lambda: bench.count("r0") > before)
    return outcome
