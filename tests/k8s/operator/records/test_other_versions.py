"""Operators of two versions in turn: state that cannot be read moves no weights and is reported."""

from __future__ import annotations

import base64
import gzip
import json
import logging
from collections.abc import Callable

import numpy as np
import pytest

pytest.importorskip("kubernetes", reason="install the extra k8s: make setup-test")

from contracts.loading.files import canonical_sha256
from controller.promotion.records import PromotionStage
from controller.state_json import STATE_VERSION
from k8s.operator import kept_policies
from k8s.operator.pods.pod_facts import IN_ROTATION, OUT
from k8s.operator.promotion import driver
from k8s.operator.records.snapshot import read_snapshot
from k8s.routes.rules import route_rules, table_begun
from tests.k8s.routes.test_rules import shape_of
from tests.support.cluster.held_cluster import POLICY, HeldCluster, HeldWorld

HELD = f"{POLICY}-k1-1"
#: A table in force that differs from the slices' home table.
MOVED = np.array([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0]])


@pytest.fixture
def world() -> HeldWorld:
    """An operator has run, one pod is out by its label, and a successor has kept that in its state."""
    found = HeldWorld()
    found.turns(found.operator(), 3)
    found.cluster.label_pod(HELD, IN_ROTATION, OUT)
    found.cluster.lose()
    operator = found.operator()
    found.turns(operator, 2)
    assert found.cluster.out() == [HELD]
    return found


def rewritten(cluster: HeldCluster, change: Callable[[str], str]) -> None:
    """Replace the kept state by ``change`` of it, with a matching hash."""
    packed = base64.b64decode(cluster.config["binaryData"]["state.json.gz"])
    text = change(gzip.decompress(packed).decode())
    cluster.config["binaryData"]["state.json.gz"] = base64.b64encode(gzip.compress(text.encode())).decode()
    cluster.config["data"]["state-sha256"] = canonical_sha256(text)


def of_version(version: int) -> Callable[[HeldCluster], None]:
    """Make the kept state one of another version."""
    own, other = f'"version": {STATE_VERSION}', f'"version": {version}'
    return lambda cluster: rewritten(cluster, lambda text: text.replace(own, other))


def _unknown_array(cluster: HeldCluster) -> None:
    rewritten(cluster, lambda text: text.replace('"state": {', '"state": {"aura": 1, ', 1))


def _other_slots(cluster: HeldCluster) -> None:
    cluster.config["data"]["slots.json"] = json.dumps([["k0", "pod"]])


def _torn(cluster: HeldCluster) -> None:
    cluster.config["binaryData"]["state.json.gz"] = "AAAA"


@pytest.mark.parametrize(
    "change",
    [of_version(STATE_VERSION + 1), of_version(STATE_VERSION - 1), _unknown_array, _other_slots, _torn],
    ids=["newer", "older", "unknown", "slots", "torn"],
)
def test_a_state_of_another_version_moves_nothing_and_is_reported(
    world: HeldWorld, change: Callable[[HeldCluster], None], caplog: pytest.LogCaptureFixture
) -> None:
    """Route and pods out of rotation stay as they are; condition and log say what was lost.

    The next operator of the same version reads the state that this one keeps.
    """
    cluster = world.cluster
    before = cluster.weights()
    change(cluster)
    cluster.written.clear()
    with caplog.at_level(logging.WARNING):
        world.turns(world.operator(), 8)
    assert (cluster.out(), cluster.weights(), cluster.written) == ([HELD], before, [])
    status, reason, message = cluster.condition("ResolvedRefs")
    assert (status, reason) == ("True", "BeganAnew")
    assert "began anew" in message
    assert [one for one in caplog.records if "begins anew" in one.message]
    assert cluster.condition("Ready")[:2] == ("True", "Serving")
    world.turns(world.operator(), 2)
    assert cluster.condition("ResolvedRefs")[1] == "Resolved"
    assert cluster.out() == [HELD]


@pytest.mark.parametrize("failing", [set(), {"read"}], ids=["at once", "later"])
def test_an_operator_without_state_starts_from_the_table_in_force(
    world: HeldWorld, failing: set[str]
) -> None:
    """An operator that cannot read the kept state holds the route's weights, not the home table."""
    cluster = world.cluster
    policy = cluster.resources().policies[POLICY]
    policy["spec"]["freeze"] = {"until": "2100-01-01T00:00:00Z", "reason": "nobody but us moves it"}
    before = world.operator()
    world.turns(before, 1)
    assert before.loops[POLICY].actuator.write(MOVED)
    of_version(STATE_VERSION + 1)(cluster)
    cluster.written.clear()
    cluster.failing = failing
    operator = world.operator()
    world.turns(operator, 2)
    cluster.failing = set()
    world.turns(operator, 8)
    assert cluster.condition("Programmed")[1] == "Frozen"
    assert operator.loops[POLICY].standing.state_problem
    assert (cluster.weights(), cluster.written) == ([[5000, 5000, 0]] * 2, [])


