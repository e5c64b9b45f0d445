"""Which kernel each server belongs to while an in-place upgrade is announced: by build, then by label."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from contracts.documents.pool import BackendRef
from contracts.telemetry import ReplicaState
from k8s.operator import objects
from k8s.operator.pods.endpoints import FoundEndpoints
from k8s.operator.pods.pod_facts import IN, IN_ROTATION, OUT, UPGRADED
from k8s.operator.pods.replicas import KernelBackend, PodDiscovery
from k8s.operator.pods.slices import BackendEndpoint
from k8s.operator.pods.upgrades import Announced, assign_kernels, label_problem
from k8s.operator.telemetry.pool_source import FingerprintDiscovery
from k8s.operator.telemetry.probing import ClusterProber

UPGRADE = Announced(kernel="fp8", candidate="next", fingerprint="new")


def server(pod: str, *, label: str, listed: bool, fingerprint: str = "") -> BackendEndpoint:
    """One pod as a backend lists it."""
    return BackendEndpoint(
        key=pod,
        pod=pod,
        address="10.0.0.1",
        port=8000,
        state=ReplicaState.READY,
        in_rotation=listed,
        fingerprint=fingerprint,
        label=label,
    )


def behind(value: str, *servers: BackendEndpoint) -> FoundEndpoints:
    """A backend whose selector asks for ``value`` of the label."""
    selector = {"app": "chat", IN_ROTATION: value}
    found = tuple(replace(one, label_in=value) for one in servers)
    return FoundEndpoints(endpoints=found, port=8000, selector=selector)


def whose(found: dict[str, FoundEndpoints], stated: dict[str, str] | None = None) -> dict[str, set[str]]:
    """Kernel -> its pods, after assignment."""
    servers = assign_kernels(found, [UPGRADE], stated or {})
    return {kernel: {one.pod for one in listed} for kernel, listed in servers.items()}


def test_an_announced_build_is_the_candidates_and_leaves_the_kernel() -> None:
    """A pod in the kernel's rotation that states the announced build is assigned to the candidate."""
    new = server("b", label=IN, listed=True, fingerprint="new")
    found = {
        "fp8": behind(IN, server("a", label=IN, listed=True, fingerprint="old"), new),
        "next": behind(UPGRADED),
    }
    servers = assign_kernels(found, [UPGRADE], {})
    assert [one.pod for one in servers["fp8"]] == ["a"]
    (moved,) = servers["next"]
    assert (moved.pod, moved.in_rotation, moved.label_in, moved.leaves) == ("b", False, UPGRADED, "fp8")


def test_what_answers_state_counts_where_no_annotation_does() -> None:
    """A build stated in answers moves a pod; an unknown or a different build does not."""
    pods = [server(name, label=IN, listed=True) for name in ("a", "b", "c")]
    found = {"fp8": behind(IN, *pods), "next": behind(UPGRADED)}
    assert whose(found, {"b": "new", "c": "strange"}) == {"fp8": {"a", "c"}, "next": {"b"}}


def test_a_labelled_pod_of_unknown_build_is_what_its_label_says() -> None:
    """After a change of leader builds are unknown; the pod's label decides."""
    pods = [server("b", label=UPGRADED, listed=True)]
    found = {"fp8": behind(IN, *pods), "next": behind(UPGRADED, *pods)}
    assert whose(found) == {"fp8": set(), "next": {"b"}}


def test_another_build_in_the_candidates_rotation_stays_the_candidates() -> None:
    """A pod that only the candidate's backend selects stays with the candidate, whatever build it states."""
    found = {
        "fp8": behind(IN),
        "next": behind(UPGRADED, server("b", label=UPGRADED, listed=True, fingerprint="x")),
    }
    assert whose(found) == {"fp8": set(), "next": {"b"}}


def test_selectors_that_do_not_tell_the_kernels_apart_are_reported() -> None:
    """The candidate's selector must equal the kernel's but for the value of the label."""
    fine = {"fp8": behind(IN), "next": behind(UPGRADED)}
    assert label_problem(fine, UPGRADE) == ""
    other = replace(behind(UPGRADED), selector={"app": "other", IN_ROTATION: UPGRADED})
    for found in ({"fp8": behind(IN), "next": behind(IN)}, {"fp8": behind(IN), "next": other}):
        assert "another selvage.dev/in-rotation" in label_problem(found, UPGRADE)


