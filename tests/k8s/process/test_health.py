"""A compiling replica is live and not ready, does not ask for the Lease, and leads once it is done."""

from __future__ import annotations

import socket
import threading

import httpx
import pytest

pytest.importorskip("kubernetes", reason="install the extra k8s: make setup-test")

from kubernetes import client

from k8s.operator.telemetry.probing import Access
from k8s.process.health import COLD_START_S, ReplicaHealth, any_address, health_served
from k8s.process.serve import Loop, OperatorSettings, SharedConnections
from k8s.routes.rules import Backend
from scripts.cli.kubernetes_drills import DrillsRequest
from tests.k8s.test_manifests import MANIFESTS, named, objects
from tests.support.waiting import until

SETTINGS = OperatorSettings(namespace="chat", identity="one", shed=Backend(name="refuse", port=8080))


def test_probes_are_answered_while_something_is_compiled() -> None:
    """The process is live, not ready, and says why; other paths answer 404."""
    health, goes_on = ReplicaHealth(), threading.Event()
    thread = threading.Thread(target=health.compile, args=(lambda: True, (goes_on.wait,)))
    with health_served(health, 0) as port, httpx.Client(base_url=f"http://127.0.0.1:{port}") as asking:
        assert (asking.get("/readyz").status_code, asking.get("/healthz").status_code) == (503, 200)
        thread.start()
        until(lambda: "compil" in asking.get("/readyz").text)
        assert asking.get("/healthz").status_code == 200
        goes_on.set()
        thread.join()
        assert (asking.get("/readyz").status_code, asking.get("/readyz").text) == (200, "ok")
        assert asking.get("/metrics").status_code == 404


def test_probes_are_answered_on_either_family() -> None:
    """Probes work over IPv6 where the host has it, and over IPv4."""
    both = socket.has_dualstack_ipv6()
    assert any_address() == ("::" if both else "0.0.0.0")
    with health_served(ReplicaHealth(), 0) as port:
        for host in ("127.0.0.1", *(["[::1]"] if both else [])):
            assert httpx.get(f"http://{host}:{port}/healthz").status_code == 200


def test_compiling_stops_when_the_process_is_to_end() -> None:
    """A stop is checked between two parts; the replica is not ready then."""
    health, called = ReplicaHealth(), list[int]()
    answers = iter([True, False])
    health.compile(lambda: next(answers), (lambda: called.append(1), lambda: called.append(2)))
    assert called == [1]
    assert health.waits_for


def test_no_lease_is_asked_for_before_all_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling within a turn would lose the Lease, so a replica compiles first."""
    order, stop, health = list[str](), threading.Event(), ReplicaHealth()
    monkeypatch.setattr(health, "compile", lambda goes_on: order.append(f"compiled {goes_on()}"))

    def step() -> bool:
        order.append("asked")
        stop.set()
        return False

    with SharedConnections(Access()) as asking, client.ApiClient() as api:
        loop = Loop(SETTINGS, api, asking, stop, None, health)
        monkeypatch.setattr(loop.leadership, "step", step)
        loop.start()
        loop._thread.join(50.0)
    assert order == ["compiled True", "asked"]
    assert not loop.failed


def test_a_compiler_error_ends_the_process_like_a_failed_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An error of the compiler is logged and ends the process, so that the pod restarts."""

    def broken(_: object) -> None:
        raise RuntimeError("no compiler")

    stop, health = threading.Event(), ReplicaHealth()
    monkeypatch.setattr(health, "compile", broken)
    with SharedConnections(Access()) as asking, client.ApiClient() as api:
        loop = Loop(SETTINGS, api, asking, stop, None, health)
        loop.start()
        loop._thread.join(50.0)
    assert loop.failed
    assert stop.is_set()


def test_the_manifests_wait_for_a_cold_start() -> None:
    """Probes do not kill a compiling pod, a rollout keeps the leader meanwhile and is given up much later."""
    spec = named("Deployment", "selvage-operator")["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    startup, live, ready = (container[f"{one}Probe"] for one in ("startup", "liveness", "readiness"))
    assert startup["httpGet"]["path"] == live["httpGet"]["path"] == "/healthz"
    assert ready["httpGet"]["path"] == "/readyz"
    assert startup["periodSeconds"] * startup["failureThreshold"] >= COLD_START_S
    assert spec["progressDeadlineSeconds"] >= 10 * COLD_START_S
    assert spec["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}


def test_the_drill_runner_is_probed_as_the_operator_is() -> None:
    """The drill runner has the operator's probes, on the port of its options, open in its NetworkPolicy."""
    made = objects(MANIFESTS / "components" / "drills")
    found = {(one["kind"], one["metadata"]["name"]): one for one in made}
    (container,) = found["Deployment", "selvage-drills"]["spec"]["template"]["spec"]["containers"]
    (operator,) = named("Deployment", "selvage-operator")["spec"]["template"]["spec"]["containers"]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe] == operator[probe]
    (port,) = container["ports"]
    assert port == {"name": "health", "containerPort": DrillsRequest(gateway="").health_port}
    policy = found["NetworkPolicy", "selvage-drills"]["spec"]
    assert policy["ingress"] == [{"ports": [{"port": "health", "protocol": "TCP"}]}]
