"""The backend that refuses: the shipped Envoy file in a real Envoy, and the Service that leads to it."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml

from live.gateway.process import find_envoy, free_ports
from tests.k8s.test_manifests import MANIFESTS, named

FILE = MANIFESTS / "refuse" / "envoy.yaml"
#: Of the shipped file: where it listens, and its administration.
PORT, ADMIN = 8080, 9901


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of an Envoy that runs the shipped file, on ports that are free here."""
    folder = tmp_path_factory.mktemp("refuse")
    text, (port, admin) = FILE.read_text(encoding="utf-8"), free_ports(2)
    for shipped, own in ((PORT, port), (ADMIN, admin)):
        assert text.count(f"port_value: {shipped}}}") == 1
        text = text.replace(f"port_value: {shipped}}}", f"port_value: {own}}}")
    (folder / "envoy.yaml").write_text(text, encoding="utf-8")
    (container,) = named("Deployment", "selvage-refuse")["spec"]["template"]["spec"]["containers"]
    arguments = [one.replace("/etc/refuse", str(folder)) for one in container["args"]]
    with (folder / "envoy.log").open("wb") as log:
        process = subprocess.Popen(
            [str(find_envoy()), *arguments, "--disable-hot-restart"], stdout=log, stderr=log
        )
        try:
            await_up(f"http://127.0.0.1:{port}", process, folder / "envoy.log")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()
            process.wait()


def await_up(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Until it answers; AssertionError with the log's end where it never does."""
    until_at_s = time.monotonic() + 40.0
    while time.monotonic() < until_at_s and process.poll() is None:
        try:
            httpx.get(url, timeout=2.0)
        except httpx.HTTPError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError(log.read_text()[-3000:])


@pytest.mark.needs("envoy")
@pytest.mark.timeout(120)
@pytest.mark.parametrize("path", ["/", "/v1/completions", "/v1/chat/completions?x=1"])
def test_every_request_is_told_to_come_back_later(refusing: str, path: str) -> None:
    """The shipped file in a real Envoy answers every request with 429, Retry-After and an error in JSON."""
    answer = httpx.post(f"{refusing}{path}", json={"prompt": "hello"}, timeout=10.0)
    assert answer.status_code == httpx.codes.TOO_MANY_REQUESTS
    assert int(answer.headers["retry-after"]) > 0
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["error"]["code"] == httpx.codes.TOO_MANY_REQUESTS


def test_the_service_leads_to_the_port_of_the_file() -> None:
    """The Service that routes shed to leads to the port at which the shipped file listens."""
    service = named("Service", "selvage-refuse")["spec"]
    pod = named("Deployment", "selvage-refuse")["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    (listener,) = yaml.safe_load(FILE.read_text(encoding="utf-8"))["static_resources"]["listeners"]
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert service["selector"].items() <= pod["metadata"]["labels"].items()
    assert ports[service["ports"][0]["targetPort"]] == listener["address"]["socket_address"]["port_value"]
