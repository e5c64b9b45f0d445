"""The full path of a request on a cluster: kubectl, API server, operator, drill runner, Envoy, real servers.

Operator and drill runner are the processes that the manifests start, the servers real vLLM servers of the
shipped model, enabled for drills. Only kubelets and a cluster's own controllers are simulated by the test.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from kubernetes import client

from faults.client.launch import drill_arguments
from faults.client.wire import DrillError, call
from faults.inside import gate
from k8s.resources.drill_extension import ALLOWED, DRILLS
from live.fleet.launchers import ServerOrder
from live.load import LoadPlan, LoadRecord, LoadTap, run_load
from tests.k8s.test_manifests import named
from tests.support.cluster.cluster_worlds import Bench, Object, pod
from tests.support.cluster.e5_clusters import repeated
from tests.support.cluster.kube_api import free_port, kubeconfig
from tests.support.cluster.kubectl import Kubectl
from tests.support.cluster.path_cluster import Gateway, keep_endpoints, write_slice
from tests.support.cluster.path_documents import REPLICAS, service
from tests.support.cluster.refusing import refusing
from tests.support.guarded import guarded
from tests.support.paths import ROOT
from tests.support.servers.drilled_server import START_S, engine_arguments
from tests.support.servers.engine_fleet import engines

TOKEN = "a-token-of-the-tests-alone"
#: Model name of every server.
MODEL = "shipped"
#: Time limit of every wait, s; an idle machine takes a tenth of it.
PATIENCE_S = 300.0
_DTYPES = {"fp16": "float16", "fp32": "float32"}
_REFUSE = "selvage-refuse"


@dataclass(frozen=True, slots=True, kw_only=True)
class Engines:
    """Real servers, one per place of every kernel, at separate addresses. door: port of drills."""

    folder: Path
    port: int
    door: int

    @property
    def token_file(self) -> Path:
        """Token shared by servers and drill runner."""
        return self.folder / "token"


def address(kernel: str, number: int) -> str:
    """Address of a server."""
    return f"127.0.{3 + list(REPLICAS).index(kernel)}.{number + 1}"


def pod_names(kernel: str) -> list[str]:
    """Names of a kernel's pods."""
    return [f"chat-{kernel}-{number}" for number in range(REPLICAS[kernel])]


@contextmanager
def real_engines(folder: Path) -> Iterator[Engines]:
    """The servers of ``REPLICAS``, until the block ends; they begin to start."""
    found = Engines(folder=folder, port=free_port(), door=free_port())
    found.token_file.write_text(TOKEN)
    orders = [_order(found, kernel, n) for kernel, count in REPLICAS.items() for n in range(count)]
    with engines(orders):
        yield found


def _order(found: Engines, kernel: str, number: int) -> ServerOrder:
    name, host = pod_names(kernel)[number], address(kernel, number)
    started = drill_arguments(found.folder / name)
    own = {
        gate.TOKEN_FILE: str(found.token_file),
        gate.PORT: str(found.door),
        gate.HOST: host,
        gate.REPLICA: name,
    }
    words = engine_arguments(host, found.port, MODEL, _DTYPES[kernel])
    return ServerOrder(
        arguments=(*words, *started.arguments),
        environment=started.environment | own,
        log=found.folder / f"{name}.log",
    )


def await_engines(found: Engines) -> None:
    """Wait until every server answers."""
    until_at_s = time.monotonic() + START_S
    for kernel, count in REPLICAS.items():
        for number in range(count):
            _await(f"http://{address(kernel, number)}:{found.port}/health", until_at_s, found.folder)


def _await(url: str, until_at_s: float, folder: Path) -> None:
    while time.monotonic() < until_at_s:
        try:
            if call(url, within_s=5.0).status == 200:
                return
        except DrillError:
            time.sleep(0.2)
    logs = "\n".join(f"{one}:\n{one.read_text(errors='replace')[-1500:]}" for one in folder.glob("*.log"))
    pytest.fail(f"{url} does not answer after {START_S:.0f} s\n{logs}")


