"""What a lost runner left in force, taken back by whoever finds its note."""

from __future__ import annotations

from faults.client.errors import DrillError
from faults.client.replica import Undone
from k8s.operator.drills.cluster import DrillCluster
from k8s.operator.drills.ledger import ClusterLedger, StruckPod, read_note
from k8s.operator.drills.pods import POD_KILL, Handed, PodFaults, Steering, drill_pods
from k8s.operator.objects import ClusterError, Manifest


def take_back(cluster: DrillCluster, drill: Manifest, steering: Steering) -> str:
    """Undo whatever the note of ``drill`` names; what was done, in words. Again without effect.

    ClusterError where an undo is not confirmed: the note then stays open.
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
    faults = PodFaults(cluster, pod, steering, lambda: None, Handed())
    try:
        return faults.undo(struck.fault["name"])
    except DrillError as error:
        raise ClusterError(
            f"{struck.fault['name']} on {struck.pod}: the undo is not confirmed: {error}"
        ) from error
