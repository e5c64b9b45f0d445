"""Alarms without moves appear in log, explanation, metrics and terminal all the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from controller.options import ControllerSetup
from live.control.alarm_log import AlarmTeller
from live.control.journal import Beginning, DecisionLog, PassiveJournal
from live.control.loop import ControlPorts, LiveController, Turn
from live.control.metrics import ControllerMetrics
from live.observe.passive import PassiveWatch
from live.observe.scrape_notes import UNREAD, ScrapeWatch
from live.ports import Unanswered
from policies.registry import make_configuration
from scripts.cli.main import app
from scripts.cli.run_reports.logged_alarms import quiet_alarms
from tests.live.control.test_passive_journal import ALARM
from tests.support.documents.passive_contracts import CLAUSE, LAYOUT, answers_seen, passive_fleet
from tests.support.fleets.builders import make_fleet
from tests.support.fleets.fakes import ManualClock, ScriptedTelemetry

TICKS = 80
WHERE = {"kernel": "half", "slice": "code", "clause": CLAUSE, "moves_traffic": "false"}


@pytest.fixture(scope="module")
def setup() -> ControllerSetup:
    """Two replicas under a contract with a clause of level L1 on users' answers."""
    fleet = passive_fleet()
    return make_configuration("sequential", make_fleet(LAYOUT, contract=fleet.contract, rates=fleet.rates))


@dataclass
class Told:
    """``TurnWatcher`` that keeps the terminal's lines, and whether anything moved."""

    teller: AlarmTeller
    lines: list[str] = field(default_factory=list)
    moved: int = 0

    def turn(self, turn: Turn) -> None:
        """Keep it."""
        assert turn.decision is not None
        self.moved += int(turn.decision.moved[0]) if turn.number > 1 else 0
        self.lines += self.teller.lines(turn)


def run(
    setup: ControllerSetup,
    folder: Path,
    ticks: int,
    watch: PassiveWatch | None = None,
    scrapes: ScrapeWatch | None = None,
) -> Any:
    """A controller for ``ticks`` seconds with half of the answers out of limits; its metrics and lines."""
    watch = watch or PassiveWatch()
    log = DecisionLog(folder, Beginning(setup=setup, state=None, documents={"pool": "p"}, code_version="1"))
    metrics, told = (
        ControllerMetrics(setup, observes=True, sent_tokens=dict),
        Told(AlarmTeller(setup, watch, scrapes)),
    )
    clock = ManualClock(1.7e12)
    one = LiveController(
        setup,
        ControlPorts(
            source=ScriptedTelemetry(answered(ticks)),
            clock=clock,
            watchers=(log, PassiveJournal(log, watch, scrapes), metrics, told),
        ),
    )
    for _ in range(ticks):
        one.step()
        clock.advance(1000.0)
    assert one.errors == 0, one.last_error
    log.close()
    return metrics.registry.get_sample_value, told


def answered(ticks: int) -> Iterator[Any]:
    """Every second answer is outside its past limits."""
    for at in range(ticks):
        yield answers_seen(1.7e9 + at, outside=at % 2)


def test_an_alarm_of_a_clause_that_informs_is_said_everywhere(setup: ControllerSetup, tmp_path: Path) -> None:
    """Nothing moves: explanation, JSON, metric and terminal name clause, kernel, slice and numbers."""
    read, told = run(setup, tmp_path, TICKS)
    assert told.moved == 0
    assert read("selvage_clause_alarm_bool", WHERE) == 1.0
    begun = [line for line in told.lines if CLAUSE in line]
    assert len(begun) == 1
    assert "half/code" in begun[0]
    assert begun[0].endswith("information, it moves nothing")
    said = CliRunner().invoke(app, ["explain", str(tmp_path)])
    assert said.exit_code == 0, said.output
    assert f"alarm {CLAUSE} on half/code from " in said.output
    assert "nothing was moved for it" in said.output
    plain = CliRunner().invoke(app, ["explain", str(tmp_path), "--json"])
    (one,) = [one for one in json.loads(plain.output)["alarms"] if one["clause_id"] == CLAUSE]
    assert (one["kernel"], one["slice"], one["times"], one["open"]) == ("half", "code", 1, True)
    assert one["estimate"] > one["limit"]


