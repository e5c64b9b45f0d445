"""The outcome of a drill and its verdict: passed, failed, inconclusive or invalid. Pure.

Invalid: a fault was not proved, its proof was positive before the injection, or the fleet was not steady
before. Failed: an expectation or a guard was missed. Inconclusive: too few requests for a verdict.
``outcome_json`` is the stored form in every world.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from contracts.loading.files import plain
from contracts.scoring.episode import EpisodeRecord, truncate
from contracts.scoring.incident_measures import onset_row, outside_contract, outside_slo
from contracts.scoring.measures import EpisodeMeasures, failed_ratio, measure_episode
from contracts.scoring.quality import healthy_quality
from faults.drill.guards import GuardReading, latest, worst
from faults.drill.plan import DrillPlan

#: With fewer requests than this, before or during the fault, the verdict is inconclusive.
LEAST_REQUESTS = 20


class DrillVerdict(StrEnum):
    """The four possible results of a drill."""

    PASSED = "passed"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"
    INVALID = "invalid"


#: Exit code of each verdict.
EXIT_CODES = {
    DrillVerdict.PASSED: 0,
    DrillVerdict.FAILED: 1,
    DrillVerdict.INCONCLUSIVE: 3,
    DrillVerdict.INVALID: 4,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultEvidence:
    """Evidence of one fault. before: its proof taken before the injection, the negative control."""

    fault: str
    kind: str
    replicas: tuple[str, ...]
    before: bool
    happened: bool
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mended:
    """Whether a struck replica is verified: it answers as before the fault, cold and from its cache.

    healed None: not known yet. lines: the steps taken, with times in s since the start of the drill.
    """

    replica: str
    healed: bool | None
    told: str
    lines: tuple[tuple[float, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillRun:
    """The data of a finished drill. Times in s from its start; NaN for events that did not happen."""

    record: EpisodeRecord
    faults: tuple[FaultEvidence, ...]
    injected_at_s: float = math.nan
    undone_at_s: float = math.nan
    undone: bool = True
    undo_told: str = ""
    mended: tuple[Mended, ...] = ()
    aborted: str = ""  # the guard that ended it
    invalid: str = ""  # why it is not a valid experiment
    stopped: str = ""  # why it could not be finished


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillCheck:
    """One condition that was judged. passed None: it could not be judged."""

    name: str
    passed: bool | None
    expected: str
    actual: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillOutcome:
    """A judged drill. measures: those of E5, up to the undo; recovered_s: see ``recovery_s``."""

    verdict: DrillVerdict
    reason: str
    checks: tuple[DrillCheck, ...]
    measures: EpisodeMeasures
    recovered_s: float
    run: DrillRun


def judge(plan: DrillPlan, run: DrillRun) -> DrillOutcome:
    """The verdict on ``run``."""
    until_undo = run.record if math.isnan(run.undone_at_s) else truncate(run.record, run.undone_at_s)
    measures = measure_episode(until_undo, healthy_quality(until_undo))
    recovered_s = recovery_s(until_undo)
    checks = (
        *_steady(plan, run),
        *_expected(plan, until_undo, measures, recovered_s),
        DrillCheck(name="undone", passed=run.undone, expected="everything taken back", actual=run.undo_told),
        *_healed(plan, run),
    )
    verdict, reason = _verdict(run, until_undo, checks)
    return DrillOutcome(
        verdict=verdict, reason=reason, checks=checks, measures=measures, recovered_s=recovered_s, run=run
    )


def recovery_s(record: EpisodeRecord) -> float:
    """Seconds from the onset until every slice stays within contract and objectives to the end; inf: never.

    As E5's time to recovery, but to the end of the record instead of for a minute: a drill may be short.
    At least the last second must be within.
    """
    start = onset_row(record)
    outside = np.asarray((outside_contract(record) | outside_slo(record)).any(axis=1))[start:]
    if not outside.size or outside[-1]:
        return math.inf
    last = int(np.flatnonzero(outside)[-1]) + 1 if outside.any() else 0
    at_s = (start + last) * record.tick_s
    return max(0.0, at_s - record.incident.onset_at_s) if record.incident and last else 0.0


def _verdict(
    run: DrillRun, record: EpisodeRecord, checks: tuple[DrillCheck, ...]
) -> tuple[DrillVerdict, str]:
    invalid = run.invalid or _unproved(run)
    if invalid:
        early = f"; it ended early: {run.stopped}" if run.stopped else ""
        return DrillVerdict.INVALID, f"{invalid}{early}"
    missed = [check for check in checks if check.passed is False]
    if run.aborted:
        return DrillVerdict.FAILED, f"ended early: {run.aborted}"
    if run.stopped:
        return DrillVerdict.INCONCLUSIVE, run.stopped
    if missed:
        return DrillVerdict.FAILED, "; ".join(
            f"{one.name}: {one.actual}, not {one.expected}" for one in missed
        )
    start = onset_row(record)
    phases = (record.offered[:start], record.offered[start:]) if run.faults else (record.offered,)
    fewest = min(one.sum() for one in phases)
    if fewest < LEAST_REQUESTS:
        return DrillVerdict.INCONCLUSIVE, f"only {int(fewest)} requests in a phase, not {LEAST_REQUESTS}"
    open_checks = [check for check in checks if check.passed is None]
    if open_checks:
        return DrillVerdict.INCONCLUSIVE, "; ".join(f"{one.name}: {one.actual}" for one in open_checks)
    return DrillVerdict.PASSED, "every expectation was met"


def _unproved(run: DrillRun) -> str:
    for fault in run.faults:
        if fault.before:
            return f"{fault.fault}: the proof says yes before the injection: {fault.evidence}"
        if not fault.happened:
            return f"{fault.fault}: not shown to have happened: {fault.evidence}"
    return ""


def _steady(plan: DrillPlan, run: DrillRun) -> list[DrillCheck]:
    record, guards = run.record, plan.spec.steady_state
    start = onset_row(record)
    undone = _row(record, run.undone_at_s)
    found: list[tuple[str, GuardReading]] = []
    for guard in guards:
        if "before" in guard.phases:
            found.append(("before", worst(record, guard, 0, start)))
        if "during" in guard.phases and undone > start:
            found.append(("during", worst(record, guard, start, undone)))
        if "after" in guard.phases and undone < len(record.table):
            found.append(("after", latest(record, guard, undone)))
    return [_guard_check(phase, reading) for phase, reading in found]


def _healed(plan: DrillPlan, run: DrillRun) -> list[DrillCheck]:
    """One check per struck replica: healed means verified; an unverified replica leaves the verdict open."""
    probes = plan.spec.undo.verify_probes
    return [
        _check(f"healed {one.replica}", one.healed, f"{probes} generation probes as before", one.told)
        for one in run.mended
    ]


def _guard_check(phase: str, reading: GuardReading) -> DrillCheck:
    guard = reading.guard
    word = "at most" if guard.sense == "at_most" else "at least"
    return DrillCheck(
        name=f"{guard.name} {phase}",
        passed=reading.holds,
        expected=f"{guard.metric} {word} {guard.threshold:g}",
        actual=reading.text,
    )


def _expected(
    plan: DrillPlan, record: EpisodeRecord, measures: EpisodeMeasures, recovered_s: float
) -> list[DrillCheck]:
    wanted, incident = plan.spec.expect, measures.incident
    found: list[DrillCheck] = []
    if wanted.moved_within_s is not None:
        moved = "" if incident is None else f"{incident.detection_lag_s:g} s"
        hurt = incident is not None and not incident.mitigated
        seen = incident is not None and incident.detected
        passed = (seen and incident.detection_lag_s <= wanted.moved_within_s) if incident and hurt else None
        actual = (moved if seen else "never") if hurt else "nothing broken carried traffic"
        found.append(_check("moved", passed, f"within {wanted.moved_within_s:g} s", actual))
    if wanted.recovered_within_s is not None:
        actual = "never" if math.isinf(recovered_s) else f"{recovered_s:g} s"
        expected = f"within {wanted.recovered_within_s:g} s"
        passed = recovered_s <= wanted.recovered_within_s if incident is not None else None
        found.append(_check("recovered", passed, expected, actual))
    if wanted.failed_ratio_at_most is not None:
        found.append(_most("failed", failed_ratio(record, onset_row(record)), wanted.failed_ratio_at_most))
    if wanted.false_switches_at_most is not None:
        count = float(measures.switches.false_switches)
        found.append(_most("false switches", count, float(wanted.false_switches_at_most)))
    if wanted.quality_at_least is not None:
        value, least = measures.quality.preservation, wanted.quality_at_least
        known = None if math.isnan(value) else value >= least
        found.append(_check("quality preserved", known, f"at least {least:g}", f"{value:.4g}"))
    return found


def _most(name: str, value: float, limit: float) -> DrillCheck:
    passed = None if math.isnan(value) else value <= limit
    return _check(name, passed, f"at most {limit:g}", f"{value:.4g}")


def _check(name: str, passed: bool | None, expected: str, actual: str) -> DrillCheck:
    return DrillCheck(name=name, passed=passed, expected=expected, actual=actual)


def _row(record: EpisodeRecord, at_s: float) -> int:
    rows = len(record.table)
    return rows if math.isnan(at_s) else min(rows, math.ceil(at_s / record.tick_s - 1e-9))


def outcome_json(outcome: DrillOutcome) -> dict[str, Any]:
    """Verdict and reason, checks, faults with their proofs, and the times of undo, healing and recovery.

    Times are seconds; null for events that did not happen.
    """
    run = outcome.run
    found: dict[str, Any] = plain(
        {
            "verdict": outcome.verdict.value,
            "reason": outcome.reason,
            "checks": [asdict(check) for check in outcome.checks],
            "faults": [asdict(fault) for fault in run.faults],
            "undone_at_s": run.undone_at_s,
            "mended": [asdict(one) for one in run.mended],
            "recovered_s": outcome.recovered_s,
        }
    )
    return found
