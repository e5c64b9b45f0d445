"""A drill goes through its phases, and its faults are undone whatever happens."""

from __future__ import annotations

from typing import Any

import pytest

from faults.drill.outcome import DrillOutcome, DrillVerdict, judge
from faults.drill.plan import DrillPlan
from faults.drill.runner import run_drill
from tests.support.fleets.drill_runs import (
    TOTAL_S,
    UNDO_S,
    NotedLedger,
    ScriptedTarget,
    drill_plan,
    healed_record,
)
from tests.support.fleets.episodes import quiet_record

IN_ORDER = ["begin", "ledger open", "inject bad", "undo bad", "ledger undone", "end"]


def judged(target: ScriptedTarget, plan: DrillPlan | None = None, **changes: Any) -> DrillOutcome:
    """The outcome of a scripted drill."""
    plan = plan or drill_plan(**changes)
    return judge(plan, run_drill(plan, target, NotedLedger(target.told), lambda _: None))


def test_what_may_be_in_force_is_written_down_before_it_is() -> None:
    """Ledger, injection, undo and the ledger's end come in this order, and a quiet drill passes."""
    target = ScriptedTarget()
    outcome = judged(target, expect={"moved_within_s": 15.0, "recovered_within_s": 15.0})
    assert target.told == IN_ORDER
    assert (outcome.verdict, outcome.run.injected_at_s, outcome.run.undone_at_s) == (
        DrillVerdict.PASSED,
        20.0,
        60.0,
    )
    assert outcome.recovered_s == 10.0


def test_a_missed_expectation_fails() -> None:
    """Traffic moved after ten seconds; nine were allowed."""
    outcome = judged(ScriptedTarget(), expect={"moved_within_s": 9.0})
    assert outcome.verdict is DrillVerdict.FAILED
    assert "moved" in outcome.reason


def test_a_fault_that_is_not_shown_makes_the_drill_invalid() -> None:
    """Without a proof the drill is invalid, whatever else happened."""
    outcome = judged(ScriptedTarget(shows_after=False))
    assert outcome.verdict is DrillVerdict.INVALID
    assert "not shown" in outcome.reason


def test_a_proof_that_says_yes_beforehand_injects_nothing() -> None:
    """The negative control ends the drill before the injection."""
    target = ScriptedTarget(shows_before=True)
    assert judged(target).verdict is DrillVerdict.INVALID
    assert target.told == ["begin", "end"]


def test_a_fleet_that_is_not_steady_is_left_alone() -> None:
    """If the hypothesis does not hold beforehand the drill is invalid, and nothing is injected."""
    record = healed_record()
    record.failed[5:15] += 10
    target = ScriptedTarget(episode=record)
    outcome = judged(target)
    assert (outcome.verdict, target.told) == (DrillVerdict.INVALID, ["begin", "end"])
    assert "not steady" in outcome.reason


def test_a_fleet_whose_steadiness_is_unknown_is_left_alone() -> None:
    """A guard that must hold beforehand and has no value, as no request ended, is not taken as kept."""
    record = healed_record()
    for counted in (record.answered, record.failed, record.shed):
        counted[:20] = 0
    target = ScriptedTarget(episode=record)
    outcome = judged(target)
    assert (outcome.verdict, target.told) == (DrillVerdict.INVALID, ["begin", "end"])
    assert "not steady before the injection: answers: no request ended" in outcome.reason


def test_a_guard_ends_the_drill_early() -> None:
    """An outage is undone within a second, and the drill has failed."""
    record = healed_record()
    record.failed[30:40] += 100
    outcome = judged(ScriptedTarget(episode=record))
    assert outcome.verdict is DrillVerdict.FAILED
    assert outcome.run.undone_at_s == 31.0
    assert "outage" in outcome.reason


def test_a_signal_undoes_before_it_goes_on() -> None:
    """Ctrl-C in the middle leaves nothing in force."""
    target = ScriptedTarget(stop_at_s=30.0)
    with pytest.raises(KeyboardInterrupt):
        judged(target)
    assert target.told == IN_ORDER


def test_a_fleet_that_goes_away_leaves_the_question_open() -> None:
    """A lost target gives no verdict; the undo is tried all the same."""
    target = ScriptedTarget(gone_at_s=30.0)
    assert judged(target).verdict is DrillVerdict.INCONCLUSIVE
    assert target.told == IN_ORDER


def test_a_refused_injection_is_taken_back() -> None:
    """A failed call may have arrived: it is undone, and the drill is invalid."""
    target = ScriptedTarget(refuses=True)
    assert judged(target).verdict is DrillVerdict.INVALID
    assert target.told == IN_ORDER


def test_an_undo_that_is_not_clean_fails_and_stays_noted() -> None:
    """The ledger stays open for the next start."""
    target = ScriptedTarget(clean=False)
    assert judged(target).verdict is DrillVerdict.FAILED
    assert "ledger undone" not in target.told


def test_an_undo_that_a_busy_server_refused_is_tried_again() -> None:
    """It is confirmed later, and this is reported; then replicas are verified, and the note is closed."""
    target, said = ScriptedTarget(busy_until_s=UNDO_S + 12.0), list[str]()
    plan = drill_plan()
    outcome = judge(plan, run_drill(plan, target, NotedLedger(target.told), said.append))
    assert outcome.verdict is DrillVerdict.PASSED, outcome.reason
    assert outcome.run.undo_told == "as scripted, at try 13, 12 s after the first"
    assert [one.healed for one in outcome.run.mended] == [True]
    assert target.told[-2:] == ["ledger undone", "end"]
    assert len([line for line in said if line.startswith("undo at")]) == 2
    assert target.now_s == UNDO_S + 12 + 20


