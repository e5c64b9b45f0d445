"""The pods of a pool as the fleet of a drill: ``live.drill.fleet.DrillFleet`` over the API server."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np

from contracts.telemetry import ReplicaState
from faults.client.wire import DrillError, DrillRefusedError, bearer, call
from faults.drill.runner import TargetGoneError
from k8s.operator.drills.admission import DrillSite
from k8s.operator.drills.cluster import DrillCluster, DrillPod
from k8s.operator.drills.ledger import StruckPod
from k8s.operator.drills.pods import (
    NETWORK_KINDS,
    POD_KILL,
    ChaosMeshFaults,
    PodFaults,
    Steering,
    chaos_name,
    drill_pods,
    steering_url,
)
from k8s.operator.fleet import kernel_backends
from k8s.operator.objects import ClusterError
from k8s.operator.pods.replicas import PodDiscovery, PodReplica
from k8s.operator.status.recent import RecentDecision, decisions_in
from k8s.routes.rules import WHOLE, table_of
from live.drill.fleet import Front
from live.errors import LiveError
from live.load import LoadRecord
from live.ports import HostCounters, LiveReplica

#: For so long the last sight of the cluster counts where its server does not answer, s.
BLIND_S = 10.0
_POLL_S = 0.5
_UNAUTHORISED = (401, 403)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entrance:
    """Where the load of drills enters. model: that it asks for, "" for the first that a pod names; api_key:
    that servers and gateway want, "" for none.
    """

    url: str
    model: str = ""
    api_key: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why pods may not be struck now, in one word and for people."""

    reason: str
    message: str


