"""One running drill: the runner of ``faults.drill`` in a thread, on the pods of its pool."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass

from contracts.errors import SelvageError
from faults.drill.outcome import DrillOutcome, DrillVerdict, judge
from faults.drill.runner import run_drill
from k8s.operator.drills.admission import DrillAdmission, change_since
from k8s.operator.drills.fleet import ClusterFleet
from k8s.operator.drills.healer import OperatorHeals
from k8s.operator.drills.ledger import ClusterLedger
from k8s.operator.drills.report import outcome_content, outcome_line
from k8s.operator.objects import Manifest, Resources
from k8s.operator.status.log_fields import fields
from k8s.resources.status import DrillPhase
from live.drill.episode import Frame
from live.drill.target import LiveTarget

_LOG = logging.getLogger(__name__)
#: First word of a message of the runner -> phase in the status.
PHASES = {
    "before": DrillPhase.STEADY,
    "inject": DrillPhase.INJECTING,
    "verified": DrillPhase.INJECTING,
    "abort": DrillPhase.UNDOING,
    "undo": DrillPhase.UNDOING,
    "at": DrillPhase.HEALING,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedRun:
    """How a run ended. undone: none of its faults can still be in force."""

    verdict: DrillVerdict
    reason: str
    undone: bool


class DrillWork:
    """A run of ``drill`` while the operator heals. began: the objects on which ``verdict`` was based."""

    def __init__(
        self,
        drill: Manifest,
        verdict: DrillAdmission,
        began: Resources,
        fleet: ClusterFleet,
        ledger: ClusterLedger,
    ) -> None:
        assert verdict.site is not None
        self.drill, self.verdict, self.site, self._began = drill, verdict, verdict.site, began
        self.ended: EndedRun | None = None
        self.phase, self.told = DrillPhase.STEADY, "the load begins"
        self._fleet, self._ledger = fleet, ledger
        self._thread = threading.Thread(
            target=self._run, name=f"drill {drill['metadata']['name']}", daemon=True
        )

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def check(self, now: Resources) -> None:
        """Stop the run if an object that it depends on was deleted, replaced or changed."""
        if why := change_since(self.site, self._began, now):
            self.stop(f"{why}; apply the drill under another name to run it on what is there now")

    def stop(self, why: str) -> None:
        """End the run early; its faults are undone at once."""
        self._fleet.stopping = self._fleet.stopping or why

    def join(self, timeout_s: float) -> bool:
        """Wait at most ``timeout_s`` for the end; whether the thread has ended."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self.ended = self._drilled()
        except SelvageError as error:
            self.ended = EndedRun(
                verdict=DrillVerdict.INCONCLUSIVE, reason=str(error), undone=not self._ledger.opened
            )
        except Exception as error:  # a bug here must not hide a fault that is still in force
            _LOG.exception("drill %s failed", self.drill["metadata"]["name"])
            message = f"an unforeseen error ended it: {error!r}"
            self.ended = EndedRun(
                verdict=DrillVerdict.INCONCLUSIVE, reason=message, undone=not self._ledger.opened
            )

    def _drilled(self) -> EndedRun:
        site = self.site
        frame = Frame(
            plan=site.plan,
            layout=site.layout,
            contract=site.documents.contract.spec,
            policy=site.documents.policy.spec.policy,
            seed=site.drill.spec.seed,
            homes=site.homes,
        )
        healer = OperatorHeals(self._fleet.decisions, lambda: self._fleet.shares)
        target = LiveTarget(self._fleet, frame, healer)
        run = run_drill(site.plan, target, self._ledger, self._say)
        outcome = judge(site.plan, run)
        self._report(outcome)
        return EndedRun(verdict=outcome.verdict, reason=outcome.reason, undone=not self._ledger.opened)

    def _say(self, text: str) -> None:
        self.phase = PHASES.get(text.split()[0].rstrip(":"), self.phase)
        self.told = text
        name = self.drill["metadata"]["name"]
        _LOG.info("drill %s: %s", name, text, extra=fields(drill=name))

    def _report(self, outcome: DrillOutcome) -> None:
        try:
            self._ledger.report(outcome_content(outcome), outcome_line(outcome))
        except SelvageError as error:
            _LOG.warning("drill %s: the report was not kept: %s", self.drill["metadata"]["name"], error)
