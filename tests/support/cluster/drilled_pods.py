"""Pods of a test that take faults: objects on a real API server, with addresses of local servers."""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from kubernetes import client

from faults.client.launch import drill_arguments
from faults.client.wire import DrillError, call
from faults.inside import gate
from k8s.api.drills import ApiDrillCluster
from k8s.operator.drills.admission import DrillPlace
from k8s.operator.drills.driver import DrillParts, Drills
from k8s.operator.drills.fleet import Entrance
from k8s.operator.drills.pods import Steering
from k8s.operator.pods.pod_facts import IN_ROTATION
from k8s.resources.drill_extension import ALLOWED, DRILLS
from k8s.resources.kinds import GROUP, VERSION
from tests.support.cluster.cluster_worlds import SHED, Bench, Object, pod, sample
from tests.support.cluster.granted import RUNNER, rights
from tests.support.cluster.kube_api import free_port
from tests.support.guarded import guarded
from tests.support.servers.drilled_server import ENGINE_ENVIRONMENT, START_S, engine_command
from tests.support.servers.listening import answered_by
from tests.support.waiting import PATIENCE_S

TOKEN = "a-token-of-the-tests-alone"
#: Model name of every server.
MODEL = "made-up"
_KERNELS = {"fp8": 1, "bf16": 2}