def test_a_late_undo_lengthens_no_drill_beyond_its_load() -> None:
    """If no replica is verified either, the drill ends at the plan's latest time."""
    target = ScriptedTarget(busy_until_s=UNDO_S + 12.0, heals_at_s=float("inf"))
    assert judged(target).verdict is DrillVerdict.INCONCLUSIVE
    assert target.now_s == drill_plan().latest_at_s


@pytest.mark.parametrize("how", ["refuses", "gone"])
def test_an_undo_is_tried_for_a_while_and_not_for_ever(how: str) -> None:
    """A refused injection is undone with the same patience; a fleet that is gone is tried once."""
    late = {"refuses": True} if how == "refuses" else {"gone_at_s": 30.0}
    target = ScriptedTarget(busy_until_s=1e9, **late)
    outcome = judged(target)
    assert not outcome.run.undone
    assert "ledger undone" not in target.told
    tries = target.told.count("undo bad")
    assert tries == 1 if how == "gone" else 20 <= tries <= 40


def test_nothing_more_is_injected_into_what_is_to_be_ended() -> None:
    """A guard that is broken when the next fault is due ends the drill before it."""
    record = healed_record()
    record.failed[30:40] += 100
    faults = [
        {"name": name, "kind": "hang", "target": {"kernel": "fast", "replica": 0}, "onset_s": onset_s}
        for name, onset_s in (("bad", 20.0), ("worse", 31.0))
    ]
    target = ScriptedTarget(episode=record)
    outcome = judged(target, faults=faults)
    assert (outcome.verdict, outcome.run.undone_at_s) == (DrillVerdict.FAILED, 31.0)
    assert "inject worse" not in target.told
    assert target.told.count("undo bad") == 1
    assert "outage" in outcome.reason


def test_a_fault_that_ends_before_its_time_makes_no_experiment() -> None:
    """It is undone at once, and the reason is not a failed injection."""
    target = ScriptedTarget(ends_at_s=40.0)
    outcome = judged(target)
    assert (outcome.verdict, outcome.reason) == (DrillVerdict.INVALID, "cut short: bad ended by itself")
    assert (target.told, outcome.run.undone_at_s) == (IN_ORDER, 40.0)


def test_a_note_that_cannot_be_closed_takes_no_verdict_away() -> None:
    """A full disk at the end is reported; the next start undoes again."""
    target, plan = ScriptedTarget(), drill_plan()
    run = run_drill(plan, target, NotedLedger(target.told, full_at_the_end=True), lambda _: None)
    outcome = judge(plan, run)
    assert outcome.verdict is DrillVerdict.PASSED
    assert "stays open: No space left on device" in run.undo_told


def test_without_room_for_the_note_nothing_is_injected() -> None:
    """A full disk ends the drill before the fault."""
    target, plan = ScriptedTarget(), drill_plan()
    with pytest.raises(OSError, match="No space"):
        run_drill(plan, target, NotedLedger(target.told, full=True), lambda _: None)
    assert target.told == ["begin", "end"]


def test_too_few_requests_say_nothing() -> None:
    """Nineteen requests before the fault leave the drill inconclusive."""
    record = healed_record()
    record.offered[:20] = 0
    record.offered[0, 0] = 19
    assert judged(ScriptedTarget(episode=record)).verdict is DrillVerdict.INCONCLUSIVE


def test_a_fault_that_breaks_nothing_gives_no_time_to_move() -> None:
    """If the truth never breaks the contract, a time to move cannot be judged."""
    target = ScriptedTarget(episode=quiet_record(80))
    assert judged(target, expect={"moved_within_s": 9.0}).verdict is DrillVerdict.INCONCLUSIVE


def test_the_end_of_the_drill_follows_its_undo() -> None:
    """The phase after lasts as long as the document says, also after an early end."""
    target = ScriptedTarget()
    judged(target)
    assert target.now_s == UNDO_S + 20


def test_healed_means_verified() -> None:
    """A drill with an unverified replica has failed; if that is unknown, it is inconclusive and says so."""
    failed = judged(ScriptedTarget(heals=False))
    assert failed.verdict is DrillVerdict.FAILED
    assert "healed fast-0" in failed.reason
    unknown = ScriptedTarget(heals_at_s=float("inf"))
    still_open = judged(unknown)
    assert still_open.verdict is DrillVerdict.INCONCLUSIVE
    assert "healed fast-0" in still_open.reason
    assert unknown.now_s == drill_plan().latest_at_s


def test_a_drill_waits_for_its_replicas_and_no_longer() -> None:
    """Verified after the usual end, the drill ends there, and every line is printed once."""
    target, said = ScriptedTarget(heals_at_s=TOTAL_S + 10.0), list[str]()
    run = run_drill(drill_plan(), target, NotedLedger(target.told), said.append)
    assert target.now_s == TOTAL_S + 10.0
    assert [one.healed for one in run.mended] == [True]
    assert said.count("at 61 s: said once") == 1
