"""What drills need of the API server beyond what the operator reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from k8s.operator.objects import Cluster, Manifest

#: Kept on a drill while something of it may be in force: its deletion waits for the undo.
FINALIZER = "selvage.dev/drill-undo"


class DrillCluster(Cluster, Protocol):
    """One namespace, with what a drill changes in it. Methods raise ``ClusterError``."""

    def drills(self) -> dict[str, Manifest]:
        """Every FaultDrill by name."""

    def hold(self, drill: Manifest, held: bool) -> None:
        """Put the finalizer on ``drill``, or take it away; a drill that is gone is no error."""

    def delete_pod(self, name: str, uid: str) -> None:
        """Delete that very pod at once; one that is gone is no error."""

    def has_chaos_mesh(self) -> bool:
        """Whether the definitions of Chaos Mesh are installed."""

    def create_chaos(self, chaos: Manifest) -> None:
        """Create a NetworkChaos; one of that name is no error."""

    def delete_chaos(self, name: str) -> None:
        """Delete a NetworkChaos; one that is gone is no error."""

    def chaos(self, name: str) -> Manifest | None:
        """A NetworkChaos, None where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillPod:
    """A pod that drills may strike, as it is now."""

    name: str
    uid: str
    address: str
    restarts: int

    @property
    def process(self) -> int:
        """A number that is another one for every pod and every start of its servers."""
        return (int(self.uid.replace("-", ""), 16) << 16) + self.restarts


def drill_pod(pod: Manifest) -> DrillPod:
    """``pod`` as drills see it."""
    status = pod.get("status") or {}
    containers = status.get("containerStatuses") or []
    return DrillPod(
        name=str(pod["metadata"]["name"]),
        uid=str(pod["metadata"]["uid"]),
        address=str(status.get("podIP", "")),
        restarts=sum(int(one.get("restartCount", 0)) for one in containers),
    )