@dataclass
class DataPath:
    """One namespace with every part of a cluster. Use ``applied`` and wait with ``until``."""

    bench: Bench
    folder: Path
    engines: Engines
    gateway: Gateway
    tap: LoadTap = field(default_factory=LoadTap)

    @property
    def kubectl(self) -> Kubectl:
        """Run kubectl against the API server."""
        return Kubectl(kubeconfig=kubeconfig(self.bench.api.configuration, self.folder), folder=ROOT)

    def apply(self, *documents: Object) -> None:
        """``kubectl apply`` of ``documents`` into the namespace, strictly validated."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(documents)})
        words = ("apply", "--server-side", "--force-conflicts", "--validate=strict")
        done = self.kubectl.run(*words, f"--namespace={self.bench.namespace}", "-f", "-", stdin=text)
        assert done.returncode == 0, done.stderr

    def until(self, holds: Callable[[], object], what: str, within_s: float = PATIENCE_S) -> float:
        """Wait for ``holds``; returns the time on the monotonic clock."""
        until_at_s = time.monotonic() + within_s
        while not holds():
            assert time.monotonic() < until_at_s, f"{what} did not happen\n{self.told()}"
            time.sleep(0.2)
        return time.monotonic()

    def told(self) -> str:
        """Status and logs, for the report of a failure."""
        logs = [self.folder / f"{name}.log" for name in ("operator", "drills")]
        ends = [one.read_text(errors="replace")[-3000:] for one in logs if one.exists()]
        try:
            said = f"{self.bench.read('RoutePolicy', 'chat').get('status')}\n{self.bench.labels()}"
        except client.ApiException as error:
            said = str(error)
        return "\n".join([said, str(self.gateway.history[-1:]), *ends])

    def process(self, stack: ExitStack, name: str, *words: str) -> None:
        """``selvage kubernetes name`` beside the test, until ``stack`` ends."""
        command = [
            sys.executable,
            "-m",
            "scripts.cli.main",
            "kubernetes",
            name,
            "--namespace",
            self.bench.namespace,
            *words,
        ]
        environment = os.environ | {"KUBECONFIG": str(self.kubectl.kubeconfig), "PYTHONPATH": str(ROOT)}
        log = self.folder / f"{name}.log"
        stack.enter_context(guarded(command, log, environment, ask_first_s=PATIENCE_S))

    def operator(self, stack: ExitStack) -> None:
        """The operator, which probes, reads the gateway's metrics, and writes a decision log."""
        self.process(
            stack, "operator", "--metrics-port", "0", "--health-port", "0", "--probe-tokens", "320",
            "--probe-limit", "60", "--references", str(self.folder / "references"),
            "--decision-log", str(self.folder / "decisions"), "--gateway-metrics", self.gateway.metrics,
        )  # fmt: skip

    def drills(self, stack: ExitStack) -> None:
        """The drill runner of the namespace."""
        self.process(
            stack, "drills", "--gateway", self.gateway.url, "--allow-namespace", self.bench.namespace,
            "--token-file", str(self.engines.token_file), "--records", str(self.folder / "records"),
            "--drill-port", str(self.engines.door), "--health-port", "0",
        )  # fmt: skip

    def make_pods(self) -> None:
        """Services, and pods that are ready once the servers are, as kubelets report; fp16 for drills."""
        core = client.CoreV1Api(self.bench.api)
        for kernel in REPLICAS:
            made = service(kernel)
            made["spec"]["ports"][0]["targetPort"] = self.engines.port
            core.create_namespaced_service(self.bench.namespace, made)
            labels = dict(made["spec"]["selector"]) | ({DRILLS: ALLOWED} if kernel == "fp16" else {})
            for number, name in enumerate(pod_names(kernel)):
                core.create_namespaced_pod(self.bench.namespace, pod(name, labels))
                ip = address(kernel, number)
                ready = [{"type": "Ready", "status": "True"}]
                status = {"podIP": ip, "podIPs": [{"ip": ip}], "conditions": ready}
                core.patch_namespaced_pod_status(name, self.bench.namespace, {"status": status})

    def refuse(self, stack: ExitStack) -> None:
        """The refusing backend, behind its Service."""
        place = self.folder / "refuse"
        place.mkdir()
        (container,) = named("Deployment", _REFUSE)["spec"]["template"]["spec"]["containers"]
        port = stack.enter_context(refusing(place, container["args"]))
        core = client.CoreV1Api(self.bench.api)
        ports = [{"name": "http", "port": 8080}]
        core.create_namespaced_service(
            self.bench.namespace, {"metadata": {"name": _REFUSE}, "spec": {"ports": ports}}
        )
        write_slice(self.bench, _REFUSE, port, [{"addresses": ["127.0.0.1"], "conditions": {"ready": True}}])

    def governed(self, stack: ExitStack, *documents: Object) -> None:
        """Apply ``documents``, run the operator until it has written the route, then gateway and runner."""
        self.apply(*documents)
        self.operator(stack)
        await_engines(self.engines)
        self.until(lambda: self.bench.conditions().get("Programmed", ("",))[0] == "True", "Programmed")
        stack.enter_context(self.gateway.running())
        self.until(lambda: self.gateway.history, "a table in force")
        self.drills(stack)

    def answered(self, slice_name: str, since_at_s: float = 0.0) -> list[LoadRecord]:
        """Ended requests of the test's own load on a slice that began since then."""
        return [
            one
            for one in list(self.tap.records)
            if one.slice == slice_name and one.started_at_s >= since_at_s
        ]


@contextmanager
def data_path(bench: Bench, folder: Path, engines: Engines) -> Iterator[DataPath]:
    """A namespace with pods, their endpoints and the refusing backend; without gateway, operator and load."""
    found = DataPath(bench=bench, folder=folder, engines=engines, gateway=Gateway(bench=bench, folder=folder))
    with ExitStack() as stack:
        found.make_pods()
        found.refuse(stack)
        keep_endpoints(bench)
        stack.enter_context(repeated(lambda: keep_endpoints(bench), 0.3))
        yield found


@contextmanager
def loaded(
    path: DataPath, rate_rps: float, tap: LoadTap | None = None, answer_tokens: int = 4
) -> Iterator[None]:
    """An open loop on both slices until the block ends, which waits for every answer."""
    used = path.tap if tap is None else tap
    plan = LoadPlan(
        url=path.gateway.url,
        rate_rps=rate_rps,
        seconds=1e5,
        slices=("prose", "numbers"),
        shares=(0.8, 0.2),
        model=MODEL,
        prompt_tokens=16,
        answer_tokens=answer_tokens,
        timeout_s=PATIENCE_S,
    )
    thread = threading.Thread(target=run_load, args=(plan,), kwargs={"tap": used}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        used.stop.set()
        thread.join(PATIENCE_S)