def test_an_incident_that_moved_nothing_can_be_bundled(setup: ControllerSetup, tmp_path: Path) -> None:
    """The page has the alarm, and the log's lines around it are in the folder."""
    run(setup, tmp_path / "log", TICKS)
    out = tmp_path / "out"
    said = CliRunner().invoke(app, ["explain", str(tmp_path / "log"), "--bundle", str(out)])
    assert said.exit_code == 0, said.output
    assert CLAUSE in (out / "incident.md").read_text()
    assert (out / "decisions.jsonl").read_text().count('"kind": "tick"') > TICKS // 2


def test_a_controller_that_begins_anew_knows_no_alarm_of_before(
    setup: ControllerSetup, tmp_path: Path
) -> None:
    """A passive alarm that was active when a controller was killed is not reported as lasting."""
    watch = PassiveWatch()
    watch._changes.append(ALARM)
    watch._alarmed["a-0", "long_answers"] = ALARM
    _, told = run(setup, tmp_path, 3, watch)
    assert sum("passive alarm long_answers of a-0: recently 120" in line for line in told.lines) == 1
    at_s = str(1.7e9 + 2.0)
    before = CliRunner().invoke(app, ["explain", str(tmp_path), "--at", at_s])
    assert "passive alarm" in before.output
    run(setup, tmp_path, 3)
    after = CliRunner().invoke(app, ["explain", str(tmp_path)])
    assert "long_answers of a-0 is known no more: the controller began anew" in after.output
    late = CliRunner().invoke(app, ["explain", str(tmp_path), "--at", str(1.7e9 + 10.0)])
    assert "passive alarm" not in late.output


def test_odd_scrapes_reach_log_terminal_and_explanation(setup: ControllerSetup, tmp_path: Path) -> None:
    """Server, anomaly and reason, that it is no fault; and when it is over, or no longer known."""
    failed = {"half-0": Unanswered(why="HTTP 503", times=UNREAD)}
    scrapes = ScrapeWatch(lambda: failed)
    scrapes.receive({})
    _, told = run(setup, tmp_path, 3, scrapes=scrapes)
    expected = "scrapes of half-0: no scrape of /metrics ended well: HTTP 503; no fault, it moves nothing"
    assert told.lines == [expected]
    at = CliRunner().invoke(app, ["explain", str(tmp_path), "--at", str(1.7e9 + 2.0)])
    assert expected in at.output
    failed.clear()
    scrapes.receive({})
    run(setup, tmp_path, 3, scrapes=scrapes)
    said = CliRunner().invoke(app, ["explain", str(tmp_path), "--json"])
    assert [one["began"] for one in json.loads(said.output)["scrapes"]] == [True, False, False]


def tick(now_s: float, alarms: str = "", moved: str = "", fresh: bool = False) -> dict[str, Any]:
    """A record with alarms on these slices, one letter each, and moves of these."""
    common = {"kernel": "k", "clause_id": "C", "estimate": now_s, "limit": None, "observations": 2.0}
    return {
        "now_s": now_s,
        "moves": [{"slice": name} for name in moved],
        "quarantined": [{"new": True}] if fresh else [],
        "evidence": [{**common, "slice": name} for name in alarms],
    }


def test_what_a_shown_tick_says_is_not_said_twice() -> None:
    """A move of the slice, or a quarantined replica, shows the alarms; other slices' moves do not."""
    course = [tick(1, "ab"), tick(2, "ab", moved="a"), tick(3, "b"), tick(4), tick(5, "b"), tick(6)]
    (one,) = quiet_alarms(course)
    assert (one.slice, one.times, one.from_s, one.to_s, one.estimate, one.open) == ("b", 2, 1, 5, 5, False)
    assert "C on k/b, 2 times, from 1 until 5: 5 against what is not known" in one.line(str)
    assert quiet_alarms([tick(1, "ab"), tick(2, "ab", fresh=True), tick(3, "ab")]) == ()
