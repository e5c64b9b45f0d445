"""Progress where no bar can be drawn."""

from __future__ import annotations

import re
import time

import pytest

from scripts import progress
from tests.support.paths import ROOT


def test_a_long_step_is_seen_to_be_alive(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Redirected, lines come while nothing changes, with the share done and an estimate; none afterwards."""
    monkeypatch.setattr(progress, "EVERY_S", 0.02)
    with progress.show_progress("working", 4.0) as state:
        state.update("half way", done=2.0)
        while not capsys.readouterr().err:
            time.sleep(0.01)
        time.sleep(0.1)
    said = capsys.readouterr().err.splitlines()
    assert said
    assert all(re.fullmatch(r"half way: 50 % after \d+ s, about \d+ s left", line) for line in said)
    time.sleep(0.1)
    assert not capsys.readouterr().err


def test_nothing_done_promises_nothing() -> None:
    """Without anything done there is no estimate, and none at the end."""
    state = progress.ProgressLine("start", 2.0)
    assert "left" not in state.line()
    state.update(advance=2.0)
    assert state.line().startswith("start: 100 %")
    assert "left" not in state.line()


def test_work_aside_is_no_part_of_the_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    """While it lasts nothing is said of what is left, and afterwards its time counts for nothing."""
    clock = [100.0]
    monkeypatch.setattr("scripts.progress.time.monotonic", lambda: clock[0])
    state = progress.ProgressLine("reference", 4.0)
    clock[0] += 10.0
    state.update(advance=1.0)
    state.aside("timing")
    clock[0] += 300.0
    assert state.line() == "timing: 25 % after 310 s"
    state.update("timed")
    assert state.line() == "timed: 25 % after 310 s, about 30 s left"
    clock[0] += 10.0
    state.update(advance=1.0)
    assert state.line() == "timed: 50 % after 320 s, about 20 s left"


def test_every_command_tells_its_progress_in_this_way() -> None:
    """A bar of rich's alone says nothing where stderr is redirected: no other module draws one."""
    drawn = [path for path in (ROOT / "scripts").rglob("*.py") if "rich.progress" in path.read_text()]
    assert drawn == [ROOT / "scripts" / "progress.py"]
