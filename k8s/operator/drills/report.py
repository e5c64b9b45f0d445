"""The status of a drill: conditions, phase and verdict."""

from __future__ import annotations

from typing import Any

from contracts.loading.files import json_text, plain
from contracts.scoring.measures import measures_plain
from contracts.scoring.timeline import timeline, timeline_plain, unknown_health
from faults.drill.outcome import DrillOutcome, DrillVerdict, outcome_json
from k8s.operator.drills.admission import DrillAdmission
from k8s.operator.drills.ledger import REPORT, ledger_name
from k8s.operator.status.conditions import ResourceCondition, condition
from k8s.resources.status import DrillPhase, drill_verdict_text

_HOLDS = {
    DrillVerdict.PASSED: True,
    DrillVerdict.FAILED: False,
    DrillVerdict.INCONCLUSIVE: None,
    DrillVerdict.INVALID: None,
}
#: A ConfigMap holds one MiB, and the report lies beside.
MOST_LINE_BYTES = 700_000
_OPEN = "the verdict comes when the drill has ended"


def waiting(verdict: DrillAdmission) -> tuple[tuple[ResourceCondition, ...], dict[str, Any]]:
    """Conditions and body of a drill that cannot run at present."""
    bad = verdict.resolved if verdict.accepted.status == "True" else verdict.accepted
    rest = (
        condition("Progressing", False, bad.reason, bad.message),
        condition("Passed", None, "Open", _OPEN),
    )
    return (verdict.accepted, verdict.resolved, *rest), {"phase": str(DrillPhase.PENDING)}


def running(
    verdict: DrillAdmission, phase: DrillPhase, told: str
) -> tuple[tuple[ResourceCondition, ...], dict[str, Any]]:
    """Of a drill under way, ``told`` being its last step."""
    rest = (condition("Progressing", True, str(phase), told), condition("Passed", None, "Open", _OPEN))
    return (verdict.accepted, verdict.resolved, *rest), {"phase": str(phase)}


def ended(
    verdict: DrillAdmission, name: str, outcome: DrillVerdict, reason: tuple[str, str]
) -> tuple[tuple[ResourceCondition, ...], dict[str, Any]]:
    """Of a drill that will not run again in this generation; ``reason``: one word, and for people."""
    word, told = reason
    rest = (
        condition(
            "Progressing",
            False,
            str(DrillPhase.DONE),
            "the drill has ended; apply it under another name to run it anew",
        ),
        condition("Passed", _HOLDS[outcome], word, told),
    )
    body = {
        "phase": str(DrillPhase.DONE),
        "verdict": drill_verdict_text(outcome),
        "report": f"configmap:{ledger_name(name)}/{REPORT}",
    }
    return (verdict.accepted, verdict.resolved, *rest), body


def outcome_content(outcome: DrillOutcome) -> dict[str, Any]:
    """The stored result of a judged drill: outcome, driving policy, and E5's measures until the undo.

    requests: number offered. aborted, stopped: why it ended early, "" if it did not.
    """
    run, record = outcome.run, outcome.run.record
    own = plain(
        {
            "injected_at_s": run.injected_at_s,
            "undone": run.undone,
            "undo_told": run.undo_told,
            "aborted": run.aborted,
            "stopped": run.stopped,
            "policy": record.policy,
            "seed": record.seed,
            "requests": int(record.offered.sum()),
            "measures": measures_plain(outcome.measures),
        }
    )
    return {**outcome_json(outcome), **own}


def outcome_line(outcome: DrillOutcome) -> str:
    """The drill as lines over time, JSON; "" where it is too long for a ConfigMap."""
    record = outcome.run.record
    text = json_text(timeline_plain(timeline(record, unknown_health(record), record.policy)))
    return text if len(text) <= MOST_LINE_BYTES else ""
