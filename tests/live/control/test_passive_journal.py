"""Alarms of passive signals in the decision log and in its explanations."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from live.control.journal import Beginning, DecisionLog, PassiveJournal, read_log
from live.control.loop import ControlPorts, LiveController
from live.control.replay import replay
from live.observe.passive import PassiveAlarm, PassiveWatch
from policies.registry import make_configuration
from scripts.cli.main import app
from tests.support.fleets.builders import make_fleet, make_layout
from tests.support.fleets.fakes import ManualClock, ScriptedTelemetry
from tests.support.fleets.worlds import script

LAYOUT = make_layout(kernels=2, slices=1, per_kernel=1)
SETUP = make_configuration("hysteresis", make_fleet(LAYOUT))
ALARM = PassiveAlarm(
    replica="a-0",
    signal="long_answers",
    unit="tokens per answer",
    began=True,
    recent=120.0,
    usual=40.0,
    limit=42.0,
    observations=17,
    evidence_nats=12.5,
    threshold_nats=11.5,
)


def logged(folder: Path) -> float:
    """A log of five quiet ticks, with an alarm in the second that could first be written in the third."""
    log = DecisionLog(folder, Beginning(setup=SETUP, state=None, documents={"pool": "p"}, code_version="1"))
    watch, clock = PassiveWatch(), ManualClock(1.7e12)
    ports = ControlPorts(
        source=ScriptedTelemetry(script(LAYOUT, 5)), clock=clock, watchers=(log, PassiveJournal(log, watch))
    )
    one = LiveController(SETUP, ports)
    for number in range(5):
        if number == 1:
            watch._changes.append(ALARM)
        with pytest.MonkeyPatch.context() as patched:
            if number == 1:
                patched.setattr(DecisionLog, "alarmed", _full)
            one.step()
        assert ("no space" in one.last_error) == (number >= 1)
        clock.advance(1000.0)
    log.close()
    return 1.7e9 + 2.0


def _full(*_: object) -> None:
    raise OSError("no space left on device")


def test_an_alarm_is_logged_once_and_explained_with_its_numbers(tmp_path: Path) -> None:
    """Replica, signal, unit, numbers and evidence; unwritten alarms are written at the next turn."""
    at_s = logged(tmp_path)
    rows = read_log(tmp_path)
    assert [(row["now_s"], row["replica"]) for row in rows if row["kind"] == "passive"] == [(at_s, "a-0")]
    assert replay(rows, SETUP).identical
    said = CliRunner().invoke(app, ["explain", str(tmp_path)])
    assert said.exit_code == 0, said.output
    assert "long_answers of a-0: recently 120 tokens per answer, usually 40, at most 42" in said.output
    assert "12.5 of 11.5 nats from 17 observations" in said.output


@pytest.mark.parametrize(("after_s", "shown"), [(-1.0, False), (1.0, True)])
def test_a_tick_is_explained_with_the_alarms_in_force_then(
    tmp_path: Path, after_s: float, shown: bool
) -> None:
    """Only alarms that had begun by then."""
    at_s = logged(tmp_path)
    said = CliRunner().invoke(app, ["explain", str(tmp_path), "--at", str(at_s + after_s)])
    assert ("passive alarm long_answers of a-0" in said.output) == shown
