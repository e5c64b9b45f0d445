"""What may be in force of a drill, in a ConfigMap: written before the injection, read by whoever undoes.

It names each pod by its uid, so that nobody takes a later pod at an address for the one that was struck.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import TypeAdapter

from contracts.loading.files import json_text
from contracts.loading.untrusted import MALFORMED
from k8s.operator.drills.cluster import DrillCluster
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
    """A drill that runs or ran. open: nobody confirmed that everything was taken back."""

    uid: str
    open: bool
    struck: tuple[StruckPod, ...]


def ledger_name(drill: str) -> str:
    """Of the ConfigMap of ``drill``."""
    return f"selvage-drill-{drill}"


class ClusterLedger:
    """``faults.drill.runner.Ledger`` of one run of ``drill``, which strikes ``struck``."""

    def __init__(self, cluster: DrillCluster, drill: Manifest, struck: Sequence[StruckPod]) -> None:
        self._cluster, self._drill, self._struck = cluster, drill, tuple(struck)
        self.opened = False

    def open(self) -> None:
        """Write that all of it may be in force; ClusterError where that cannot be done."""
        self._write({"state": "open"})
        self.opened = True

    def close(self, how: str) -> None:
        """Write that everything was taken back."""
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
    """The note of ``drill``; None without one. ClusterError where it is there and cannot be read."""
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