def test_documents_of_another_version_cost_no_state(world: HeldWorld) -> None:
    """An unknown field in the kept documents makes only the documents unreadable: evidence is kept."""
    documents = json.loads(world.cluster.config["data"]["documents.json"])
    documents[1]["spec"]["aura"] = 1
    world.cluster.config["data"]["documents.json"] = json.dumps(documents)
    found = read_snapshot(world.cluster.config)
    assert found.documents is None
    assert "aura" in found.problem
    assert found.state
    assert found.slots
    world.turns(world.operator(), 3)
    assert world.cluster.condition("ResolvedRefs")[1] == "Resolved"


@pytest.mark.parametrize("method", ["read_config", "read", "endpoint_slices"])
def test_no_policy_starts_while_the_server_is_unreadable(world: HeldWorld, method: str) -> None:
    """An API server that fails briefly at the hand-over costs no state, no table and no quarantine."""
    cluster = world.cluster
    if method != "read_config":
        of_version(STATE_VERSION + 1)(cluster)
    before = cluster.weights()
    cluster.written.clear()
    cluster.failing, cluster.places_version = {method}, cluster.places_version + 1
    operator = world.operator()
    world.turns(operator, 3)
    assert operator.loops == {}
    assert cluster.condition("ResolvedRefs")[:2] == ("False", "StateUnread")
    assert cluster.condition("Ready")[:2] == ("False", "NotRunning")
    cluster.failing = set()
    world.turns(operator, 8)
    assert (cluster.out(), cluster.weights(), cluster.written) == ([HELD], before, [])
    assert cluster.condition("Ready")[:2] == ("True", "Serving")
    anew = cluster.condition("ResolvedRefs")[1]
    assert anew == ("Resolved" if method == "read_config" else "BeganAnew")


def test_a_server_that_refuses_the_state_is_not_waited_for(world: HeldWorld) -> None:
    """If reading the state is forbidden, the operator starts without it and says why."""
    world.cluster.refusing = {"read_config"}
    world.turns(world.operator(), 8)
    assert world.cluster.condition("ResolvedRefs")[:2] == ("True", "BeganAnew")
    assert "403" in world.cluster.condition("ResolvedRefs")[2]
    assert world.cluster.out() == [HELD]


def test_documents_that_neither_version_reads_leave_the_route(
    world: HeldWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """After a rollback, neither the stored documents nor the kept ones can be read.

    No policy is in force and nothing moves; the condition names both, and the log has one line.
    """
    cluster = world.cluster
    documents = json.loads(cluster.config["data"]["documents.json"])
    documents[1]["spec"]["aura"] = 1
    cluster.config["data"]["documents.json"] = json.dumps(documents)
    cluster.resources().pools[POLICY]["spec"]["aura"] = 1
    before = cluster.weights()
    cluster.written.clear()
    operator = world.operator()
    with caplog.at_level(logging.WARNING):
        world.turns(operator, 12)
    assert operator.loops == {}
    assert (cluster.out(), cluster.weights(), cluster.written) == ([HELD], before, [])
    status, _, message = cluster.condition("ResolvedRefs")
    assert status == "False"
    assert "the kept documents cannot be read" in message
    assert len([one for one in caplog.records if one.name == kept_policies.__name__]) == 1


def test_a_table_of_another_shape_starts_from_the_route() -> None:
    """A new kernel or slice takes no weight from others, and a kernel that was left stays without weight."""
    two, three = shape_of(2, 2), shape_of(3, 3)
    rules = route_rules(np.array([[0.0, 1.0, 0.0], [0.25, 0.5, 0.25]]), two)
    home = np.array([[1.0, 0.0, 0.0, 0.0]] * 3)
    found = table_begun(rules, three, home)
    assert found.tolist() == [[0.0, 1.0, 0.0, 0.0], [0.25, 0.5, 0.0, 0.25], [1.0, 0.0, 0.0, 0.0]]
    back = table_begun(route_rules(found, three), two, home[:2, :3])
    assert np.array_equal(back, [[0.0, 1.0, 0.0], [0.25, 0.5, 0.25]])
    gone = np.array([[0.0, 0.0, 1.0, 0.0], [0.5, 0.0, 0.5, 0.0], [0.0, 0.0, 1.0, 0.0]])
    assert table_begun(route_rules(gone, three), two, home[:2, :3]).tolist() == [[1, 0, 0], [1, 0, 0]]


@pytest.mark.parametrize(("stage", "stays"), [("RolledBack", True), ("Shadow", False), ("Paused", False)])
def test_a_rolled_back_candidate_stays_out_if_its_status_is_unreadable(
    stage: str, stays: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A status that cannot be read restarts at Offline, except for a candidate that was rolled back."""
    found = {"metadata": {"name": "next"}, "status": {"stage": stage, "subject": "s", "aura": 1}}
    state = driver._stored_state(found, "s")
    assert state.stage is (PromotionStage.ROLLED_BACK if stays else PromotionStage.OFFLINE)
    assert "cannot be read" in caplog.text
    assert driver._stored_state(found, "another").stage is PromotionStage.OFFLINE
    caplog.clear()
    assert driver._stored_state({"metadata": {"name": "next"}}, "s").stage is PromotionStage.OFFLINE
    assert caplog.text == ""