class ClusterFleet:
    """The pods of one drill's pool. ``site``: what is struck; ``entrance``: where requests go."""

    def __init__(
        self,
        cluster: DrillCluster,
        site: DrillSite,
        entrance: Entrance,
        steering: Steering,
        handed_over: bool,
    ) -> None:
        self._cluster, self._site, self._entrance, self._steering = cluster, site, entrance, steering
        self._discovery = PodDiscovery(cluster, kernel_backends(site.documents.pool))
        self._handed_over = handed_over
        self._pods: dict[str, DrillPod] = {}
        self._struck: dict[str, DrillPod] = {}
        self._hosts: tuple[HostCounters, ...] = ()
        self._seen_at_s = float("-inf")
        self.shares: dict[str, tuple[int, ...]] = {}
        """Of each slice by kernel and what is shed, in parts of ``WHOLE``: the route as ``hosts`` saw it."""
        self.stopping = ""
        """Why the drill is to end before its time, "" for no reason."""

    def refusal(self) -> Refusal | None:
        """Why the drill's pods may not be struck as they are now. Raises ClusterError."""
        self._look()
        struck = {name for strike in self._site.plan.strikes for name in strike.replicas}
        slots = {one.slot: one for one in self._discovery.pods}
        for name in sorted(struck):
            if (found := self._refused(name, slots)) is not None:
                return found
        return _last_ready(self._discovery.pods, struck)

    def take(self) -> tuple[StruckPod, ...]:
        """Settle which pods are struck, in the places that ``refusal`` saw; what is to be written down."""
        slots = {one.slot: one for one in self._discovery.pods}
        found = []
        for strike in self._site.plan.strikes:
            for name in strike.replicas:
                pod = self._struck[name] = self._pods[slots[name].pod]
                chaos = self._handed(name).names.get(strike.fault.name, "")
                url = steering_url(pod, self._steering.port)
                fault = strike.fault.model_dump(mode="json", include={"name", "kind"})
                found.append(
                    StruckPod(fault=fault, replica=name, pod=pod.name, uid=pod.uid, url=url, chaos=chaos)
                )
        return tuple(found)

    def front(self) -> Front:
        """The gateway; DrillError where a pod that is to be struck takes no faults."""
        for name in self._struck:
            try:
                self.faults(name).status()
            except DrillRefusedError as error:
                step = "start its Deployment with the drills component, and the Secret of its token"
                raise DrillRefusedError(f"{error}; {step}") from None
        known = self._entrance
        model = known.model or _first_model(self._ready_url(), known.api_key)
        return Front(url=known.url, model=model, api_key=known.api_key)

    def warm_up(self, prompt_tokens: int, answer_tokens: int) -> None:
        """Nothing: pods are in service."""

    def hosts(self) -> tuple[HostCounters, ...]:
        """The weights of the route. Raises TargetGoneError where the drill is to end."""
        if self.stopping:
            raise TargetGoneError(self.stopping)
        try:
            self._look()
            self._hosts = self._weights()
            self._seen_at_s = time.monotonic()
        except ClusterError as error:
            if time.monotonic() - self._seen_at_s > BLIND_S:
                raise LiveError(f"nothing was seen for {BLIND_S:g} s: {error}") from None
        return self._hosts

    def decisions(self) -> tuple[RecentDecision, ...]:
        """What the policy's status says of its newest decisions, newest first. Raises ClusterError."""
        found = self._cluster.resources().policies.get(self._site.documents.policy.metadata.name) or {}
        return tuple(decisions_in(found.get("status") or {}))

    def replicas(self) -> tuple[LiveReplica, ...]:
        """Every place of the layout as ``hosts`` saw it last; places without a pod are absent."""
        slots = {one.slot: one for one in self._discovery.pods}
        return tuple(self._replica(name, slots.get(name)) for name in self._site.layout.replicas)

    def faults(self, name: str) -> PodFaults:
        """What steers the faults of the pod that was taken for ``name``, and of no later one."""
        if name not in self._struck:
            raise DrillError(f"{name}: no pod of this drill")
        return PodFaults(
            self._cluster, self._struck[name], self._steering, lambda: self._admit(name), self._handed(name)
        )

    def await_serving(self, name: str, timeout_s: float) -> bool:
        """Wait until a pod in slot ``name`` is ready; False after ``timeout_s`` or when stopping."""
        deadline_at_s = time.monotonic() + timeout_s
        while time.monotonic() < deadline_at_s and not self.stopping:
            with suppress(ClusterError):  # asked again
                self._look()
            if any(one.name == name and one.state == ReplicaState.READY for one in self.replicas()):
                return True
            time.sleep(_POLL_S)
        return False

    def named(self, requests: list[LoadRecord]) -> list[LoadRecord]:
        """Assign requests to slots by the pod named in each answer, which only servers for drills state."""
        slots = {one.pod: one.slot for one in self._discovery.pods}
        slots |= {pod.name: slot for slot, pod in self._struck.items()}
        return [replace(one, replica=slots.get(one.replica, "")) for one in requests]

    def close(self) -> None:
        """Do nothing; no resource is held."""

    def _look(self) -> None:
        self._discovery.refresh()
        self._pods = drill_pods(self._cluster)

    def _replica(self, name: str, found: PodReplica | None) -> LiveReplica:
        if found is None:
            kernel = self._site.layout.kernels[
                int(self._site.layout.replica_kernel[self._site.layout.replicas.index(name)])
            ]
            return LiveReplica(name=name, kernel=kernel, url="", state=ReplicaState.ABSENT)
        pod = self._pods.get(found.pod)
        return replace(found.replica, pid=None if pod is None else pod.process)

    def _refused(self, name: str, slots: dict[str, PodReplica]) -> Refusal | None:
        if name not in slots:
            return Refusal(
                reason="PodMissing", message=f"{name}: its place has no pod; wait, or scale its Deployment up"
            )
        if slots[name].pod not in self._pods:
            message = (
                f"pod {slots[name].pod} ({name}) does not carry the label selvage.dev/drills: allowed; "
                "start its Deployment with the drills component, or strike another one"
            )
            return Refusal(reason="NotForDrills", message=message)
        return None

    def _admit(self, name: str) -> None:
        """DrillRefusedError where ``name`` may not be struck as things stand at this moment."""
        try:
            self._look()
        except ClusterError as error:
            raise DrillError(str(error)) from error
        slots = {one.slot: one for one in self._discovery.pods}
        found = self._refused(name, slots) or _last_ready(self._discovery.pods, {name, *self._struck})
        if found is not None:
            raise DrillRefusedError(found.message)

    def _handed(self, name: str) -> ChaosMeshFaults:
        """What Chaos Mesh carries out on ``name``."""
        plan = self._site.plan
        here = [one.fault for one in plan.strikes if name in one.replicas]
        names = {
            one.name: chaos_name(plan.name, one.name, name)
            for one in here
            if self._handed_over and one.kind in NETWORK_KINDS
        }
        rest = [one for one in here if one.name not in names and one.kind != POD_KILL]
        return ChaosMeshFaults(names=names, lasts_s=plan.spec.time_to_live_s, all=not rest)

    def _ready_url(self) -> str:
        ready = [one.url for one in self.replicas() if one.state == ReplicaState.READY]
        if not ready:
            raise LiveError("no pod of the pool is ready")
        return ready[0]

    def _weights(self) -> tuple[HostCounters, ...]:
        """Each kernel's weight, shared by its pods in rotation."""
        found = self._cluster.routes.read(self._site.documents.policy.spec.route.name)
        table = None if found is None else table_of(found["spec"].get("rules") or [], self._site.shape)
        if table is None:
            return ()
        serve = [one for one in self._discovery.pods if one.in_rotation]
        count = Counter(one.replica.kernel for one in serve)
        layout = self._site.layout
        shares = np.round(table * WHOLE).astype(int)
        self.shares = {name: tuple(row.tolist()) for name, row in zip(layout.slices, shares, strict=True)}
        places = {one.slot: layout.kernels.index(one.replica.kernel) for one in serve}
        return tuple(
            _host(name, one, int(shares[s, places[one.slot]]) // count[one.replica.kernel])
            for s, name in enumerate(layout.slices)
            for one in serve
        )


def _host(slice_name: str, pod: PodReplica, weight: int) -> HostCounters:
    """A pod's weight, because requests of single pods are not counted."""
    return HostCounters(
        slice=slice_name,
        replica=pod.slot,
        weight=weight,
        active=0,
        succeeded=0,
        failed=0,
        connect_failed=0,
        ejected=False,
    )


def _last_ready(pods: Sequence[PodReplica], struck: set[str]) -> Refusal | None:
    """Refuse what would leave a kernel without a ready pod that is not struck."""
    kernels = {one.replica.kernel for one in pods if one.slot in struck}
    sound = {
        one.replica.kernel
        for one in pods
        if one.slot not in struck and one.in_rotation and one.replica.state == ReplicaState.READY
    }
    for kernel in sorted(kernels - sound):
        message = (
            f"kernel {kernel}: no ready pod would be left that is not struck; strike fewer of its pods "
            "(target.replica or replica_ratio), or scale its Deployment up"
        )
        return Refusal(reason="LastReady", message=message)
    return None


def _first_model(url: str, api_key: str) -> str:
    """The first model that the server at ``url`` names; DrillError without one, or where it wants a key."""
    answer = call(f"{url}/v1/models", within_s=10.0, headers=bearer(api_key))
    if answer.status in _UNAUTHORISED:
        given = "another key" if api_key else "a key"
        raise DrillError(f"{url} wants {given} (HTTP {answer.status}); give --api-key-file or --api-key-env")
    listed = answer.content.get("data") or []
    if not listed or not isinstance(listed[0], dict) or not listed[0].get("id"):
        raise DrillError(f"{url} names no model at /v1/models; give --model")
    return str(listed[0]["id"])
