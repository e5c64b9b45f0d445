"""Status and Events: a server that refuses the one does not make the other loop."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k8s.operator.objects import Cluster, ClusterError, EventNote, Manifest
from k8s.operator.status.conditions import condition
from k8s.operator.status.publisher import EVENT_EACH_S, EVENTS_AT_ONCE, Publication, Publisher

POLICY: Manifest = {
    "apiVersion": "selvage.dev/v1alpha1",
    "kind": "RoutePolicy",
    "metadata": {"name": "chat", "uid": "u", "generation": 1},
}


class Refusing:
    """The part of ``Cluster`` that a publisher writes to."""

    def __init__(self) -> None:
        self.statuses: list[Manifest] = []
        self.noted: list[EventNote] = []
        self.tried = 0
        self.events_refused = True
        self.statuses_refused = self.refuses_for_good = False
        self.tried_statuses = 0

    def write_status(self, found: Manifest, status: Manifest) -> None:
        """Keep it, unless statuses are refused."""
        self.tried_statuses += 1
        if self.statuses_refused:
            told = "status: the API server said 422 Unprocessable Entity"
            raise ClusterError(told, refused=self.refuses_for_good)
        self.statuses.append(status)

    def note(self, event: EventNote) -> None:
        """Refuse, as a Role without Events does."""
        self.tried += 1
        if self.events_refused:
            raise ClusterError("Events: the API server said 403 Forbidden")
        self.noted.append(event)


def said(ready: bool, **body: Any) -> Publication:
    """Two conditions of a policy."""
    conditions = condition("Ready", ready, "Word", "why"), condition("Programmed", ready, "Word", "why")
    return Publication(about=POLICY, conditions=conditions, body=body, key=body)


def test_refused_events_make_no_loop_of_statuses(caplog: pytest.LogCaptureFixture) -> None:
    """Where Events are refused a status is written once and counts, and its Events are not retried."""
    cluster = Refusing()
    publisher = Publisher(cast(Cluster, cluster))
    assert publisher.say(said(True), 0.0)
    for second in range(1, 30):
        assert not publisher.say(said(True), float(second))
    assert (len(cluster.statuses), publisher.writes, cluster.tried) == (1, 1, 1)
    assert "403" in publisher.events_problem
    assert publisher.problem == ""
    assert [one.levelname for one in caplog.records if "403" in one.message] == ["WARNING"]


def test_events_come_again_with_the_next_transition() -> None:
    """What changes after the server takes Events again is told, and what changed before is not."""
    cluster = Refusing()
    publisher = Publisher(cast(Cluster, cluster))
    publisher.say(said(True), 0.0)
    cluster.events_refused = False
    publisher.say(said(False), 2.0)
    assert [one.reason for one in cluster.noted] == ["NotReadyWord", "NotProgrammedWord"]
    assert publisher.events_problem == ""


def test_a_refused_status_is_tried_again_and_tells_nothing() -> None:
    """A status that was not written is due at the next turn, and nothing is told of it before."""
    cluster = Refusing()
    publisher = Publisher(cast(Cluster, cluster))
    cluster.statuses_refused, cluster.events_refused = True, False
    assert not publisher.say(said(True), 0.0)
    assert "422" in publisher.problem
    assert cluster.noted == []
    cluster.statuses_refused = False
    assert publisher.say(said(True), 1.0)
    assert len(cluster.noted) == 2
    assert publisher.problem == ""


def test_a_status_that_is_refused_for_what_it_says_makes_no_loop() -> None:
    """What a definition of another version refuses is tried now and then, what has changed at once, and the
    statuses of others do not hide it.
    """
    cluster = Refusing()
    publisher = Publisher(cast(Cluster, cluster))
    cluster.statuses_refused, cluster.refuses_for_good = True, True
    for second in range(10):
        publisher.say(said(True), float(second))
    assert cluster.tried_statuses == 1
    publisher.say(said(False), 10.5)
    assert cluster.tried_statuses == 2
    cluster.statuses_refused = False
    other = {**POLICY, "metadata": {"name": "other", "uid": "o", "generation": 1}}
    assert publisher.say(replace(said(True), about=other), 11.5)
    assert "422" in publisher.problem
    assert publisher.say(said(False), 20.6)
    assert publisher.problem == ""


def test_a_condition_that_comes_and_goes_fills_no_cluster_with_events(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each change is in the status and in the log; Events are as many as client-go would let through, and
    another object's are its own.
    """
    cluster = Refusing()
    cluster.events_refused = False
    publisher = Publisher(cast(Cluster, cluster))
    with caplog.at_level("INFO"):
        for second in range(400):
            assert publisher.say(said(bool(second % 2)), float(second))
    assert len(cluster.statuses) == 400
    assert len([one for one in caplog.records if "Ready is" in one.message]) == 400
    assert EVENTS_AT_ONCE <= len(cluster.noted) <= EVENTS_AT_ONCE + 2 + 400.0 / EVENT_EACH_S
    assert "have no Event" in cluster.noted[-1].message
    before = len(cluster.noted)
    other = {**POLICY, "metadata": {"name": "other", "uid": "o", "generation": 1}}
    publisher.say(replace(said(True), about=other), 400.0)
    assert len(cluster.noted) == before + 2
    publisher.say(said(False), 401.0 + 2.0 * EVENT_EACH_S)
    assert len(cluster.noted) > before + 2


#: Status and reason of Ready and of Degraded.
looks = st.tuples(*[st.tuples(st.sampled_from([True, False, None]), st.sampled_from(["One", "Two"]))] * 2)


@given(st.lists(looks, min_size=1, max_size=10))
def test_every_transition_is_one_event_and_every_condition_has_reason_and_generation(
    seen: list[tuple[tuple[bool | None, str], ...]],
) -> None:
    """Each change of status or reason is one Event, and each condition states reason and generation."""
    cluster = Refusing()
    cluster.events_refused = False
    publisher = Publisher(cast(Cluster, cluster))
    changed: list[str] = []
    before: dict[str, tuple[bool | None, str]] = {}
    for at, look in enumerate(seen):
        now = dict(zip(("Ready", "Degraded"), look, strict=True))
        changed += [kind for kind, found in now.items() if before.get(kind) != found]
        before = now
        about = {**POLICY, "metadata": {**POLICY["metadata"], "generation": at + 1}}
        conditions = tuple(condition(kind, *found, "why") for kind, found in now.items())
        publisher.say(Publication(about=about, conditions=conditions, body={}), 2.0 * at)
        stated = {one["type"]: one for one in cluster.statuses[-1]["conditions"]}
        assert cluster.statuses[-1]["observedGeneration"] == at + 1
        assert {one["observedGeneration"] for one in stated.values()} == {at + 1}
        assert {kind: one["reason"] for kind, one in stated.items()} == {k: v[1] for k, v in now.items()}
    assert [one.message.split(" is ")[0] for one in cluster.noted] == changed
