"""What a drill's status says: conditions, phase and verdict."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from contracts.loading.files import plain
from faults.drill.outcome import DrillOutcome, Verdict
from k8s.operator.conditions import Condition, condition
from k8s.operator.drills.admission import DrillVerdict
from k8s.operator.drills.ledger import REPORT, ledger_name

_HOLDS = {Verdict.PASSED: True, Verdict.FAILED: False, Verdict.INCONCLUSIVE: None, Verdict.INVALID: None}
_OPEN = "the verdict comes when the drill has ended"


def waiting(verdict: DrillVerdict) -> tuple[tuple[Condition, ...], dict[str, Any]]:
    """Conditions and body of a drill that cannot run as things stand."""
    bad = verdict.resolved if verdict.accepted.status == "True" else verdict.accepted
    rest = (
        condition("Progressing", False, bad.reason, bad.message),
        condition("Passed", None, "Open", _OPEN),
    )
    return (verdict.accepted, verdict.resolved, *rest), {"phase": "Pending"}


def running(verdict: DrillVerdict, phase: str, told: str) -> tuple[tuple[Condition, ...], dict[str, Any]]:
    """Of a drill under way, ``told`` being its last step."""
    rest = (condition("Progressing", True, phase, told), condition("Passed", None, "Open", _OPEN))
    return (verdict.accepted, verdict.resolved, *rest), {"phase": phase}


def ended(
    verdict: DrillVerdict, name: str, outcome: Verdict, reason: tuple[str, str]
) -> tuple[tuple[Condition, ...], dict[str, Any]]:
    """Of a drill that will not run again in this generation; ``reason``: one word, and for people."""
    word, told = reason
    rest = (
        condition(
            "Progressing", False, "Done", "the drill has ended; apply it under another name to run it anew"
        ),
        condition("Passed", _HOLDS[outcome], word, told),
    )
    body = {
        "phase": "Done",
        "verdict": outcome.capitalize(),
        "report": f"configmap:{ledger_name(name)}/{REPORT}",
    }
    return (verdict.accepted, verdict.resolved, *rest), body


def outcome_content(outcome: DrillOutcome) -> dict[str, Any]:
    """What is kept of a judged drill: verdict, checks and evidence, as plain JSON."""
    run = outcome.run
    content = {
        "verdict": str(outcome.verdict),
        "reason": outcome.reason,
        "checks": [
            {"name": one.name, "passed": one.passed, "expected": one.expected, "actual": one.actual}
            for one in outcome.checks
        ],
        "faults": [
            {
                "fault": one.fault, "kind": one.kind, "replicas": list(one.replicas), "before": one.before,
                "happened": one.happened, "evidence": one.evidence,
            }
            for one in run.faults
        ],
        "injected_at_s": run.injected_at_s,
        "undone_at_s": run.undone_at_s,
        "undone": run.undone,
        "undo_told": run.undo_told,
        "recovered_s": outcome.recovered_s,
        "mended": [asdict(one) for one in run.mended],
    }  # fmt: skip
    found: dict[str, Any] = plain(content)
    return found
