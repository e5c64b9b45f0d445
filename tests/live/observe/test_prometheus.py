"""Servers scraped by a Prometheus: the same record as a direct scrape, ages by the samples' own times."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import fields

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.compiled.contract import FleetLayout
from contracts.errors import DocumentError, Problem
from contracts.telemetry import EngineCounters, FleetTelemetry, ReplicaState
from live.control.source import NO_ROWS, nothing_probed
from live.observe.metrics import EngineReading
from live.observe.prometheus import PodQuery, readings_of
from live.observe.prometheus_api import PrometheusApi, PrometheusError
from live.observe.record import TelemetryRecorder
from live.observe.scraper import LayoutReader
from live.ports import LiveReplica
from scripts.studies.operator.answers import answer
from tests.support.servers.prometheus_server import PrometheusServer, prometheus_server, target

FLEET = FleetLayout(
    kernels=("fp8", "bf16"),
    slices=("prose",),
    replicas=("fp8-0", "fp8-1", "bf16-0"),
    replica_kernel=np.array([0, 0, 1]),
    probe_metrics=(),
    known_good=1,
)
QUERY = PodQuery(namespace="chat", window_s=31.0)
TOKEN = "only-for-this-test"


@pytest.fixture
def server() -> Iterator[PrometheusServer]:
    """A Prometheus that has scraped no target, at 10,000 s."""
    with prometheus_server() as found:
        found.now_s = 10_000.0
        yield found


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    """A client like the operator's."""
    with httpx.Client() as found:
        yield found


def read(server: PrometheusServer, client: httpx.Client, *pods: str) -> dict[str, EngineReading]:
    """Readings of ``pods`` now."""
    return readings_of(PrometheusApi(server.url, client).query(QUERY.text(pods)), "pod")


def records(every: list[dict[str, EngineReading]]) -> list[FleetTelemetry]:
    """The records of a fleet's readings, tick by tick."""
    recorder = TelemetryRecorder(FLEET, {})
    replicas = [
        LiveReplica(name=name, kernel=FLEET.kernels[k], url="", state=ReplicaState.READY)
        for name, k in zip(FLEET.replicas, FLEET.replica_kernel, strict=True)
    ]
    return [
        recorder.record(10_000.0 + tick, replicas, readings, NO_ROWS, nothing_probed(FLEET))
        for tick, readings in enumerate(every)
    ]


def assert_same(one: FleetTelemetry, other: FleetTelemetry) -> None:
    """Every array, bit for bit; NaN equals NaN."""
    for entry in fields(FleetTelemetry):
        left, right = getattr(one, entry.name), getattr(other, entry.name)
        if isinstance(left, np.ndarray):
            assert np.array_equal(left, right, equal_nan=left.dtype.kind == "f"), entry.name
    for entry in fields(EngineCounters):
        left, right = getattr(one.engine, entry.name), getattr(other.engine, entry.name)
        assert np.array_equal(left, right, equal_nan=True), entry.name


def test_one_recording_is_one_record_by_both_ways(server: PrometheusServer, client: httpx.Client) -> None:
    """A server's answers, scraped here or by a Prometheus, become the same telemetry record, bit for bit."""
    reader, scraped, asked = LayoutReader(), [], []
    for tick in range(4):
        server.now_s = 10_000.0 + tick
        texts = {name: answer(100.0 * (r + 1) + tick * (r + 1)) for r, name in enumerate(FLEET.replicas)}
        scraped.append({name: reader.read(name, text, server.now_s) for name, text in texts.items()})
        for name, text in texts.items():
            server.scraped(text, server.now_s, target(name))
        asked.append(read(server, client, *FLEET.replicas))
    both = list(zip(records(scraped), records(asked), strict=True))
    for one, other in both:
        assert_same(one, other)
    assert np.nansum(both[-1][1].engine.iterations) > 0.0
    assert both[-1][1].latency_le.sum() > 0


