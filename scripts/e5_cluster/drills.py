"""One FaultDrill of an experiment: applied, awaited, read and deleted."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from contracts.loading.untrusted import MALFORMED
from contracts.scoring.measures import EpisodeMeasures, measures_of
from contracts.scoring.timeline import Timeline, timeline_of
from faults.drill.outcome import DrillVerdict
from faults.drill.plan import DrillPlan
from k8s.operator.drills.ledger import LINE, REPORT, ledger_name, read_note
from k8s.operator.objects import Manifest
from k8s.resources.status import DrillPhase
from scripts.e5_cluster.ports import ExperimentCluster, ExperimentError, Waiting
from scripts.e5_drills.plan import DrillEpisode
from scripts.e5_drills.results import EpisodeResult

#: Annotation of a drill of an experiment: its RoutePolicy.
OF_POLICY = "selvage.dev/e5-policy"
#: Time limits, s: runner notices the drill; requirements met; time beyond the drill's own; deletion.
SEEN_S, PENDING_S, BESIDE_S, GONE_S = 60.0, 120.0, 300.0, 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedDrill:
    """How a drill ended. content: its report, None if none was kept; line: over time, None for none."""

    verdict: str
    reason: str
    content: Mapping[str, Any] | None
    line: Mapping[str, Any] | None


class DrillCourse:
    """Drills of one RoutePolicy, one at a time. say: receives progress of a drill."""

    def __init__(
        self, cluster: ExperimentCluster, policy: str, waiting: Waiting, say: Callable[[str], None]
    ) -> None:
        self._cluster, self._policy, self._waiting, self._say = cluster, policy, waiting, say
        self._phase = ""

    def run(self, drill: Manifest, plan: DrillPlan) -> EndedDrill:
        """Apply ``drill``, wait for its end and delete it, whatever happens.

        ExperimentError if no operator runs it, or if it does not end in time.
        """
        metadata = {**drill["metadata"], "annotations": {OF_POLICY: self._policy}}
        name, self._phase = str(metadata["name"]), ""
        what = f"FaultDrill {name}"
        self.clear((name,))
        try:
            made = self._waiting.answer(lambda: self._applied({**drill, "metadata": metadata}), what)
            self._waiting.until(lambda: self._unseen(name), SEEN_S, what)
            self._waiting.until(lambda: self._pending(name), PENDING_S, what)
            within_s = plan.latest_at_s + plan.load.timeout_s + BESIDE_S
            self._waiting.until(lambda: self._running(name), within_s, what)
            return self._waiting.answer(lambda: self._ended(made), what)
        finally:
            self.clear((name,))

    def clear(self, names: Sequence[str] | None = None) -> list[str]:
        """Delete drills of these names, None: all of this RoutePolicy, and wait until each is undone.

        Returns the deleted ones.
        """
        found = self._waiting.answer(self._ours, "FaultDrills") if names is None else list(names)
        for name in found:
            self._waiting.until(partial(self._there, name), GONE_S, f"FaultDrill {name}")
        return found

    def _there(self, name: str) -> str:
        """Delete a drill if it exists, and report it."""
        if self._cluster.drill(name) is None:
            return ""
        self._cluster.delete_drill(name)
        return "its undo is not confirmed; see `kubectl describe faultdrill`, and that its runner runs"

    def _applied(self, drill: Manifest) -> Manifest:
        """The drill as the server has it, even if the answer to its creation was lost."""
        found = self._cluster.drill(drill["metadata"]["name"])
        return self._cluster.create_drill(drill) if found is None else found

    def _ours(self) -> list[str]:
        return [
            name
            for name, one in self._cluster.drills().items()
            if (one["metadata"].get("annotations") or {}).get(OF_POLICY) == self._policy
        ]

    def _status(self, name: str) -> dict[str, Any]:
        found = self._cluster.drill(name)
        if found is None:
            raise ExperimentError(f"FaultDrill {name}: it was deleted during the run; run again")
        status = dict(found.get("status") or {})
        if int(status.get("observedGeneration", 0)) != int(found["metadata"]["generation"]):
            return {}
        phase = str(status.get("phase", ""))
        if phase != self._phase:
            self._phase = phase
            self._say(f"{name}: {phase}")
        return status

    def _unseen(self, name: str) -> str:
        return "" if self._status(name) else "no drill runner has looked at it; apply the drills component"

    def _pending(self, name: str) -> str:
        """Why the drill does not begin yet; ExperimentError if it never will."""
        status = self._status(name)
        if status.get("phase") != "Pending":
            return ""
        conditions = {one["type"]: one for one in status.get("conditions") or []}
        accepted, resolved = conditions.get("Accepted", {}), conditions.get("ResolvedRefs", {})
        if accepted.get("status") == "False":
            raise ExperimentError(f"FaultDrill {name} is not accepted: {accepted.get('message')}")
        return str(resolved.get("message", "it waits"))

    def _running(self, name: str) -> str:
        phase = self._status(name).get("phase")
        return "" if phase == DrillPhase.DONE else f"it is at {phase}"

    def _ended(self, made: Manifest) -> EndedDrill:
        """The report of the same drill that was created; a drill that never ran has none."""
        name = str(made["metadata"]["name"])
        status = self._status(name)
        passed: dict[str, Any] = next(
            (o for o in status.get("conditions") or [] if o["type"] == "Passed"), {}
        )
        note = read_note(self._cluster, name)
        data: dict[str, str] = {}
        if note is not None and note.uid == made["metadata"]["uid"]:
            data = dict((self._cluster.read_config(ledger_name(name)) or {}).get("data") or {})
        return EndedDrill(
            verdict=str(status.get("verdict", DrillVerdict.INVALID)).lower(),
            reason=str(passed.get("message", "no reason was given")),
            content=_object(data.get(REPORT, "")),
            line=_object(data.get(LINE, "")),
        )


def result_of(
    episode: DrillEpisode, ended: EndedDrill, drove: str, served_by: tuple[str, ...]
) -> EpisodeResult:
    """``ended`` as E5 counts it: up to the undo, and only if the undo was on time.

    A drill that its guard ended has a shorter window than the others; it does not count, and says so.
    """
    content = ended.content or {}
    measures, requests, why_not = None, 0, "no report was kept"
    evidence: tuple[str, ...] = ()
    try:
        if ended.content is not None:
            measures, why_not = _measures(content, episode), _ended_early(content)
            evidence = tuple(str(one["evidence"]) for one in content["faults"])
            requests = int(content["requests"])
    except MALFORMED as error:
        why_not = f"its report cannot be read: {error}"
    usable = not why_not and ended.verdict != DrillVerdict.INVALID
    return EpisodeResult(
        episode=episode,
        measures=measures if usable else None,
        verdict=ended.verdict,
        reason="; ".join(filter(None, (ended.reason, why_not))),
        evidence=(*evidence, f"{drove} drove"),
        requests=requests,
        line=_line(ended.line, episode.configuration.name),
        served_by=served_by,
    )


def _measures(content: Mapping[str, Any], episode: DrillEpisode) -> EpisodeMeasures:
    """Measures in the report of ``episode``'s drill; ValueError if its policy, load or pool differ."""
    measures = measures_of(content["measures"])
    found = [content["policy"], content["seed"], len(measures.kept_by_slice)]
    expected = [episode.configuration.policy, episode.seed, len(episode.entry.pool.spec.home)]
    if found != expected:
        raise ValueError(f"expected policy, seed and number of slices {expected}, got {found}")
    return measures


def _ended_early(content: Mapping[str, Any]) -> str:
    return "its window is shorter than that of others" if content["aborted"] or content["stopped"] else ""


def _line(found: Mapping[str, Any] | None, policy: str) -> Timeline | None:
    try:
        return None if found is None else timeline_of({**found, "policy": policy})
    except MALFORMED:
        return None


def _object(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text) if text else None
    except MALFORMED:
        return None
    return found if isinstance(found, dict) else None
