"""Plans put in force: weights of the route that is ours, and labels of single pods.

The route first: a pod is taken out of rotation only where its kernel keeps another one, or takes no traffic.

A Service splits its traffic evenly over its pods. So of a pod that comes back by steps the label stays "out"
until its first step, and then a kernel with whole pods gives it a whole one's part; a kernel without any gets
the steps by its weights, once the pod is seen in rotation.
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
    """The route of one policy, and whose traffic it carries."""

    route: WrittenRoute
    shape: RouteShape
    layout: FleetLayout


class ClusterActuator:
    """``RouteActuator`` and ``live.ports.ReplicaShares`` of one policy; a plan that is not taken leaves the
    last one in force.
    """

    def __init__(
        self,
        cluster: Cluster,
        target: RouteTarget,
        pods: Callable[[], Sequence[PodReplica]],
        leads: Callable[[], bool] = lambda: True,
    ) -> None:
        """leads: whether this operator may still act; asked before each write, because a server that answers
        slowly may hold one turn up for longer than a lease.
        """
        self._cluster, self.target, self._pods, self._leads = cluster, target, pods, leads
        self.last_error = ""
        self.last_reason = ""
        """One word for conditions; "" after a plan that was taken."""
        self.writes = 0
        """Times that the route was written."""
        self.confirmed = False
        """Whether the route was ever seen to hold a plan of ours."""
        self._refusals: dict[str, str] = {}
        self._shares: dict[str, float] = {}
        self._rotation = np.ones(len(target.layout.replicas), dtype=np.bool_)
        """Bool [R]: of the plan before."""
        self._said = GatewayReport(verdicts={}, behind={}, silent=())

    @property
    def refusal(self) -> str:
        """What gateways said last against the route as it was written, "" for nothing."""
        return "; ".join(one for one in self._refusals.values() if one)

    @property
    def behind(self) -> tuple[tuple[str, int], ...]:
        """Gateways that have not accepted the route as it is, and the generation that they looked at last."""
        return tuple(sorted(self._said.behind.items()))

    @property
    def doubts(self) -> str:
        """Why what the route holds may not be in force, "" where its gateways accept it."""
        return unconfirmed_reason(self._said)

    def admit(self, shares: Mapping[str, float]) -> None:
        """Of replicas that come back, by slot, from the next plan on; whoever is not named is whole."""
        self._shares = dict(shares)

    def apply(self, plan: RoutingPlan) -> bool:
        """Write the first fleet of ``plan``; True once route and labels are as it says."""
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
        """Put ``table`` [S, K + 1] in force, whoever decided it; ``pinned``: whatever comes back by steps."""
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
        """Label the pods whose place in rotation changed: out of a kernel that is not theirs, back in, out.

        Where no selector asks for the label it would change nothing but what is believed. A pod whose label
        is refused stops no other one, but nobody leaves a kernel that it should have come back to.
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
        """``table`` [S, K + 1] less what kernels of pods that come back do not get yet."""
        if not self._shares:
            return table
        out = {one.slot for one in self._pods() if not one.in_rotation} & self._shares.keys()
        seen = np.array([name not in out for name in self.target.layout.replicas])
        owner = self.target.layout.replica_kernel
        return held_back(table, self._rotation & self._ready(), self._parts() * seen, owner)

    def _let_in(self, plan: RoutingPlan, held: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Bool [R]: who is to be in rotation. Of a kernel that must serve and has nobody else, whoever comes
        back, verified or not.
        """
        owner, rotation, begun = self.target.layout.replica_kernel, plan.in_rotation[0], self._parts() > 0.0
        serving = rotation & self._ready() & begun
        there = np.bincount(owner[serving], minlength=len(self.target.layout.kernels)) > 0
        alone = (held.max(axis=0)[:-1] > 0.0) & ~there
        return np.asarray(rotation & (begun | alone[owner]))

    def _parts(self) -> NDArray[np.float64]:
        """[R]: 0..1, of what a whole replica gets."""
        return np.array([self._shares.get(name, 1.0) for name in self.target.layout.replicas])

    def _ready(self) -> NDArray[np.bool_]:
        """Bool [R]: its pod is ready, in rotation or not."""
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
    """Labels of pods, each put for itself."""

    def __init__(self, cluster: Cluster, leads: Callable[[], bool]) -> None:
        self._cluster, self._leads = cluster, leads
        self._errors: list[str] = []
        self.refused: list[PodReplica] = []

    def put(self, pod: PodReplica, value: str) -> None:
        """Set the label of ``pod``; what the server says against that is kept."""
        try:
            if not self._leads():
                raise ClusterError(_LEADS_NO_MORE)
            self._cluster.label_pod(pod.pod, IN_ROTATION, value)
        except ClusterError as error:
            self.refused.append(pod)
            self._errors.append(str(error))

    def check(self) -> None:
        """ClusterError where a label was not taken."""
        if self._errors:
            raise ClusterError("; ".join(dict.fromkeys(self._errors)))


def unserved_slices(plan: RoutingPlan, layout: FleetLayout, ready: frozenset[str]) -> list[str]:
    """Slices without weight on any kernel while a ``ready`` one breaks no hard clause there."""
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
