"""Runs the FaultDrills of one namespace: level-based, one run per pool; undoes what lost runners left."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from faults.drill.outcome import DrillVerdict
from k8s.operator.drills.admission import (
    DrillAdmission,
    DrillPlace,
    judge_drill,
    refused_admission,
    unresolved_admission,
)
from k8s.operator.drills.cluster import FINALIZER, DrillCluster
from k8s.operator.drills.fleet import ClusterFleet, Entrance
from k8s.operator.drills.ledger import ClusterLedger, take_back
from k8s.operator.drills.pods import CHAOS_MESH, HAND_OVER, NETWORK_KINDS, Steering, uses_chaos_mesh
from k8s.operator.drills.report import ended, running, waiting
from k8s.operator.drills.work import DrillWork
from k8s.operator.objects import ClusterError, Manifest, Resources
from k8s.operator.status.conditions import ResourceCondition
from k8s.operator.status.publisher import Publication, Publisher
from k8s.resources.status import DrillPhase, drill_verdict_text

_LOG = logging.getLogger(__name__)
#: An undo waits so long for a pod that died, and what is under way of the load comes before it.
LEAVE_S = 240.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillParts:
    """Dependencies shared by the drills of one namespace. now_s: Unix time, for status."""

    cluster: DrillCluster
    place: DrillPlace
    entrance: Entrance
    steering: Steering
    now_s: Callable[[], float]


class Drills:
    """The FaultDrills of one namespace. Only the leader calls ``turn``."""

    def __init__(self, parts: DrillParts) -> None:
        self.parts = parts
        self.problem = ""
        """Error of the API server in the last turn, "" for none."""
        self._publisher = Publisher(parts.cluster)
        self._works: dict[str, DrillWork] = {}

    def turn(self) -> None:
        """Process every drill once. Failures of the API server raise nothing."""
        try:
            found, seen = self.parts.cluster.drills(), self.parts.cluster.resources()
        except ClusterError as error:
            self.problem = str(error)
            return
        self.problem = ""
        self._ended_unseen({str(one["metadata"]["uid"]) for one in found.values()})
        order = sorted(
            found.values(), key=lambda one: (one["metadata"]["creationTimestamp"], one["metadata"]["name"])
        )
        for drill in order:
            try:
                self._one(drill, seen)
            except ClusterError as error:
                self.problem = str(error)

    def leave(self, why: str = "the drill runner was stopped; apply the drill under another name") -> None:
        """End every run and wait for its undo, because another operator leads or this process ends."""
        for work in self._works.values():
            work.stop(why)
        deadline_at_s = time.monotonic() + LEAVE_S
        while self._works and time.monotonic() < deadline_at_s:
            for uid, work in list(self._works.items()):
                if work.join(0.2):
                    self._left(uid, work)
        self._works.clear()  # what is left is found by its finalizer

    def _left(self, uid: str, work: DrillWork) -> None:
        try:
            self._finish(uid, work)
        except ClusterError as error:
            _LOG.warning("drill %s: %s", work.drill["metadata"]["name"], error)
            self._works.pop(uid, None)

    def _one(self, drill: Manifest, seen: Resources) -> None:
        uid, metadata = str(drill["metadata"]["uid"]), drill["metadata"]
        work = self._works.get(uid)
        if work is not None:
            self._under_way(drill, work, seen)
        elif FINALIZER in (metadata.get("finalizers") or []):
            self._rescue(drill, seen)
        elif not metadata.get("deletionTimestamp") and not _is_done(drill):
            self._begin(drill, seen)

    def _under_way(self, drill: Manifest, work: DrillWork, seen: Resources) -> None:
        metadata = drill["metadata"]
        if metadata.get("deletionTimestamp"):
            work.stop("the drill was deleted")
        elif metadata["generation"] != work.drill["metadata"]["generation"]:
            work.stop("the drill was changed while it ran")
        work.check(seen)
        if work.ended is not None:
            self._finish(str(metadata["uid"]), work)
            return
        self._say(work.drill, running(work.verdict, work.phase, work.told))

    def _finish(self, uid: str, work: DrillWork) -> None:
        """Write how a run ended. If its undo was not confirmed, the finalizer stays."""
        assert work.ended is not None
        reason = drill_verdict_text(work.ended.verdict), work.ended.reason
        said = ended(work.verdict, work.drill["metadata"]["name"], work.ended.verdict, reason)
        if not self._say(work.drill, said):
            return  # not told yet: without it the drill would run again
        del self._works[uid]
        if work.ended.undone:
            self.parts.cluster.hold(work.drill, held=False)

    def _rescue(self, drill: Manifest, seen: Resources) -> None:
        """Undo faults that a lost runner may have left in force."""
        name, verdict = drill["metadata"]["name"], judge_drill(drill, seen, self.parts.place)
        try:
            told = take_back(self.parts.cluster, drill, self.parts.steering)
        except ClusterError as error:
            self._say(drill, running(verdict, DrillPhase.UNDOING, str(error)))
            raise
        reason = "RunnerLost", f"its runner was lost; {told}; apply it under another name to run it anew"
        if _is_done(drill) or self._say(drill, ended(verdict, name, DrillVerdict.INCONCLUSIVE, reason)):
            self.parts.cluster.hold(drill, held=False)

    def _begin(self, drill: Manifest, seen: Resources) -> None:
        verdict = judge_drill(drill, seen, self.parts.place)
        if verdict.site is None:
            self._say(drill, waiting(verdict))
            return
        if (other := self._on(verdict.site.drill.spec.pool)) is not None:
            message = (
                f"pool {verdict.site.drill.spec.pool}: drill {other} runs on it; delete this one, and apply "
                "it again when that one has ended"
            )
            taken = refused_admission("PoolTaken", message)
            reason = "PoolTaken", message
            self._say(drill, ended(taken, drill["metadata"]["name"], DrillVerdict.INVALID, reason))
            return
        handed = uses_chaos_mesh(drill)
        if handed and (problem := self._no_chaos(verdict)) is not None:
            self._say(drill, waiting(problem))
            return
        self._start(drill, verdict, seen, handed)

    def _start(self, drill: Manifest, verdict: DrillAdmission, seen: Resources, handed: bool) -> None:
        parts, site = self.parts, verdict.site
        assert site is not None
        own = replace(parts.steering, records=parts.steering.records / str(drill["metadata"]["uid"]))
        fleet = ClusterFleet(parts.cluster, site, parts.entrance, own, handed)
        if (problem := fleet.refusal()) is not None:
            self._say(drill, waiting(unresolved_admission(verdict, problem.reason, problem.message)))
            return
        ledger = ClusterLedger(parts.cluster, drill, fleet.take())
        parts.cluster.hold(drill, held=True)
        work = DrillWork(drill, verdict, seen, fleet, ledger)
        self._works[str(drill["metadata"]["uid"])] = work
        self._say(drill, running(verdict, work.phase, work.told))
        work.start()

    def _no_chaos(self, verdict: DrillAdmission) -> DrillAdmission | None:
        """What speaks against handing over; None for nothing."""
        assert verdict.site is not None
        if not any(one.fault.kind in NETWORK_KINDS for one in verdict.site.plan.strikes):
            message = (
                f"{HAND_OVER}: no fault of this drill is one of the network ({', '.join(NETWORK_KINDS)})"
            )
            return unresolved_admission(verdict, "NothingToHandOver", f"{message}; take the annotation away")
        if self.parts.cluster.has_chaos_mesh():
            return None
        message = (
            f"{HAND_OVER}: {CHAOS_MESH} is not installed here; install it, or take the annotation away and "
            "let the server itself be late"
        )
        return unresolved_admission(verdict, "ChaosMeshMissing", message)

    def _on(self, pool: str) -> str | None:
        """The drill that runs on ``pool``."""
        found = (one for one in self._works.values() if one.site.drill.spec.pool == pool)
        return next((str(one.drill["metadata"]["name"]) for one in found), None)

    def _ended_unseen(self, uids: set[str]) -> None:
        """End the runs of drills that were deleted in spite of their finalizer."""
        for uid, work in list(self._works.items()):
            if uid not in uids:
                work.stop("the drill is gone")
                if work.ended is not None:
                    del self._works[uid]

    def _say(self, drill: Manifest, said: tuple[tuple[ResourceCondition, ...], dict[str, Any]]) -> bool:
        """Write the status if that is due; returns whether it was written."""
        conditions, body = said
        return self._publisher.say(
            Publication(about=drill, conditions=conditions, body=body, key=body), self.parts.now_s()
        )


def _is_done(drill: Manifest) -> bool:
    status = drill.get("status") or {}
    return bool(
        status.get("phase") == DrillPhase.DONE
        and status.get("observedGeneration") == drill["metadata"]["generation"]
    )
