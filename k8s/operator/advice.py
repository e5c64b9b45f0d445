"""Contract health as a label of each pod, for endpoint pickers, rollouts and people to act on.

The label combines the health of a pod's kernel and of the pod itself. A client that excludes ``broken`` pods
must never be left without a server: if every serving pod is broken, pods of the known-good kernel are
labelled ``last-resort``.
"""

from __future__ import annotations

import numpy as np

from contracts.compiled.contract import Level
from contracts.telemetry import ReplicaState
from controller.decision import Decision
from k8s.operator.objects import Cluster, ClusterError
from k8s.operator.pods.replicas import PodReplica
from k8s.operator.route_loop import RouteLoop

#: Label of a pod.
ADVICE = "selvage.dev/contract"
KEPT, GUARDED, BROKEN, LAST_RESORT, UNKNOWN = "kept", "guarded", "broken", "last-resort", "unknown"


class Advisor:
    """Writes pod labels that changed. A label that the server refuses is tried again at the next turn."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._written: dict[str, dict[tuple[str, str], str]] = {}
        """Policy -> label of each of its pods, by name and uid: a recreated pod has no label yet."""
        self.problem = ""
        """Error of the last turn's labels, "" if there was none."""

    def forget(self) -> None:
        """Forget all written labels: another operator leads and writes them."""
        self._written.clear()

    def turned(self, loop: RouteLoop) -> None:
        """Label the pods of ``loop`` as its last turn found them."""
        decision = None if loop.standing.turn is None else loop.standing.turn.decision
        self.problem = ""
        policy, whose = loop.documents.policy.metadata.name, loop.discovery.occupants
        uids = {one.pod: whose.get(one.slot, ("", ""))[1] for one in loop.discovery.pods}
        before, after = self._written.get(policy, {}), {}
        for name, value in advice(loop, decision).items():
            key = name, uids[name]
            if before.get(key) != value:
                try:
                    self._cluster.label_pod(name, ADVICE, value)
                except ClusterError as error:
                    self.problem = str(error)
                    continue
            after[key] = value
        self._written[policy] = after

    def drop(self, policy: str) -> None:
        """Forget the labels of ``policy``, which was deleted."""
        self._written.pop(policy, None)


def advice(loop: RouteLoop, decision: Decision | None) -> dict[str, str]:
    """Pod -> value of its label."""
    pods = [one for one in loop.discovery.pods if one.pod]
    if decision is None or bool(decision.held[0]) or bool(decision.degraded[0]):
        return {one.pod: UNKNOWN for one in pods}
    kernels = _of_kernels(loop, decision)
    out = dict(zip(loop.setup.layout.replicas, decision.quarantined[0].tolist(), strict=True))
    out |= dict.fromkeys(loop.unverified, True)
    found = {one.pod: BROKEN if out[one.slot] else kernels[one.replica.kernel] for one in pods}
    if any(found[one.pod] != BROKEN for one in pods if _serves(one)):
        return found
    return found | dict.fromkeys(_last(loop, pods), LAST_RESORT)


def _of_kernels(loop: RouteLoop, decision: Decision) -> dict[str, str]:
    """Kernel -> label value by its worst slice."""
    judgement, found = decision.judgement, {}
    for k, name in enumerate(loop.setup.layout.kernels):
        worst = int(judgement.level[0, k].max())
        if worst >= Level.FALLBACK or bool(judgement.hard_violated[0, k].any()):
            found[name] = BROKEN
        else:
            guarded = worst >= Level.GUARD or not bool(np.all(judgement.certified[0, k]))
            found[name] = GUARDED if guarded else KEPT
    return found


def _last(loop: RouteLoop, pods: list[PodReplica]) -> list[str]:
    """Pods to use if everything is broken: those of the known-good kernel that serve, else all that serve."""
    known_good = loop.setup.layout.kernels[loop.setup.layout.known_good]
    serving = [one for one in pods if _serves(one)]
    best = [one.pod for one in serving if one.replica.kernel == known_good]
    return best or [one.pod for one in serving]


def _serves(one: PodReplica) -> bool:
    return one.in_rotation and one.replica.state == ReplicaState.READY
