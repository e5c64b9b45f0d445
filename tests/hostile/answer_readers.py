"""Readers of other processes' output: answers of servers and gateways, bodies of requests, logs."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path

import httpx

from faults.inside.control import MALFORMED as MALFORMED_ORDER
from faults.inside.document import fault_of
from faults.inside.gate import CallRefusedError
from live.gateway.admin import EnvoyAdmin
from live.gateway.prometheus import ClusterNames, read_clusters
from live.gateway.settings import GatewayFiles
from live.gateway.statistics import GatewayLogs
from live.kld.inside.orders import (
    COLUMNS,
    CheckedFiles,
    ModelLimits,
    OrderRefusedError,
    object_of,
    reduce_orders,
    row_orders,
)
from live.kld.server import KldServer
from live.measure.backends.openai_backend import prompt_rows
from live.measure.endpoint import Endpoint
from live.measure.steps.streamed_answers import stream_at_once
from live.observe.metrics import parse_reading
from live.probe.answers import Line, Question, ask
from tests.hostile import mutations
from tests.hostile.readers import NotedError, Reader, refused_if, written
from tests.support.servers.prometheus_text import metrics_text

URL = "http://replica"
NAMES = ClusterNames(
    pattern=re.compile(r"rule/(?P<slice>\d+)(/backend/(?P<kernel>\d+))?"),
    slices={"0": "numbers"},
    kernels={"0": "fp8", "1": "bf16"},
)
CLUSTERS = """# TYPE envoy_cluster_upstream_rq_total counter
envoy_cluster_upstream_rq_total{envoy_cluster_name="rule/0/backend/0"} 9
# TYPE envoy_cluster_upstream_rq_xx counter
envoy_cluster_upstream_rq_xx{envoy_response_code_class="2",envoy_cluster_name="rule/0/backend/0"} 8
# TYPE envoy_cluster_upstream_rq_time histogram
envoy_cluster_upstream_rq_time_bucket{envoy_cluster_name="rule/0/backend/0",le="5"} 3
"""
SERVER = metrics_text(
    {"iterations": 5.0, "generation_tokens": 90.0, "inter_token_s": 1.5, "inter_tokens": 80.0},
    {"running": 2.0, "waiting": 0.0, "kv_used_ratio": 0.25},
    {"ttft_ms": ((0.1, 1.0, float("inf")), (1.0, 4.0, 5.0))},
)
LOG_ROW = {
    "at": "1700000000.5",
    "route": "serve:code",
    "cluster": "slice-code",
    "replica": "a-0",
    "code": 200,
    "flags": "-",
    "attempts": 2,
    "first_ms": 12,
    "ms": 40,
}
HOST = {
    "hostname": "a-0",
    "weight": 7,
    "stats": [{"name": "rq_success", "value": "5"}, {"name": "rq_error"}, {"name": "rq_active", "value": 2}],
    "health_status": {"failed_outlier_check": True},
}
HOSTS = {"cluster_statuses": [{"name": "slice-code", "host_statuses": [HOST]}]}
STATISTICS = {
    "stats": [
        {"name": "cluster.a.version_text", "value": "3-ab"},
        {"name": "cluster.a.update_rejected", "value": 1},
    ]
}
EVENT = {
    "id": "n",
    "choices": [
        {
            "text": "a",
            "prompt_token_ids": [1, 2],
            "finish_reason": "stop",
            "logprobs": {
                "tokens": ["token_id:7"],
                "token_logprobs": [-0.1],
                "top_logprobs": [{"token_id:7": -0.1, "token_id:8": -2.0}],
            },
        }
    ],
    "usage": {"completion_tokens": 1},
}
STREAM = f"data: {json.dumps(EVENT)}\n\ndata: {json.dumps(EVENT)}\n\ndata: [DONE]\n\n"
ONE_TOKEN = f"data: {json.dumps(EVENT)}\n\ndata: [DONE]\n\n"
PROMPT_ROWS = {"choices": [{"prompt_logprobs": [None, {"7": {"logprob": -0.5}, "8": {"logprob": -1}}]}]}
OFFER = {
    "protocol": 1,
    "columns": list(COLUMNS),
    "unfit": "",
    "vocabulary": 30,
    "tokens": 64,
    "folder": "/nowhere",
    "most_prompts": 8,
    "most_positions": 512,
}
ORDER = {"prompts": [[1, 2, 3], [4, 5]], "type": "f2"}
FAULT = {
    "name": "late",
    "kind": "logit_noise",
    "dose": 20.0,
    "trigger": {
        "slice": "code",
        "min_batch_size": 2,
        "prompt_residue": {"block_tokens": 16, "lowest": 1, "highest": 3},
    },
    "live": {"seed": 3},
}


def answering(read: Callable[[httpx.MockTransport], object]) -> Callable[[Path], object]:
    """``read`` over a connection that answers everything with the file's content."""

    def of_file(path: Path) -> object:
        content = path.read_bytes()
        return read(httpx.MockTransport(lambda _: httpx.Response(200, content=content)))

    return of_file


def client(transport: httpx.MockTransport) -> httpx.Client:
    """A client on that connection."""
    return httpx.Client(base_url=URL, transport=transport)