@dataclass
class DrillWorld:
    """A namespace with the sample, two pods per kernel, and a gateway in front of them."""

    bench: Bench
    folder: Path
    port: int = field(default_factory=free_port)
    door: int = field(default_factory=free_port)
    servers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    gateway: str = ""
    key: str = ""
    """Key that servers require of requests, "" for none."""
    engines: tuple[str, ...] = ()
    """Pods that are real vLLM servers; the others are stand-ins."""

    @property
    def core(self) -> client.CoreV1Api:
        """Pods and their like."""
        return client.CoreV1Api(self.bench.api)

    @property
    def token_file(self) -> Path:
        """Token shared by servers and runner."""
        return self.folder / "token"

    def drills(self, cluster: ApiDrillCluster | None = None, allowed: str = "", key: str = "") -> Drills:
        """A fresh runner, which takes drills of its own namespace, or of ``allowed`` alone."""
        own = self.bench.namespace
        place = DrillPlace(namespace=own, allowed=frozenset({allowed or own}), shed=SHED)
        found = cluster or ApiDrillCluster(
            rights(self.bench.api, RUNNER), self.bench.namespace, timeout_s=20.0
        )
        steering = Steering(token_file=self.token_file, records=self.folder / "records", port=self.door)
        entrance = Entrance(url=self.gateway, api_key=key)
        return Drills(
            DrillParts(cluster=found, place=place, entrance=entrance, steering=steering, now_s=time.time)
        )

    def apply(self, name: str = "late", **changes: Any) -> Object:
        """Create a drill: one fp8 server is late from 4 s to 9 s; ``changes`` replace parts of its spec."""
        annotations = changes.pop("annotations", {})
        spec = drill_spec() | changes
        body = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": "FaultDrill",
            "metadata": {"name": name, "annotations": annotations},
            "spec": spec,
        }
        made: Object = self.bench.custom.create_namespaced_custom_object(
            GROUP, VERSION, self.bench.namespace, "faultdrills", body, field_validation="Strict"
        )
        return made

    def conditions(self, name: str = "late") -> dict[str, tuple[str, str]]:
        """Type -> status and reason."""
        return self.bench.conditions("FaultDrill", name)

    def told(self, name: str = "late") -> str:
        """Messages of a drill's conditions."""
        status = self.bench.read("FaultDrill", name).get("status") or {}
        return "; ".join(f"{one['type']}: {one['message']}" for one in status.get("conditions") or [])

    def phase(self, name: str = "late") -> str:
        """Phase of a drill."""
        return str((self.bench.read("FaultDrill", name).get("status") or {}).get("phase", ""))

    def note(self, name: str = "late") -> dict[str, str]:
        """The drill's ConfigMap."""
        found = self.core.read_namespaced_config_map(f"selvage-drill-{name}", self.bench.namespace)
        return dict(found.data)

    def in_force(self, pod_name: str) -> list[str]:
        """Faults in force on a pod's server."""
        kernel, _, number = pod_name.removeprefix("chat-").rpartition("-")
        url = f"http://{address(kernel, int(number))}:{self.door}/selvage/drill/status"
        found = call(url, within_s=10.0, headers={gate.TOKEN_HEADER: TOKEN})
        assert found.status == 200, found
        return list(found.content["injected"])

    def until(self, drills: Drills, holds: Any, within_s: float = PATIENCE_S) -> None:
        """Turn each half second until ``holds``."""
        deadline_at_s = time.monotonic() + within_s
        while time.monotonic() < deadline_at_s:
            drills.turn()
            if holds():
                return
            time.sleep(0.5)
        raise AssertionError(f"{drills.problem}; {self.told()}")

    def delete_pod(self, name: str) -> None:
        """Delete the pod at once; its server continues to answer."""
        self.core.delete_namespaced_pod(
            name, self.bench.namespace, grace_period_seconds=0, _preload_content=False
        ).release_conn()

    def make_pod(self, kernel: str, number: int, allowed: bool = True) -> None:
        """A pod that is ready at its address, as a kubelet would report."""
        _, service = sample(kernel)
        labels = dict(service["spec"]["selector"]) | ({DRILLS: ALLOWED} if allowed else {})
        name = f"chat-{kernel}-{number}"
        self.core.create_namespaced_pod(self.bench.namespace, pod(name, labels | {IN_ROTATION: "true"}))
        status = {
            "podIP": address(kernel, number),
            "podIPs": [{"ip": address(kernel, number)}],
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        self.core.patch_namespaced_pod_status(name, self.bench.namespace, {"status": status})

    def endpoints(self, kernel: str, numbers: list[int]) -> None:
        """The EndpointSlice of a kernel."""
        self.bench.endpoints(kernel, [f"chat-{kernel}-{n}" for n in numbers], self.port)
        discovery, name = client.DiscoveryV1Api(self.bench.api), f"chat-{kernel}-a"
        found = discovery.read_namespaced_endpoint_slice(name, self.bench.namespace)
        for one, number in zip(found.endpoints, numbers, strict=True):
            one.addresses = [address(kernel, number)]
        discovery.replace_namespaced_endpoint_slice(name, self.bench.namespace, found)


def drill_spec() -> dict[str, Any]:
    """One fp8 server answers late from 4 s to 9 s, under 20 requests per second."""
    return {
        "description": "One server is late.",
        "pool": "chat-pool",
        "load": {"rate_rps": 20.0, "answer_tokens": 4, "prompt_tokens": 4},
        "faults": [
            {
                "name": "late",
                "kind": "latency",
                "dose": 50.0,
                "target": {"kernel": "fp8", "replica": 0},
                "onset_s": 4.0,
            }
        ],
        "steady_state": [{"name": "answers", "metric": "failure_rate", "threshold": 0.5, "window_s": 5.0}],
        "abort_when": [{"name": "outage", "metric": "failure_rate", "threshold": 0.9, "window_s": 5.0}],
        "expect": {"failed_ratio_at_most": 0.5},
        "undo": {"verify_probes": 3, "readmit_over_s": 2.0},
        "time_to_live_s": 9.0,
        "after_s": 1.0,
    }


def address(kernel: str, number: int) -> str:
    """Address of a pod."""
    return f"127.0.{_KERNELS[kernel]}.{number + 1}"


@contextmanager
def drill_world(
    bench: Bench,
    folder: Path,
    allowed: tuple[str, ...] = ("fp8", "bf16"),
    engines: tuple[str, ...] = (),
    key: str = "",
) -> Iterator[DrillWorld]:
    """A serving world. allowed: kernels with the label on their pods; engines: pods of real servers."""
    world = DrillWorld(bench=bench, folder=folder, engines=engines, key=key)
    world.token_file.write_text(TOKEN)
    _ = [bench.apply(name) for name in ("contract", "pool", "policy", "route")]
    with ExitStack() as stack:
        for kernel in _KERNELS:
            _, service = sample(kernel)
            world.core.create_namespaced_service(bench.namespace, service)
            for number in range(2):
                world.make_pod(kernel, number, kernel in allowed)
                stack.enter_context(served(world, kernel, number))
            world.endpoints(kernel, [0, 1])
        world.gateway = stack.enter_context(gateway(world))
        for kernel in _KERNELS:
            for number in range(2):
                within_s = START_S if f"chat-{kernel}-{number}" in engines else PATIENCE_S
                await_server(f"http://{address(kernel, number)}:{world.door}", within_s)
        yield world


@contextmanager
def served(world: DrillWorld, kernel: str, number: int) -> Iterator[None]:
    """The server of a pod, until the block ends."""
    name = f"chat-{kernel}-{number}"
    folder = world.folder / name
    started = drill_arguments(folder)
    own = {
        gate.TOKEN_FILE: str(world.token_file),
        gate.PORT: str(world.door),
        gate.HOST: address(kernel, number),
        gate.REPLICA: name,
        "MADE_UP_KEY": world.key,
    }
    if name in world.engines:
        command, own = (
            engine_command(address(kernel, number), world.port, MODEL, started),
            own | ENGINE_ENVIRONMENT,
        )
    else:
        program = str(Path(__file__).with_name("drill_server.py"))
        command = [sys.executable, "-P", program, address(kernel, number), str(world.port)]
    environment = {**os.environ, **started.environment, **own}
    with guarded(command, folder / "server.log", environment) as child:
        world.servers[name] = child
        yield


def await_server(url: str, within_s: float = PATIENCE_S) -> None:
    """Wait until the port is open."""
    deadline_at_s = time.monotonic() + within_s
    while time.monotonic() < deadline_at_s:
        try:
            call(url, within_s=2.0)
        except DrillError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError(f"{url} does not answer")


@contextmanager
def gateway(world: DrillWorld) -> Iterator[str]:
    """Distributes requests to the pods in turn; 503 if one does not answer."""
    turns = iter(range(10**9))
    places = [(kernel, number) for kernel in _KERNELS for number in range(2)]

    class Handler(BaseHTTPRequestHandler):
        """Forwards one request."""

        def do_POST(self) -> None:
            """Forward to the next pod."""
            body = self.rfile.read(int(self.headers["content-length"]))
            host = address(*places[next(turns) % len(places)])
            connection = http.client.HTTPConnection(host, world.port, timeout=10.0)
            try:
                told = {"authorization": self.headers.get("authorization", "")}
                connection.request("POST", self.path, body, {"content-type": "application/json"} | told)
                answer = connection.getresponse()
                status, text = answer.status, answer.read()
                replica = answer.headers.get("x-selvage-replica", "")
            except OSError:
                status, text, replica = 503, b"{}", ""
            finally:
                connection.close()
            self.send_response(status)
            self.send_header("content-length", str(len(text)))
            self.send_header("x-selvage-replica", replica)
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with answered_by(Handler) as url:
        yield url
