"""Writes plans to the cluster: the weights of the policy's own HTTPRoute, and the labels of single pods.

The route is written before the labels. A pod is taken out of rotation only if its kernel keeps another ready
pod or takes no traffic.

A Service splits its traffic evenly over its pods. A pod that returns in steps therefore stays out of rotation
until its first step. If its kernel has other pods with a full share, it then gets a full share too. Otherwise
the steps are applied to the kernel's weights as soon as the pod is seen in rotation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import FleetLayout
from contracts.telemetry import ReplicaState
from controller.healing.machine import held_back
from controller.ports import RoutingPlan
from k8s.operator.objects import Cluster, ClusterError
from k8s.operator.pods.pod_facts import IN_ROTATION, OUT
from k8s.operator.pods.replicas import PodReplica
from k8s.routes.gateways import GatewayReport, gateway_reports, unconfirmed_reason
from k8s.routes.rules import RouteShape, Rule, route_rules
from k8s.routes.writer import RouteError, WrittenRoute, put_rules

_LEADS_NO_MORE = "this replica leads no more, so it writes nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteTarget:
    """The route of one policy, with its rules' shape and the fleet layout that its weights refer to."""

    route: WrittenRoute
    shape: RouteShape
    layout: FleetLayout


class ClusterActuator:
    """``RouteActuator`` and ``live.ports.ReplicaShares`` of one policy. If a plan cannot be applied, the last
    one stays in force.
    """

    def __init__(
        self,
        cluster: Cluster,
        target: RouteTarget,
        pods: Callable[[], Sequence[PodReplica]],
        leads: Callable[[], bool] = lambda: True,
    ) -> None:
        """leads: whether this operator is still the leader. It is checked before each write, because a slow
        API server may delay a turn beyond the lease.
        """
        self._cluster, self.target, self._pods, self._leads = cluster, target, pods, leads
        self.last_error = ""
        self.last_reason = ""
        """Reason for conditions, in one word; "" if the last write succeeded."""
        self.writes = 0
        """How often the route was written."""
        self.confirmed = False
        """Whether the route was ever confirmed to hold a table of this policy."""
        self._refusals: dict[str, str] = {}
        self._shares: dict[str, float] = {}
        self._rotation = np.ones(len(target.layout.replicas), dtype=np.bool_)
        """Bool [R]: replicas in rotation by the last plan."""
        self._said = GatewayReport(verdicts={}, behind={}, silent=())

    @property
    def refusal(self) -> str:
        """Why gateways last refused the route as written, "" if none did."""
        return "; ".join(one for one in self._refusals.values() if one)

    @property
    def behind(self) -> tuple[tuple[str, int], ...]:
        """Gateways that have not accepted the current route, with the generation that they last observed."""
        return tuple(sorted(self._said.behind.items()))

    @property
    def doubts(self) -> str:
        """Why the route may not be in force, "" if its gateways accept it."""
        return unconfirmed_reason(self._said)

    def admit(self, shares: Mapping[str, float]) -> None:
        """Set the shares of returning replicas, by slot, from the next plan on. Others get a full share."""
        self._shares = dict(shares)

    def apply(self, plan: RoutingPlan) -> bool:
        """Apply the first fleet of ``plan``; True if route and labels match it."""
        if not any(one.replica.state == ReplicaState.READY for one in self._pods()):
            return self._failed("NoReadyReplicas", "no replica of any kernel is ready, so the route stays")
        empty = unserved_slices(plan, self.target.layout, self._ready_kernels())
        if empty:
            text = (
                f"the plan sheds all of {', '.join(empty)} though a kernel could serve it, so the route stays"
            )
            return self._failed("NothingServes", text)
        self._rotation = plan.in_rotation[0]
        if not self.write(plan.table[0]):
            return False
        try:
            self._rotate(plan)
        except ClusterError as error:
            return self._failed("PodsNotLabelled", str(error))
        return True

    def write(self, table: NDArray[np.float64], *, pinned: bool = False) -> bool:
        """Write ``table`` [S, K + 1] to the route; True if the route holds it. ``pinned``: write the table as
        it is, without reducing kernels whose pods return in steps.
        """
        if not self._leads():
            return self._failed("LeadsNoMore", _LEADS_NO_MORE)
        given = table if pinned else self._held(table)
        rules: list[Rule] = route_rules(given, self.target.shape)
        try:
            done = put_rules(self._cluster.routes, self.target.route, rules)
        except RouteError as error:
            return self._failed(error.reason, str(error))
        except ClusterError as error:
            return self._failed("ServerRefused" if error.refused else "ServerUnreachable", str(error))
        self.writes += done.written
        self._said = said = gateway_reports(done.stored)
        there = said.verdicts.keys() | said.behind.keys()
        before = {name: told for name, told in self._refusals.items() if name in there}
        self._refusals = {**before, **said.verdicts}
        self.last_error = self.last_reason = ""
        self.confirmed = True
        return True

    def _rotate(self, plan: RoutingPlan) -> None:
        """Label the pods whose rotation changes. First, pods leave the rotation of kernels that they no
        longer belong to; then pods enter rotation; then pods leave it.

        Pods are skipped if their backend's selector does not contain the label, because labelling them has no
        effect. If the server refuses one label, the others are still set. A pod whose label was refused does
        not count as a remaining pod when another pod of its kernel is to leave.
        """
        held = self._held(plan.table[0])
        wanted = dict(zip(self.target.layout.replicas, self._let_in(plan, held).tolist(), strict=True))
        most = held.max(axis=0)[:-1].tolist()
        loaded = {
            kernel for kernel, weight in zip(self.target.layout.kernels, most, strict=True) if weight > 0.0
        }
        labels = _Labels(self._cluster, self._leads)
        pods = [one for one in self._pods() if one.pod and one.movable]
        for one in pods:
            if one.leaves and (one.leaves not in loaded or _another(one.leaves, pods, wanted)):
                labels.put(one, one.label_in if wanted[one.slot] else OUT)
        for one in pods:
            if wanted[one.slot] and not (one.in_rotation or one.leaves):
                labels.put(one, one.label_in)
        for one in pods:
            if wanted[one.slot] or not one.in_rotation:
                continue
            kernel = one.replica.kernel
            others = [other for other in pods if other not in labels.refused]
            if kernel not in loaded or _another(kernel, others, wanted):
                labels.put(one, OUT)
        labels.check()

    def _held(self, table: NDArray[np.float64]) -> NDArray[np.float64]:
        """``table`` [S, K + 1] without the weight that kernels of returning pods do not get yet."""
        if not self._shares:
            return table
        out = {one.slot for one in self._pods() if not one.in_rotation} & self._shares.keys()
        seen = np.array([name not in out for name in self.target.layout.replicas])
        owner = self.target.layout.replica_kernel
        return held_back(table, self._rotation & self._ready(), self._parts() * seen, owner)

    def _let_in(self, plan: RoutingPlan, held: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Bool [R]: replicas to be in rotation. A returning replica is included once its share is above 0. If
        its kernel has weight and no other ready replica, it is included at once, verified or not.
        """
        owner, rotation, begun = self.target.layout.replica_kernel, plan.in_rotation[0], self._parts() > 0.0
        serving = rotation & self._ready() & begun
        there = np.bincount(owner[serving], minlength=len(self.target.layout.kernels)) > 0
        alone = (held.max(axis=0)[:-1] > 0.0) & ~there
        return np.asarray(rotation & (begun | alone[owner]))

    def _parts(self) -> NDArray[np.float64]:
        """[R], 0..1: share of each replica; 1 is a full share."""
        return np.array([self._shares.get(name, 1.0) for name in self.target.layout.replicas])

    def _ready(self) -> NDArray[np.bool_]:
        """Bool [R]: whether the replica's pod is ready, in rotation or not."""
        ready = {one.slot for one in self._pods() if one.replica.state == ReplicaState.READY}
        return np.array([name in ready for name in self.target.layout.replicas], dtype=np.bool_)

    def _ready_kernels(self) -> frozenset[str]:
        return frozenset(
            one.replica.kernel for one in self._pods() if one.replica.state == ReplicaState.READY
        )

    def _failed(self, reason: str, message: str) -> bool:
        self.last_reason, self.last_error = reason, message
        return False


class _Labels:
    """Sets pod labels one by one and collects the errors."""

    def __init__(self, cluster: Cluster, leads: Callable[[], bool]) -> None:
        self._cluster, self._leads = cluster, leads
        self._errors: list[str] = []
        self.refused: list[PodReplica] = []

    def put(self, pod: PodReplica, value: str) -> None:
        """Set the label of ``pod``; an error is kept for ``check``."""
        try:
            if not self._leads():
                raise ClusterError(_LEADS_NO_MORE)
            self._cluster.label_pod(pod.pod, IN_ROTATION, value)
        except ClusterError as error:
            self.refused.append(pod)
            self._errors.append(str(error))

    def check(self) -> None:
        """Raise ClusterError if a label could not be set."""
        if self._errors:
            raise ClusterError("; ".join(dict.fromkeys(self._errors)))


def unserved_slices(plan: RoutingPlan, layout: FleetLayout, ready: frozenset[str]) -> list[str]:
    """Slices without weight on any kernel although a ``ready`` kernel breaks no hard clause there."""
    table = plan.table[0]
    forbidden = np.zeros(table[:, :-1].shape, dtype=np.bool_) if plan.forbidden is None else plan.forbidden[0]
    able = ~forbidden & np.array([kernel in ready for kernel in layout.kernels])
    return [
        name
        for name, row, some in zip(layout.slices, table, able.any(axis=1), strict=True)
        if some and row[:-1].sum() <= 0.0
    ]


def _another(kernel: str, pods: Sequence[PodReplica], wanted: dict[str, bool]) -> bool:
    """Whether a ready pod of ``kernel`` stays in rotation."""
    return any(
        one.replica.kernel == kernel and wanted[one.slot] and one.replica.state == ReplicaState.READY
        for one in pods
    )
