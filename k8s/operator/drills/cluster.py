"""The API server calls that drills need in addition to those of the operator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from k8s.operator.objects import Cluster, Manifest

#: Finalizer of a drill while any of its faults may be in force, so that deletion waits for the undo.
FINALIZER = "selvage.dev/drill-undo"


class DrillCluster(Cluster, Protocol):
    """One namespace, with the changes that a drill makes in it. Methods raise ``ClusterError``."""

    def drills(self) -> dict[str, Manifest]:
        """Every FaultDrill by name."""

    def hold(self, drill: Manifest, held: bool) -> None:
        """Add the finalizer to ``drill`` (``held``) or remove it; a deleted drill is not an error."""

    def delete_pod(self, name: str, uid: str) -> None:
        """Delete the pod with this name and uid at once; it is not an error if it is gone."""

    def has_chaos_mesh(self) -> bool:
        """Whether the CRDs of Chaos Mesh are installed."""

    def create_chaos(self, chaos: Manifest) -> None:
        """Create a NetworkChaos; it is not an error if one of that name exists."""

    def delete_chaos(self, name: str) -> None:
        """Delete a NetworkChaos; it is not an error if it is gone."""

    def chaos(self, name: str) -> Manifest | None:
        """A NetworkChaos, None if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillPod:
    """A pod that drills may strike, in its current state."""

    name: str
    uid: str
    address: str
    restarts: int

    @property
    def process(self) -> int:
        """A number that differs for every pod and after every restart of its containers."""
        return (int(self.uid.replace("-", ""), 16) << 16) + self.restarts


def drill_pod(pod: Manifest) -> DrillPod:
    """The ``DrillPod`` of pod object ``pod``."""
    status = pod.get("status") or {}
    containers = status.get("containerStatuses") or []
    return DrillPod(
        name=str(pod["metadata"]["name"]),
        uid=str(pod["metadata"]["uid"]),
        address=str(status.get("podIP", "")),
        restarts=sum(int(one.get("restartCount", 0)) for one in containers),
    )
