"""Record of a drill's faults in a ConfigMap: written before they are injected, and read to undo them.

Pods are recorded with their uid, so that a later pod at the same address is not taken for the struck one. If
a runner is lost, the next leader finds its note and undoes the faults.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import TypeAdapter

from contracts.loading.files import json_text
from contracts.loading.untrusted import MALFORMED
from faults.client.replica import Undone
from faults.client.wire import DrillError
from k8s.operator.drills.cluster import DrillCluster
from k8s.operator.drills.pods import POD_KILL, ChaosMeshFaults, PodFaults, Steering, drill_pods
from k8s.operator.objects import Cluster, ClusterError, Manifest

_NOTE, REPORT, LINE = "drill.json", "outcome.json", "timeline.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class StruckPod:
    """One fault on one pod. chaos: the NetworkChaos that carries it out, "" for the pod's own server."""

    fault: dict[str, Any]
    replica: str
    pod: str
    uid: str
    url: str
    chaos: str = ""


_STRUCK = TypeAdapter(tuple[StruckPod, ...])


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillNote:
    """A drill that runs or ran. open: it is not confirmed yet that all faults were undone."""

    uid: str
    open: bool
    struck: tuple[StruckPod, ...]


def ledger_name(drill: str) -> str:
    """Name of the ConfigMap of ``drill``."""
    return f"selvage-drill-{drill}"


class ClusterLedger:
    """``faults.drill.runner.Ledger`` of one run of ``drill``, which strikes ``struck``."""

    def __init__(self, cluster: DrillCluster, drill: Manifest, struck: Sequence[StruckPod]) -> None:
        self._cluster, self._drill, self._struck = cluster, drill, tuple(struck)
        self.opened = False

    def open(self) -> None:
        """Record that all faults may be in force; raises ClusterError if that fails."""
        self._write({"state": "open"})
        self.opened = True

    def close(self, how: str) -> None:
        """Record that all faults were undone."""
        self._write({"state": how})
        self.opened = False

    def report(self, content: Mapping[str, Any], line: str = "") -> None:
        """Keep what came of the drill beside the note; ``line``: as JSON over time, "" for none."""
        kept = {REPORT: json_text(content, indent=2), **({LINE: line} if line else {})}
        self._write({"state": "open" if self.opened else "undone"}, kept)

    def _write(self, state: dict[str, str], report: Mapping[str, str] | None = None) -> None:
        metadata = self._drill["metadata"]
        note = {**state, "uid": metadata["uid"], "struck": [asdict(one) for one in self._struck]}
        owner = {
            "apiVersion": self._drill["apiVersion"],
            "kind": self._drill["kind"],
            "name": metadata["name"],
            "uid": metadata["uid"],
        }
        self._cluster.write_config(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {
                    "name": ledger_name(metadata["name"]),
                    "labels": {"app.kubernetes.io/part-of": "selvage"},
                    "ownerReferences": [owner],
                },
                "data": {_NOTE: json_text(note, indent=2), **(report or {})},
            }
        )


def read_note(cluster: Cluster, drill: str) -> DrillNote | None:
    """The note of ``drill``, None if there is none. Raises ClusterError if it exists and cannot be read."""
    found = cluster.read_config(ledger_name(drill))
    if found is None:
        return None
    try:
        note = json.loads((found.get("data") or {})[_NOTE])
        struck = _STRUCK.validate_python(note["struck"])
        return DrillNote(uid=str(note["uid"]), open=note["state"] == "open", struck=struck)
    except MALFORMED as error:
        raise ClusterError(
            f"ConfigMap {ledger_name(drill)}: expected the note of a drill, got {error}; delete the "
            f"pods that it struck, then the ConfigMap"
        ) from None


def take_back(cluster: DrillCluster, drill: Manifest, steering: Steering) -> str:
    """Undo all faults in the note of ``drill``; returns a description. Repeating it has no effect.

    Raises ClusterError if an undo is not confirmed; the note then stays open.
    """
    note = read_note(cluster, drill["metadata"]["name"])
    if note is None or note.uid != drill["metadata"]["uid"]:
        return "nothing was injected"
    if not note.open:
        return "everything was taken back before"
    told, unclean = [], []
    for one in note.struck:
        undone = _undone(cluster, one, steering)
        told.append(f"{one.fault['name']} on {one.pod}: {'gone with it' if undone.gone else 'undone'}")
        unclean += [] if undone.gone or undone.clean else [one.pod]
    if unclean:
        raise ClusterError(f"not as before: {', '.join(unclean)}; delete these pods")
    ClusterLedger(cluster, drill, note.struck).close("undone by another runner")
    return ", ".join(told)


def _undone(cluster: DrillCluster, struck: StruckPod, steering: Steering) -> Undone:
    pod = drill_pods(cluster).get(struck.pod)
    if struck.chaos:
        cluster.delete_chaos(struck.chaos)
        return Undone(clean=True)
    if pod is None or pod.uid != struck.uid or struck.fault["kind"] == POD_KILL:
        return Undone(clean=False, gone=True)
    faults = PodFaults(cluster, pod, steering, lambda: None, ChaosMeshFaults())
    try:
        return faults.undo(struck.fault["name"])
    except DrillError as error:
        raise ClusterError(
            f"{struck.fault['name']} on {struck.pod}: the undo is not confirmed: {error}"
        ) from error
