"""The refusing backend: the shipped Envoy file in a real Envoy, and the Service in front of it."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
import yaml

from tests.k8s.test_manifests import named
from tests.support.cluster.refusing import FILE, refusing

pytestmark = pytest.mark.waits


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of an Envoy that runs the shipped file."""
    (container,) = named("Deployment", "selvage-refuse")["spec"]["template"]["spec"]["containers"]
    with refusing(tmp_path_factory.mktemp("refuse"), container["args"]) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.mark.needs("envoy")
@pytest.mark.parametrize("path", ["/", "/v1/completions", "/v1/chat/completions?x=1"])
def test_every_request_is_refused_with_a_retry_time(refused: str, path: str) -> None:
    """The shipped file in a real Envoy answers every request with 429, Retry-After and an error in JSON."""
    answer = httpx.post(f"{refused}{path}", json={"prompt": "hello"}, timeout=10.0)
    assert answer.status_code == httpx.codes.TOO_MANY_REQUESTS
    assert int(answer.headers["retry-after"]) > 0
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["error"]["code"] == httpx.codes.TOO_MANY_REQUESTS


def test_the_service_leads_to_the_port_of_the_file() -> None:
    """The Service to which routes shed targets the port at which the shipped file listens."""
    service = named("Service", "selvage-refuse")["spec"]
    pod = named("Deployment", "selvage-refuse")["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    (listener,) = yaml.safe_load(FILE.read_text(encoding="utf-8"))["static_resources"]["listeners"]
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert service["selector"].items() <= pod["metadata"]["labels"].items()
    assert ports[service["ports"][0]["targetPort"]] == listener["address"]["socket_address"]["port_value"]