def greedy_answer(transport: httpx.MockTransport) -> None:
    """A greedy answer up to its stop reason."""
    with client(transport) as one:
        found = ask(Line(one, URL, "m"), Question(token_ids=(1, 2), max_tokens=2), "n", 5.0)
    refused_if(found.broken, "broken")


def prefill(transport: httpx.MockTransport) -> None:
    """The rows of a prompt."""
    with client(transport) as one:
        prompt_rows(Line(one, URL, "m").post({}, 5.0))


def streamed(transport: httpx.MockTransport) -> None:
    """A timed completion."""
    with client(transport) as one:
        stream_at_once(one, "m", [[1, 2]], 1)


def hosts(transport: httpx.MockTransport) -> None:
    """Envoy's counters per replica."""
    refused_if(not EnvoyAdmin(URL, transport).hosts(("code",)))


def subscriptions(transport: httpx.MockTransport) -> None:
    """Envoy's table in force."""
    refused_if(not EnvoyAdmin(URL, transport).subscriptions(("cluster.a",))["cluster.a"].version)


def offer(transport: httpx.MockTransport) -> None:
    """The offer of a server's plug-in."""
    with client(transport) as one:
        found, why = KldServer(Endpoint(url=URL, model="m"), one).offer()
    refused_if(found is None, why)


def gateway_logs(path: Path) -> None:
    """Both logs of a gateway; invalid rows are counted."""
    folder = path.parent / "gateway"
    folder.mkdir(exist_ok=True)
    files = GatewayFiles(folder=folder)
    for log in (files.requests_log, files.attempts_log):
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_bytes(path.read_bytes())
    silent = EnvoyAdmin(URL, httpx.MockTransport(lambda _: httpx.Response(503)))
    sample = GatewayLogs(files, silent, ("code",)).read()
    refused_if(sample.unreadable > 0 or not sample.requests)


def told(kinds: tuple[type[Exception], ...], read: Callable[[Path], object]) -> Callable[[Path], object]:
    """``read`` of a file, with its own errors converted to ours: it runs inside a server."""

    def of_file(path: Path) -> object:
        try:
            return read(path)
        except kinds as error:
            raise NotedError(str(error)) from None

    return of_file


def kld_order(path: Path) -> None:
    """Both orders of a body, whatever file the second names."""
    body, limits = object_of(path.read_bytes()), ModelLimits(64, 30)
    row_orders(body, limits)
    reduce_orders(body, limits, CheckedFiles(path.parent.resolve()))


def kld_orders(folder: Path) -> list[Path]:
    """Two prompts against a reference of two numbers."""
    rows = folder / "rows.f32"
    rows.write_bytes(bytes(8))
    sha256 = hashlib.sha256(bytes(8)).hexdigest()
    reference = {"path": str(rows), "sha256": sha256, "vocabulary": 30, "first_rows": [0, 2]}
    (folder / "order.json").write_text(json.dumps({**ORDER, "reference": reference}))
    return [folder / "order.json"]


def drill_order(path: Path) -> object:
    """The fault of a body, as the control endpoint reads it."""
    return fault_of(json.loads(path.read_bytes()))


#: Errors that the control endpoint answers with 400.
_REFUSED_DRILL = (CallRefusedError, *MALFORMED_ORDER)
ANSWERS: dict[str, Reader] = {
    "metrics of gateways": Reader(
        read=lambda path: read_clusters(path.read_bytes().decode(errors="replace"), NAMES),
        originals=written("clusters.txt", CLUSTERS),
        kinds=(*mutations.TEXT, mutations.exposition, mutations.exposition),
    ),
    "metrics of servers": Reader(
        read=lambda path: parse_reading(path.read_bytes().decode(errors="replace"), 1.0),
        originals=written("metrics.txt", SERVER),
        kinds=(*mutations.TEXT, mutations.exposition, mutations.exposition),
    ),
    "logs of gateways": Reader(
        read=gateway_logs,
        originals=written("rows.jsonl", f"{json.dumps(LOG_ROW)}\n{json.dumps(LOG_ROW)}\n"),
        kinds=mutations.JSON_LINES,
    ),
    "hosts of gateways": Reader(
        read=answering(hosts), originals=written("hosts.json", json.dumps(HOSTS)), kinds=mutations.JSON
    ),
    "subscriptions of gateways": Reader(
        read=answering(subscriptions),
        originals=written("stats.json", json.dumps(STATISTICS)),
        kinds=mutations.JSON,
    ),
    "greedy answers": Reader(
        read=answering(greedy_answer), originals=written("stream", STREAM), kinds=mutations.EVENTS
    ),
    "timed answers": Reader(
        read=answering(streamed), originals=written("stream", ONE_TOKEN), kinds=mutations.EVENTS
    ),
    "prefill answers": Reader(
        read=answering(prefill), originals=written("rows.json", json.dumps(PROMPT_ROWS)), kinds=mutations.JSON
    ),
    "offers of servers": Reader(
        read=answering(offer), originals=written("offer.json", json.dumps(OFFER)), kinds=mutations.JSON
    ),
    "orders of comparisons": Reader(
        read=told((OrderRefusedError,), kld_order),
        originals=kld_orders,
        kinds=mutations.JSON,
    ),
    "orders of drills": Reader(
        read=told(_REFUSED_DRILL, drill_order),
        originals=written("fault.json", json.dumps(FAULT)),
        kinds=mutations.JSON,
    ),
}
