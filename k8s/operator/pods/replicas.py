"""Pods as the replicas of a layout: discovery behind each kernel's backend, one slot of a kernel per pod.

A layout has a fixed number of replicas, while pods come and go. A pod keeps its slot while it exists; a free
slot goes to the next new pod.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from contracts.documents.pool import BackendRef
from contracts.telemetry import ReplicaState
from k8s.operator.objects import Cluster
from k8s.operator.pods import endpoints, pod_facts
from k8s.operator.pods.endpoints import FoundEndpoints
from k8s.operator.pods.slices import BackendEndpoint
from k8s.operator.pods.upgrades import Announced, Servers, assign_kernels, label_problem
from live.ports import LiveReplica


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelBackend:
    """The backend of one kernel and its number of replicas."""

    kernel: str
    backend: BackendRef
    replicas: int
    """Number of slots."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodReplica:
    """A pod in its slot."""

    slot: str
    pod: str
    """Name, "" for an endpoint that is not a pod."""
    in_rotation: bool
    replica: LiveReplica
    movable: bool = True
    """Whether changing its label takes it out of rotation."""
    label_in: str = pod_facts.IN
    """Label value that puts it into rotation."""
    leaves: str = ""
    """Kernel that still has this pod in rotation although the pod belongs to another kernel now."""
    taken_out: bool = False
    """Whether its label says that it was taken out of rotation."""


#: Kernel -> slot of each of its servers, by ``BackendEndpoint.key``.
Slots = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendProblem:
    """What is wrong with a kernel's backend. reason: one word for a condition."""

    reason: str
    message: str


class PodDiscovery:
    """``live.ports.Discovery`` of one pool, as of the last ``refresh``."""

    def __init__(
        self,
        cluster: Cluster,
        kernels: Sequence[KernelBackend],
        announced: Sequence[Announced] = (),
        slots: Slots | None = None,
        uids: Mapping[str, str] | None = None,
    ) -> None:
        """slots, uids: from the discovery of an earlier loop or leader. A server that still exists keeps its
        slot; a pod with the same name but another uid is a new pod.
        """
        self._cluster, self._kernels, self.announced = cluster, tuple(kernels), tuple(announced)
        self._stated: dict[str, str] = {}
        """Pod -> fingerprint in its answers; only filled while an upgrade is announced."""
        self._slots = {kernel.kernel: _kept_slots(kernel, slots or {}) for kernel in kernels}
        self._uids = dict(uids or {})
        """Key of a server -> uid of its pod when last seen."""
        self._ports: dict[str, int | None] = {}
        self._settled_at: int | None = None
        self.pods: tuple[PodReplica, ...] = ()
        #: Backends that do not exist, or from which single pods cannot be taken out of rotation.
        self.problems: tuple[BackendProblem, ...] = ()
        #: One line for each kernel with more servers in traffic than slots; the excess is not observed.
        self.beyond: tuple[str, ...] = ()

    @property
    def slots(self) -> Slots:
        """Kernel -> slot of each of its servers."""
        return self._slots

    @property
    def uids(self) -> Mapping[str, str]:
        """Key of each server -> uid of its pod, if known."""
        return self._uids

    @property
    def occupants(self) -> dict[str, tuple[str, str]]:
        """Slot -> key and uid of its pod. A changed pair means another pod."""
        held = (item for one in self._slots.values() for item in one.items())
        return {slot: (key, self._uids.get(key, "")) for key, slot in held}

    def replicas(self) -> tuple[LiveReplica, ...]:
        """All pods that have a slot, ready or not, ordered by kernel and slot."""
        return tuple(one.replica for one in self.pods)

    def refresh(self) -> None:
        """Discover pods again if anything changed. On ClusterError, the last result stays."""
        version = self._cluster.places_version
        if version is not None and version == self._settled_at:
            return
        before = self._slots
        self._see()
        self._settled_at = version if before == self._slots else None  # a freed slot is refilled at the next

    def ready_url(self, backend: BackendRef) -> str:
        """URL of a ready pod of any backend, "" if there is none. Raises ClusterError."""
        return endpoints.ready_url(self._cluster, backend)

    def note(self, stated: Mapping[str, str]) -> None:
        """Record the fingerprints in answers (slot -> fingerprint); during an upgrade in place they decide to
        which kernel a server belongs.
        """
        told = {one.pod: stated[one.slot] for one in self.pods if one.pod and stated.get(one.slot)}
        if self.announced and not told.items() <= self._stated.items():
            self._stated |= told
            self._settled_at = None

    def _see(self) -> None:
        """Discover through the API server."""
        found = {}
        for kernel in self._kernels:
            found[kernel.kernel] = one = endpoints.endpoints_of(
                self._cluster, kernel.backend, self._ports.get(kernel.kernel)
            )
            self._ports[kernel.kernel] = one.port
        servers = assign_kernels(found, self.announced, self._stated)
        self.problems = tuple(
            BackendProblem(reason=one.reason, message=f"kernel {name}: {one.message}")
            for name, one in found.items()
            if one.reason
        ) + tuple(self._misplaced(found))
        self._place(servers)

    def _misplaced(self, found: Mapping[str, FoundEndpoints]) -> list[BackendProblem]:
        """Upgrades in place for which the label cannot distinguish the two kernels' servers."""
        there = [one for one in self.announced if one.kernel in found and one.candidate in found]
        told = [label_problem(found, one) for one in there]
        return [BackendProblem(reason="NotInPlace", message=one) for one in told if one]

    def _place(self, servers: Servers) -> None:
        """Assign slots to servers."""
        pods: list[PodReplica] = []
        beyond: list[str] = []
        for kernel in self._kernels:
            pods += self._slotted(kernel, servers[kernel.kernel])
            beyond += _beyond(kernel, servers[kernel.kernel], self._slots[kernel.kernel])
        there = {each.pod for one in servers.values() for each in one}
        self._stated = {pod: told for pod, told in self._stated.items() if pod in there}
        keys = {each.key for one in servers.values() for each in one}
        self._uids = {key: uid for key, uid in self._uids.items() if key in keys}
        self.pods, self.beyond = tuple(pods), tuple(beyond)

    def _slotted(self, kernel: KernelBackend, found: Sequence[BackendEndpoint]) -> list[PodReplica]:
        """The endpoints that have a slot; those beyond the declared number of replicas have none.

        A slot that becomes free stays empty for one refresh, so that the next pod in it is recognised as
        another one, even if it has the same name.
        """
        present = {one.key: one for one in found}
        anew = {key for key, one in present.items() if one.uid and self._uids.get(key, one.uid) != one.uid}
        self._uids |= {key: one.uid for key, one in present.items() if one.uid}
        present = {key: one for key, one in present.items() if key not in anew}
        before = self._slots[kernel.kernel]
        slots = {key: slot for key, slot in before.items() if key in present}
        free = [slot for slot in _names(kernel) if slot not in before.values()]
        for key in sorted(present.keys() - slots.keys()):
            if free:
                slots[key] = free.pop(0)
        self._slots = {**self._slots, kernel.kernel: slots}
        return [
            _pod_replica(present[key], slot, kernel.kernel)
            for key, slot in sorted(slots.items(), key=lambda item: item[1])
        ]


