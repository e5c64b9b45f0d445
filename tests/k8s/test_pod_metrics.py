"""The component that adds the operator's advice to a pod's own metrics, and the example that reads them."""

from __future__ import annotations

import asyncio
import gzip
import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
import yaml
from kubernetes import client
from prometheus_client import CollectorRegistry, Gauge, make_asgi_app
from prometheus_client.parser import text_string_to_metric_families

from k8s.operator.advice import ADVICE, BROKEN, GUARDED, KEPT, LAST_RESORT, UNKNOWN
from k8s.operator.pods.pod_facts import IN_ROTATION
from tests.k8s.test_manifests import MANIFESTS
from tests.support.cluster.cluster_worlds import SAMPLE, sample

COMPONENT = MANIFESTS / "components" / "pod-metrics"
EXAMPLE = SAMPLE.parent / "pod-metrics"
#: Components of servers that have both; drills come last, as that component says.
ORDER = ("pod-metrics", "drills")


@pytest.fixture(scope="module")
def shipped() -> ModuleType:
    """The module as a server imports it."""
    spec = importlib.util.spec_from_file_location("selvage_pod_metrics", COMPONENT / "selvage_pod_metrics.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def labels(advice: str | None, in_rotation: str | None = "true") -> str:
    """The labels file that the kubelet writes for a pod."""
    found = {"app": "chat", IN_ROTATION: in_rotation, ADVICE: advice, "note": 'a "quoted" one'}
    quoted = {key: str(value).replace('"', '\\"') for key, value in found.items() if value is not None}
    return "\n".join(f'{key}="{value}"' for key, value in quoted.items())


def server() -> Any:
    """An application whose metrics are compressed or OpenMetrics if asked for, like vLLM's."""
    registry = CollectorRegistry()
    Gauge("vllm:num_requests_running", "Running.", registry=registry).set(3)
    return make_asgi_app(registry)


def answered(app: Any, path: str = "/metrics", **headers: str) -> httpx.Response:
    """One request to ``app``, without a network."""

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://pod") as asked:
            return await asked.get(path, headers=headers)

    return asyncio.run(ask())


def levels(answer: httpx.Response, metric: str) -> list[float]:
    """Samples of ``metric`` in an answer that a scraper can read."""
    families = text_string_to_metric_families(answer.text)
    return [one.value for family in families for one in family.samples if one.name == metric]


@pytest.mark.parametrize(
    ("advice", "in_rotation", "level"),
    [
        (KEPT, "true", 0), (GUARDED, "true", 1), (LAST_RESORT, "true", 1), (BROKEN, "true", 2),
        (KEPT, "false", 2), (BROKEN, "false", 2), (None, "false", 2), (LAST_RESORT, "false", 1),
        (UNKNOWN, "true", None), (None, "true", None), (None, None, None), ("other", None, None),
    ],
)  # fmt: skip
def test_a_level_for_each_label(
    shipped: ModuleType, advice: str | None, in_rotation: str | None, level: int | None
) -> None:
    """Every value that the operator writes has a level; unknown values have none."""
    assert shipped.breach_level(labels(advice, in_rotation)) == level


def test_every_advice_is_known_to_the_file(shipped: ModuleType) -> None:
    """The module imports nothing of ours, so its levels must list every advice."""
    assert {KEPT, GUARDED, BROKEN, LAST_RESORT} == set(shipped._LEVELS)


@pytest.mark.parametrize(
    "headers",
    [{}, {"Accept-Encoding": "gzip"}, {"Accept": "application/openmetrics-text; version=1.0.0"}],
    ids=["plain", "gzip", "openmetrics"],
)
def test_the_gauge_follows_the_servers_own_metrics(
    shipped: ModuleType, tmp_path: Path, headers: dict[str, str]
) -> None:
    """A scraper reads the server's metrics and the gauge, whatever format it asked for."""
    file = tmp_path / "labels"
    app = shipped.PodMetrics(server(), file)
    for advice, level in ((BROKEN, 2.0), (KEPT, 0.0)):
        file.write_text(labels(advice), encoding="utf-8")
        answer = answered(app, **headers)
        assert levels(answer, shipped.METRIC) == [level]
        assert levels(answer, "vllm:num_requests_running") == [3.0]


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe", labels(UNKNOWN).encode()])
def test_nothing_is_added_without_known_advice(
    shipped: ModuleType, tmp_path: Path, content: bytes | None
) -> None:
    """Without the file, or without known advice in it, the metrics are the server's, byte for byte."""
    file = tmp_path / "labels"
    if content is not None:
        file.write_bytes(content)
    assert answered(shipped.PodMetrics(server(), file)).content == answered(server()).content


def plain_answer(status: int, body: list[bytes], sized: bool) -> Callable[..., Any]:
    """An application that always gives this answer, in one message per part of ``body``."""

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        length = [(b"content-length", str(sum(map(len, body))).encode())] if sized else []
        await send({"type": "http.response.start", "status": status, "headers": length})
        for i, part in enumerate(body):
            await send({"type": "http.response.body", "body": part, "more_body": i + 1 < len(body)})

    return app


@pytest.mark.parametrize("sized", [True, False])
@pytest.mark.parametrize("body", [[b"a 1\n"], [b"a ", b"1\n"], [b""]])
def test_the_content_length_includes_the_gauge(
    shipped: ModuleType, tmp_path: Path, body: list[bytes], sized: bool
) -> None:
    """The content length includes the gauge, which comes once, at the end."""
    file = tmp_path / "labels"
    file.write_text(labels(BROKEN), encoding="utf-8")
    answer = answered(shipped.PodMetrics(plain_answer(200, body, sized), file))
    assert answer.content == b"".join(body) + shipped.sample(file)
    if sized:
        assert int(answer.headers["content-length"]) == len(answer.content)


@pytest.mark.parametrize(
    ("path", "status"), [("/v1/completions", 200), ("/metricsx", 200), ("/metrics", 500)]
)
def test_other_answers_pass(shipped: ModuleType, tmp_path: Path, path: str, status: int) -> None:
    """Anything but a successful answer at /metrics passes byte for byte, compressed or not."""
    file = tmp_path / "labels"
    file.write_text(labels(BROKEN), encoding="utf-8")
    app = shipped.PodMetrics(plain_answer(status, [gzip.compress(b"text")], sized=True), file)
    assert gzip.decompress(answered(app, path).content) == b"text"


def picker() -> dict[str, Any]:
    """llm-d's configuration in the example."""
    found = yaml.safe_load((EXAMPLE / "llm-d.yaml").read_text(encoding="utf-8"))
    return dict(yaml.safe_load(found["data"]["config.yaml"]))


def test_the_endpoint_picker_reads_the_gauge_that_is_added(shipped: ModuleType) -> None:
    """Extractor and filter use the gauge's name; the filter keeps every level but that of a broken pod."""
    plugins = {one.get("name", one["type"]): one for one in picker()["plugins"]}
    (engine,) = plugins["core-metrics-extractor"]["parameters"]["engineConfigs"]
    assert [one["metricSpec"] for one in engine["customMetrics"]] == [shipped.METRIC]
    filtered = plugins["contract-kept"]["parameters"]
    assert filtered["attribute"] == engine["customMetrics"][0]["attributeKey"]
    assert filtered["algorithm"]["threshold"] == {"operator": "LessThan", "value": shipped._LEVELS[BROKEN]}
    assert filtered["onMissing"] == "Pass"
    (profile,) = picker()["schedulingProfiles"]
    assert {one["pluginRef"] for one in profile["plugins"]} <= set(plugins)


def built() -> list[dict[str, Any]]:
    """The example as kubectl applies it."""
    done = subprocess.run(["kubectl", "kustomize", str(EXAMPLE)], capture_output=True, check=True)
    return [one for one in yaml.safe_load_all(done.stdout) if one]


@pytest.mark.needs("kubectl")
def test_kustomize_mounts_file_and_labels_into_labelled_deployments() -> None:
    """Both servers import from a ConfigMap named by its content and keep their own arguments."""
    found = built()
    (code,) = (one for one in found if one["kind"] == "ConfigMap" and "selvage_pod_metrics.py" in one["data"])
    assert code["immutable"]
    servers = [one for one in found if one["kind"] == "Deployment"]
    plain = {one["metadata"]["name"]: one for one in (sample("fp8")[0], sample("bf16")[0])}
    assert {one["metadata"]["name"] for one in servers} >= set(plain)
    for one in servers:
        if one["metadata"]["name"] not in plain:
            continue
        spec = one["spec"]["template"]["spec"]
        own = plain[one["metadata"]["name"]]["spec"]["template"]["spec"]["containers"][0]["args"]
        assert spec["containers"][0]["args"] == [*own, "--middleware=selvage_pod_metrics.PodMetrics"]
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        assert volumes["selvage-pod-code"]["configMap"]["name"] == code["metadata"]["name"]
        (item,) = volumes["selvage-pod-labels"]["downwardAPI"]["items"]
        assert item == {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}
        assert all(
            mount["readOnly"] for mount in spec["containers"][0]["volumeMounts"] if "pod" in mount["name"]
        )


@pytest.mark.needs("kubectl")
def test_it_works_with_the_component_of_drills(tmp_path: Path) -> None:
    """With both components a server imports from both folders and gets both kinds of arguments."""
    up = Path("../" * len(tmp_path.parts)) / str(EXAMPLE.parent.parent).lstrip("/")
    both = {"resources": ["servers"], "components": [str(up / "manifests/components" / one) for one in ORDER]}
    label = "- {op: add, path: /metadata/labels/selvage.dev~1drills, value: allowed}"
    target = {"kind": "Deployment", "name": "chat-fp8"}
    servers = {
        "resources": [str(".." / up / "examples/pod-metrics/servers")],
        "patches": [{"target": target, "patch": label}],
    }
    (tmp_path / "servers").mkdir()
    (tmp_path / "servers" / "kustomization.yaml").write_text(yaml.safe_dump(servers), encoding="utf-8")
    (tmp_path / "kustomization.yaml").write_text(
        yaml.safe_dump({"namespace": "chat", **both}), encoding="utf-8"
    )
    done = subprocess.run(["kubectl", "kustomize", str(tmp_path)], capture_output=True, check=True)
    (server,) = (
        one
        for one in yaml.safe_load_all(done.stdout)
        if one and one["metadata"]["name"] == "chat-fp8" and one["kind"] == "Deployment"
    )
    (container,) = server["spec"]["template"]["spec"]["containers"]
    (path,) = (one["value"] for one in container["env"] if one["name"] == "PYTHONPATH")
    mounts = {one["mountPath"] for one in container["volumeMounts"]}
    assert set(path.split(":")) <= mounts
    assert "--middleware=selvage_pod_metrics.PodMetrics" in container["args"]
    assert "selvage_inject.inside.middleware.DrillMiddleware" in container["command"]


@pytest.mark.needs("kubectl", "kube_api")
def test_a_real_server_takes_the_example(api: client.ApiClient, namespace: str) -> None:
    """Deployments and ConfigMaps of the example pass the strict validation of a real API server."""
    apps, core = client.AppsV1Api(api), client.CoreV1Api(api)
    for one in built():
        one["metadata"]["namespace"] = namespace
        if one["kind"] == "Deployment":
            apps.create_namespaced_deployment(namespace, one, field_validation="Strict")
        elif one["kind"] == "ConfigMap":
            core.create_namespaced_config_map(namespace, one, field_validation="Strict")


#: vLLM's own application without an engine; prints its answer at /metrics.
_VLLM = """
import asyncio, pathlib, sys
import httpx
from vllm.entrypoints.launchers.app import build_app
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser
import selvage_pod_metrics
selvage_pod_metrics.PodMetrics.__init__.__defaults__ = (pathlib.Path(sys.argv[1]),)
arguments = ["--middleware=selvage_pod_metrics.PodMetrics"]
app = build_app(make_arg_parser(FlexibleArgumentParser()).parse_args(arguments))
async def ask():
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://pod") as asked:
        return await asked.get("/metrics", headers={"Accept-Encoding": "gzip"}, follow_redirects=True)
print(asyncio.run(ask()).text)
"""


@pytest.mark.needs("vllm")
def test_vllms_application_imports_it(shipped: ModuleType, tmp_path: Path) -> None:
    """vLLM's own application imports the module by the component's argument and answers with the gauge."""
    file = tmp_path / "labels"
    file.write_text(labels(BROKEN), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", _VLLM, str(file)],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONPATH": str(COMPONENT)},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert f"{shipped.METRIC} 2" in done.stdout
    assert "python_info" in done.stdout