@dataclass
class Cluster:
    """Two Services that share the pods of one Deployment, selected by label."""

    labels: dict[str, str]
    places_version: int | None = 1

    def service(self, name: str) -> dict[str, Any]:
        """The Service that selects its value of the label."""
        value = UPGRADED if name == "chat-next" else IN
        return {"metadata": {"name": name}, "spec": {"selector": {"app": "chat", IN_ROTATION: value}}}

    def endpoint_slices(self, service: str) -> list[dict[str, Any]]:
        """One slice with the pods that the Service selects."""
        value = self.service(service)["spec"]["selector"][IN_ROTATION]
        names = [name for name, label in self.labels.items() if label == value]
        listed = [{"addresses": ["10.0.0.1"], "targetRef": {"name": name}} for name in names]
        return [{"ports": [{"port": 8000}], "endpoints": listed}]

    def pods(self, _: object) -> list[dict[str, Any]]:
        """All pods."""
        return [
            {"metadata": {"name": name, "labels": {IN_ROTATION: label}}}
            for name, label in self.labels.items()
        ]


def discovery(cluster: Cluster) -> PodDiscovery:
    """Discovery of both kernels, with the upgrade announced."""
    backends = [
        KernelBackend(kernel=name, backend=BackendRef(name=f"chat-{name}", port=8000), replicas=2)
        for name in ("fp8", "next")
    ]
    return PodDiscovery(cast(objects.Cluster, cluster), backends, [UPGRADE])


def places(found: PodDiscovery) -> dict[str, str]:
    """Refresh; pod -> slot."""
    found.refresh()
    return {one.pod: one.slot for one in found.pods}


def test_a_build_that_an_answer_stated_is_remembered_by_pod() -> None:
    """A stated build moves the pod; it stays there although its new slot has not answered yet."""
    cluster = Cluster(labels={"a": IN, "b": IN})
    found = discovery(cluster)
    assert places(found) == {"a": "fp8-0", "b": "fp8-1"}
    found.note({"fp8-1": "new"})
    assert places(found) == {"a": "fp8-0", "b": "next-0"}
    found.note({})
    cluster.labels["b"], cluster.places_version = UPGRADED, 2
    assert places(found) == {"a": "fp8-0", "b": "next-0"}
    assert [(one.in_rotation, one.leaves) for one in found.pods if one.pod == "b"] == [(True, "")]
    found.note({"next-0": "strange"})
    assert places(found) == {"a": "fp8-0", "b": "next-0"}  # it now belongs to the candidate


def test_an_announced_build_is_not_reported_as_wrong() -> None:
    """In the tick in which an announced build is first stated, it reads as unknown; any other is reported."""
    found = discovery(Cluster(labels={"a": IN, "b": IN}))
    found.refresh()
    prober = SimpleNamespace(stated={"fp8-0": "new", "fp8-1": "strange"})
    told = {
        one.name: one.fingerprint
        for one in FingerprintDiscovery(found, cast(ClusterProber, prober)).replicas()
    }
    assert told == {"fp8-0": "", "fp8-1": "strange"}


SERVERS = st.lists(
    st.builds(
        server,
        pod=st.sampled_from(["a", "b", "c"]),
        label=st.sampled_from([IN, UPGRADED, OUT, ""]),
        listed=st.booleans(),
        fingerprint=st.sampled_from(["", "old", "new"]),
    ),
    unique_by=lambda one: one.key,
)


@given(SERVERS, SERVERS, SERVERS, st.booleans())
def test_every_server_is_one_kernels(
    old: list[BackendEndpoint], new: list[BackendEndpoint], others: list[BackendEndpoint], announced: bool
) -> None:
    """Every server is assigned to exactly one kernel; an announced build never stays with the old kernel."""
    found = {"fp8": behind(IN, *old), "next": behind(UPGRADED, *new), "bf16": behind(IN, *others)}
    servers = assign_kernels(found, [UPGRADE] if announced else [], {})
    listed = [one.key for each in servers.values() for one in each]
    assert sorted(listed) == sorted({one.key for one in (*old, *new, *others)})
    if announced:
        assert all(one.fingerprint != "new" for one in servers["fp8"])
