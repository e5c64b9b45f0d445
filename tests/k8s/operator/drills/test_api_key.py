"""Drills on servers that require an API key: the key is sent, and it is in no object, record or log."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes import client

from live.drill.fleet import Front
from live.load import LoadPlan
from tests.support.cluster.cluster_worlds import Bench
from tests.support.cluster.drilled_pods import DrillWorld, drill_world

pytestmark = [
    pytest.mark.needs("kube_api", "vllm", "aiohttp", "own_endpoints"),
    pytest.mark.waits,
    pytest.mark.slow,
]

KEY = "sk-of-the-servers-4711"


@pytest.fixture
def world(api: client.ApiClient, namespace: str, tmp_path: Path) -> Iterator[DrillWorld]:
    """Servers that refuse every request without the key."""
    with drill_world(Bench(api=api, namespace=namespace), tmp_path, key=KEY) as found:
        yield found


def kept(world: DrillWorld) -> str:
    """All text of the namespace's objects and of the runner's records."""
    core, own = client.CoreV1Api(world.bench.api), world.bench.namespace
    plain = world.bench.api.sanitize_for_serialization
    objects = [
        plain(core.list_namespaced_config_map(own)),
        plain(core.list_namespaced_event(own)),
        world.bench.read("FaultDrill", "late"),
        world.bench.route(),
    ]
    records = world.folder / "records"
    texts = [one.read_text(errors="replace") for one in sorted(records.rglob("*")) if one.is_file()]
    return json.dumps(objects) + "".join(texts)


def test_a_drill_on_servers_with_a_key_passes_and_does_not_leak_it(
    world: DrillWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """The load is answered, the fault is verified, and the key is in no object, record or log."""
    caplog.set_level(logging.DEBUG)
    world.apply()
    drills = world.drills(key=KEY)
    world.until(drills, lambda: world.phase() == "Done")
    assert world.conditions()["Passed"] == ("True", "Passed"), world.told()
    report = json.loads(world.note()["outcome.json"])
    assert report["faults"][0]["happened"] is True
    assert KEY not in kept(world)
    assert KEY not in caplog.text


def test_a_drill_without_the_key_injects_nothing_and_names_the_option(world: DrillWorld) -> None:
    """If servers refuse the key, nothing is injected and the condition names the option for the key."""
    world.apply()
    drills = world.drills(key="sk-wrong")
    world.until(drills, lambda: world.phase() == "Done")
    assert world.conditions()["Passed"][0] == "Unknown"
    assert "--api-key-file" in world.told()
    assert "sk-wrong" not in kept(world)
    assert world.in_force("chat-fp8-0") == []


def test_the_key_is_in_no_representation() -> None:
    """The repr of a load plan and of a front does not contain the key."""
    plan = LoadPlan(url="http://gateway", rate_rps=1.0, seconds=1.0, slices=("a",), api_key=KEY)
    assert KEY not in repr(plan) + repr(Front(url="http://gateway", model="m", api_key=KEY))