def test_a_sample_is_as_old_as_its_scrape(server: PrometheusServer, client: httpx.Client) -> None:
    """The instant of the scrape is that of the sample, not of the query; beyond the window there is none."""
    server.scraped("vllm:num_requests_running 1\n", 9_970.0, target("a"))
    server.scraped("vllm:num_requests_running 2\n", 9_985.0, target("a"))
    server.scraped("vllm:num_requests_running 3\n", 9_960.0, target("b"))
    found = read(server, client, "a", "b")
    assert {pod: (one.read_at_s, one.gauges) for pod, one in found.items()} == {
        "a": (9_985.0, {"running": 2.0})
    }


def test_a_name_that_the_newest_scrape_lacks_is_unknown(
    server: PrometheusServer, client: httpx.Client
) -> None:
    """Values of the scrape before do not count; nor does a value that is not a number."""
    server.scraped("vllm:num_requests_running 1\nvllm:num_requests_waiting 4\n", 9_980.0, target("a"))
    server.scraped("vllm:num_requests_running 2\nvllm:kv_cache_usage_perc NaN\n", 9_995.0, target("a"))
    assert read(server, client, "a")["a"].gauges == {"running": 2.0}


def test_engines_are_added_up_and_targets_are_not(server: PrometheusServer, client: httpx.Client) -> None:
    """Engines of a server add up; two jobs that scrape one pod, or another container's process, do not."""
    engines = "".join(f'vllm:num_requests_running{{engine="{n}"}} {n + 1}\n' for n in range(3))
    server.scraped(f"{engines}process_start_time_seconds 50\n", 9_990.0, target("a"))
    server.scraped(f"{engines}process_start_time_seconds 50\n", 9_995.0, target("a", job="twice"))
    server.scraped("process_start_time_seconds 70\n", 9_999.0, target("a", job="sidecar"))
    server.scraped("process_start_time_seconds 70\n", 9_999.0, target("b", job="sidecar"))
    found = read(server, client, "a", "b")
    assert set(found) == {"a"}
    one = found["a"]
    assert (one.gauges, one.started_at_s, one.read_at_s) == ({"running": 6.0}, 50.0, 9_995.0)


def test_pods_of_others_are_not_asked_for(server: PrometheusServer, client: httpx.Client) -> None:
    """A name is queried literally, in its namespace alone: a dot is no wildcard."""
    for labels in (target("a.b"), target("axb"), target("a.b", namespace="other", job="far")):
        server.scraped("vllm:num_requests_running 1\n", 9_999.0, labels)
    assert set(read(server, client, "a.b", "axb")) == {"a.b", "axb"}
    assert set(read(server, client, "a.b")) == {"a.b"}
    assert len(server.queries) == 2


