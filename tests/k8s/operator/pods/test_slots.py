"""The cache of a watch equals a listing, by name and by label; only relevant changes raise its version."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from k8s.operator.pods.slots import OF_SERVICE, PODS, SERVICES, SLICES, Places

LABELS = st.dictionaries(st.sampled_from("abc"), st.sampled_from("xy"), max_size=3)
NAMES = st.sampled_from(["p0", "p1", "p2", "p3"])


def pod(name: str, labels: dict[str, str], **status: Any) -> dict[str, Any]:
    """A pod as the server returns it."""
    return {"metadata": {"name": name, "labels": labels, "resourceVersion": "1"}, "status": status}


@given(st.lists(st.tuples(st.sampled_from(["put", "drop", "renew"]), NAMES, LABELS), max_size=12), LABELS)
def test_pods_by_label_are_those_of_a_scan(
    steps: list[tuple[str, str, dict[str, str]]], asked: dict[str, str]
) -> None:
    """After any sequence of changes and listings, the label index finds the same pods as a scan."""
    places, there = Places(), dict[str, dict[str, str]]()
    for what, name, labels in steps:
        if what == "put":
            there[name] = labels
            places.put(PODS, pod(name, labels))
        elif what == "drop":
            there.pop(name, None)
            places.drop(PODS, name)
        else:
            there = {name: labels}
            places.renew(PODS, [pod(name, labels)])
    wanted = [name for name in sorted(there) if asked.items() <= there[name].items()]
    assert [one["metadata"]["name"] for one in places.pods(asked)] == wanted


def test_a_heartbeat_does_not_raise_the_version() -> None:
    """Fields that discovery does not read leave the version unchanged; others raise it."""
    places = Places()
    places.put(PODS, pod("p0", {"a": "x"}, podIP="10.0.0.1"))
    version = places.version
    places.put(PODS, pod("p0", {"a": "x"}, podIP="10.0.0.1", startTime="now"))
    assert places.version == version
    places.put(PODS, pod("p0", {"a": "x"}, podIP="10.0.0.2"))
    assert places.version > version


def test_services_and_their_slices_are_found() -> None:
    """A Service is found by name and its EndpointSlices by label, until they are removed."""
    places = Places()
    places.put(SERVICES, {"metadata": {"name": "chat"}, "spec": {"selector": {"a": "x"}}})
    places.put(
        SLICES, {"metadata": {"name": "chat-1", "labels": {OF_SERVICE: "chat"}}, "ports": [], "endpoints": []}
    )
    assert (places.service("chat") or {})["spec"]["selector"] == {"a": "x"}
    assert len(places.endpoint_slices("chat")) == 1
    places.renew(SERVICES, [])
    places.renew(SLICES, [])
    assert places.service("chat") is None
    assert not places.endpoint_slices("chat")
