"""A RoutePolicy that E5 borrows is restored, whatever happens in between."""

from __future__ import annotations

import copy
import json
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k8s.operator.objects import ClusterError
from scripts.e5_cluster.borrowed import UNDO, BorrowedPolicy
from scripts.e5_cluster.plan import spec_of
from scripts.e5_cluster.ports import ExperimentCluster, ExperimentError
from tests.support.cluster.e5_objects import PolicyServer

POLICIES = ("fixed-bare", "fixed", "hysteresis", "sequential")


def borrowed(server: PolicyServer) -> BorrowedPolicy:
    """The policy in a fresh process."""
    return BorrowedPolicy(cast(ExperimentCluster, server), "chat")


def held(server: PolicyServer) -> dict[str, Any]:
    """The present policy."""
    assert server.held is not None
    return server.held


@given(
    steps=st.lists(st.sampled_from((*POLICIES, "killed")), max_size=8),
    conflicts=st.integers(0, 5),
    lost=st.integers(0, 1),
)
def test_whatever_was_put_it_comes_back_as_it_was(steps: list[str], conflicts: int, lost: int) -> None:
    """Through kills, conflicts and lost answers; while the spec is changed the annotation keeps it."""
    server = PolicyServer(conflicts=conflicts, lost=lost)
    before = copy.deepcopy(held(server))
    policy = borrowed(server)
    for step in steps:
        if step == "killed":
            policy = borrowed(server)
            continue
        try:
            policy.put(spec_of(before["spec"], step))
        except ClusterError:
            policy = borrowed(server)  # the run ended with an error
        if held(server)["spec"] != before["spec"]:
            assert json.loads(held(server)["metadata"]["annotations"][UNDO]) == before["spec"]
    server.lost = 0
    borrowed(server).give_back()
    assert held(server)["spec"] == before["spec"]
    assert UNDO not in held(server)["metadata"].get("annotations", {})


def test_a_policy_that_was_not_borrowed_is_left_alone() -> None:
    """Nothing is written if there is nothing to restore."""
    server = PolicyServer()
    assert not borrowed(server).give_back()
    assert server.specs == []


def test_another_client_s_change_is_never_overwritten() -> None:
    """Neither by the next configuration nor at the end; the original spec stays in the annotation."""
    server = PolicyServer()
    policy, before = borrowed(server), copy.deepcopy(held(server)["spec"])
    policy.put(spec_of(before, "fixed"))
    server.edit(lambda found: found["spec"].update(suspend=True))
    with pytest.raises(ExperimentError, match="another client changed"):
        policy.put(spec_of(before, "sequential"))
    with pytest.raises(ExperimentError, match=UNDO):
        policy.give_back()
    with pytest.raises(ExperimentError, match="another client changed"):
        policy.require_ours()
    assert held(server)["spec"]["suspend"] is True
    assert json.loads(held(server)["metadata"]["annotations"][UNDO]) == before


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "null", "[" * 100_000])
def test_an_annotation_that_is_none_is_refused(text: str) -> None:
    """An unreadable annotation is reported, and nothing is written."""
    server = PolicyServer()
    server.edit(lambda found: found["metadata"].update(annotations={UNDO: text}))
    written = len(server.specs)
    with pytest.raises(ExperimentError, match="apply the policy from your own files"):
        borrowed(server).give_back()
    assert len(server.specs) == written


def test_a_policy_that_is_gone_is_said() -> None:
    """There is no policy to restore."""
    server = PolicyServer()
    server.held = None
    with pytest.raises(ExperimentError, match="no RoutePolicy chat"):
        borrowed(server).put({})


def test_a_policy_that_always_changes_is_given_up() -> None:
    """A client that writes all the time ends the run."""
    with pytest.raises(ExperimentError, match="keeps changing"):
        borrowed(PolicyServer(conflicts=1000)).put({"policy": "fixed"})