#: Errors as in its documentation, by reason.
ANSWERS = {
    "bad query": (400, b'{"status":"error","errorType":"bad_data","error":"parse error"}', "QueryRefused"),
    "not executed": (422, b'{"status":"error","errorType":"execution","error":"too many"}', "QueryRefused"),
    "timeout": (503, b'{"status":"error","errorType":"timeout","error":"timed out"}', "QueryFailed"),
    "in a success": (200, b'{"status":"error","errorType":"internal","error":"no"}', "QueryFailed"),
    "no token": (401, b"Unauthorized\n", "PrometheusRefused"),
    "no right": (403, b'{"error":"Forbidden"}', "PrometheusRefused"),
    "redirect": (302, b"", "QueryFailed"),
    "no json": (200, b"<html>hello</html>", "UnreadableAnswer"),
    "cut short": (200, b'{"status":"success","data":{"resultTy', "UnreadableAnswer"),
    "no data": (200, b'{"status":"success"}', "UnreadableAnswer"),
    "vector": (200, b'{"status":"success","data":{"resultType":"vector","result":[]}}', "UnreadableAnswer"),
    "warning": (
        200,
        b'{"status":"success","warnings":["no store"],"data":{"resultType":"matrix","result":[]}}',
        "PartialAnswer",
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_what_is_no_whole_answer_is_an_error_by_its_reason(
    server: PrometheusServer, client: httpx.Client, name: str
) -> None:
    """Errors, refusals, warnings and torn answers give no reading, each with its own reason."""
    status, body, reason = ANSWERS[name]
    server.scripted = status, body
    with pytest.raises(PrometheusError) as caught:
        read(server, client, "a")
    assert caught.value.reason == reason
    assert len(server.queries) == 1


def test_an_information_is_no_warning(server: PrometheusServer, client: httpx.Client) -> None:
    """Annotations of level info leave the answer whole."""
    body = {
        "status": "success",
        "infos": ["may be no counter"],
        "data": {"resultType": "matrix", "result": []},
    }
    server.scripted = 200, json.dumps(body).encode()
    assert read(server, client, "a") == {}


def test_a_server_that_is_down_or_never_ends_is_an_error(
    server: PrometheusServer, client: httpx.Client
) -> None:
    """A closed port and an endless answer are errors."""
    with pytest.raises(PrometheusError) as down:
        PrometheusApi("http://127.0.0.1:1", client).query(QUERY.text(["a"]))
    assert down.value.reason == "PrometheusUnreachable"
    with pytest.raises(PrometheusError) as endless:
        PrometheusApi(f"{server.url}/drip", client).query(QUERY.text(["a"]), within_s=0.2)
    assert endless.value.reason == "PartialAnswer"


def test_the_token_is_read_at_every_query_and_sent_to_no_other_server(
    server: PrometheusServer, client: httpx.Client
) -> None:
    """A renewed token is used at once; a token that a server echoes is not in the error."""
    tokens = iter(["old", TOKEN, TOKEN])
    api = PrometheusApi(server.url, client, lambda: next(tokens))
    server.token = TOKEN
    with pytest.raises(PrometheusError, match="HTTP 401 with this token"):
        api.query(QUERY.text(["a"]))
    assert api.query(QUERY.text(["a"]))["result"] == []
    server.scripted = 422, json.dumps({"status": "error", "error": f"Bearer {TOKEN} is odd"}).encode()
    with pytest.raises(PrometheusError) as caught:
        api.query(QUERY.text(["a"]))
    assert TOKEN not in str(caught.value)
    assert "is odd" in str(caught.value)


def test_an_unreadable_token_sends_no_query(server: PrometheusServer, client: httpx.Client) -> None:
    """Without a readable token there is no query, and the reason says so."""

    def unreadable() -> str:
        raise DocumentError([Problem("token", 0, "", "one line", "more", "correct it")])

    with pytest.raises(PrometheusError) as caught:
        PrometheusApi(server.url, client, unreadable).query(QUERY.text(["a"]))
    assert (caught.value.reason, server.queries) == ("TokenUnreadable", [])


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5) | st.sampled_from(["matrix", "NaN", "1"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["resultType", "result", "metric", "values", "__name__", "pod", "le"]),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)
SERIES = st.fixed_dictionaries(
    {
        "metric": st.fixed_dictionaries(
            {
                "__name__": st.sampled_from(
                    ["vllm:num_requests_running", "vllm:time_to_first_token_seconds_bucket"]
                ),
                "pod": st.just("a"),
            },
            optional={"le": st.text(max_size=3)},
        ),
        "values": st.lists(st.tuples(st.floats(), st.sampled_from(["1", "NaN", "+Inf", "x", ""])), max_size=2)
        | JSON,
    }
)


MATRIX = st.fixed_dictionaries({"resultType": st.just("matrix"), "result": st.lists(SERIES, max_size=3)})


@given(JSON | MATRIX)
def test_any_data_is_read_or_an_error(data: Mapping[str, object]) -> None:
    """Any answer gives readings of finite age, or the one expected error."""
    with suppress(PrometheusError):
        found = readings_of(data, "pod")
        assert all(np.isfinite(one.read_at_s) for one in found.values())
