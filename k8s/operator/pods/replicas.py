"""Pods as the replicas of a layout: discovery behind each kernel's backend, one slot of a kernel per pod.

A layout names a fixed number of replicas; pods come and go. A pod keeps its slot while it exists, and a slot
that was freed goes to the next new pod.
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
    """Where the replicas of one kernel are found."""

    kernel: str
    backend: BackendRef
    replicas: int
    """Slots."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodReplica:
    """A pod in its slot."""

    slot: str
    pod: str
    """Name, "" for an endpoint that is no pod."""
    in_rotation: bool
    replica: LiveReplica
    movable: bool = True
    """Whether its label takes it out of rotation."""
    label_in: str = pod_facts.IN
    """Value of the label that brings it into rotation."""
    leaves: str = ""
    """Kernel in whose rotation it stands though it is none of its replicas."""
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
    """``live.ports.Discovery`` of one pool, as ``refresh`` saw it last."""

    def __init__(
        self,
        cluster: Cluster,
        kernels: Sequence[KernelBackend],
        announced: Sequence[Announced] = (),
        slots: Slots | None = None,
        uids: Mapping[str, str] | None = None,
    ) -> None:
        """slots, uids: of whoever discovered before; a server that is still there keeps its slot, and a pod
        that came again under its name since then is another one.
        """
        self._cluster, self._kernels, self.announced = cluster, tuple(kernels), tuple(announced)
        self._stated: dict[str, str] = {}
        """Pod -> fingerprint that its answers state, while an upgrade is announced."""
        self._slots = {kernel.kernel: _kept_slots(kernel, slots or {}) for kernel in kernels}
        self._uids = dict(uids or {})
        """Key of a server -> uid of its pod when it was seen last."""
        self._ports: dict[str, int | None] = {}
        self._settled_at: int | None = None
        self.pods: tuple[PodReplica, ...] = ()
        #: Backends that are not there, or from which no single pod can be taken out.
        self.problems: tuple[BackendProblem, ...] = ()
        #: Kernels with more servers in traffic than places, a line each; those are not looked at.
        self.beyond: tuple[str, ...] = ()

    @property
    def slots(self) -> Slots:
        """The pod of each slot."""
        return self._slots

    @property
    def uids(self) -> Mapping[str, str]:
        """Uid of the pod of each server, by its key, where one is known."""
        return self._uids

    @property
    def occupants(self) -> dict[str, tuple[str, str]]:
        """Slot -> key and uid of whose it is; another pair is another pod."""
        held = (item for one in self._slots.values() for item in one.items())
        return {slot: (key, self._uids.get(key, "")) for key, slot in held}

    def replicas(self) -> tuple[LiveReplica, ...]:
        """Every pod that has a slot, ready or not, in the order of kernels and slots."""
        return tuple(one.replica for one in self.pods)

    def refresh(self) -> None:
        """See what is there; on ClusterError what was seen last stays, as where nothing is new."""
        version = self._cluster.places_version
        if version is not None and version == self._settled_at:
            return
        before = self._slots
        self._see()
        self._settled_at = version if before == self._slots else None  # a place that is left is empty once

    def ready_url(self, backend: BackendRef) -> str:
        """Address of a ready pod of any backend, "" where there is none. Raises ClusterError."""
        return endpoints.ready_url(self._cluster, backend)

    def note(self, stated: Mapping[str, str]) -> None:
        """Slot -> fingerprint that its newest answer states: whose a server is may hang on it."""
        told = {one.pod: stated[one.slot] for one in self.pods if one.pod and stated.get(one.slot)}
        if self.announced and not told.items() <= self._stated.items():
            self._stated |= told
            self._settled_at = None

    def _see(self) -> None:
        """Ask the server."""
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
        """Upgrades in place whose servers no label can tell apart."""
        there = [one for one in self.announced if one.kernel in found and one.candidate in found]
        told = [label_problem(found, one) for one in there]
        return [BackendProblem(reason="NotInPlace", message=one) for one in told if one]

    def _place(self, servers: Servers) -> None:
        """Give each server its slot."""
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
        """The endpoints in their slots; those beyond the declared number of replicas have none.

        A slot that is left now is empty once: whoever comes next is seen to be another one, a pod that came
        again under its name too.
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
    """Slots of ``kernel`` as they were kept, but for those that it has no more."""
    there = set(_names(kernel))
    return {key: slot for key, slot in kept.get(kernel.kernel, {}).items() if slot in there}


def _beyond(kernel: KernelBackend, found: Sequence[BackendEndpoint], slots: Mapping[str, str]) -> list[str]:
    """What is to be said of servers that take traffic and have no place; nothing where there are none."""
    unseen = [
        one for one in found if one.key not in slots and one.in_rotation and one.state == ReplicaState.READY
    ]
    if not unseen or len(found) <= kernel.replicas:  # who took a place over has it at the next look
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