def _names(kernel: KernelBackend) -> list[str]:
    """Slots of a kernel."""
    return [f"{kernel.kernel}-{n}" for n in range(kernel.replicas)]


def _kept_slots(kernel: KernelBackend, kept: Slots) -> dict[str, str]:
    """Stored slots of ``kernel`` that still exist."""
    there = set(_names(kernel))
    return {key: slot for key, slot in kept.get(kernel.kernel, {}).items() if slot in there}


def _beyond(kernel: KernelBackend, found: Sequence[BackendEndpoint], slots: Mapping[str, str]) -> list[str]:
    """A message if servers take traffic and have no slot; otherwise empty."""
    unseen = [
        one for one in found if one.key not in slots and one.in_rotation and one.state == ReplicaState.READY
    ]
    if not unseen or len(found) <= kernel.replicas:  # a replacement gets its slot at the next refresh
        return []
    return [
        f"kernel {kernel.kernel}: {len(unseen)} ready servers beyond its replicas ({kernel.replicas}) take "
        "traffic and are neither scraped nor probed; raise replicas in the KernelPool to the most that a "
        "rollout or an autoscaler may reach, because places without a server cost nothing"
    ]


def _pod_replica(found: BackendEndpoint, slot: str, kernel: str) -> PodReplica:
    replica = LiveReplica(
        name=slot,
        kernel=kernel,
        url=found.url,
        state=found.state,
        fingerprint=found.fingerprint,
    )
    return PodReplica(
        slot=slot,
        pod=found.pod,
        in_rotation=found.in_rotation,
        replica=replica,
        movable=found.movable,
        label_in=found.label_in,
        leaves=found.leaves,
        taken_out=found.label == pod_facts.OUT,
    )
