"""Progress without a progress bar."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from scripts import progress
from tests.support.paths import ROOT


def test_a_long_step_is_seen_to_be_alive(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Redirected, lines appear while nothing changes, with share done and estimate; none afterwards."""
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
    """Before anything is done there is no estimate, and none at the end."""
    state = progress.ProgressLine("start", 2.0)
    assert "left" not in state.line()
    state.update(advance=2.0)
    assert state.line().startswith("start: 100 %")
    assert "left" not in state.line()


def test_work_aside_is_no_part_of_the_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    """During it there is no estimate, and afterwards its time does not count."""
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


def test_until_anything_is_done_what_is_left_is_by_the_trial(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The trial's seconds count down, never below 0, and measured ones replace them."""
    clock = [100.0]
    monkeypatch.setattr("scripts.progress.time.monotonic", lambda: clock[0])
    state = progress.ProgressLine("certifying", 1.0)
    clock[0] += 40.0
    state.expect(300.0)
    assert capsys.readouterr().err == "this will take about 5 minutes, by a trial on this machine\n"
    clock[0] += 100.0
    assert state.line() == "certifying: 0 % after 100 s, about 200 s left"
    clock[0] += 300.0
    assert state.line() == "certifying: 0 % after 400 s"
    state.update(done=0.8)
    assert state.line() == "certifying: 80 % after 400 s, about 100 s left"


def test_functions_that_are_compiled_are_told_and_no_part_of_the_estimate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The line shows that the compiler is at work, until the work itself continues."""
    told: list[Callable[[str], None]] = []
    clock = [100.0]

    @contextmanager
    def listening(tell: Callable[[str], None]) -> Iterator[None]:
        told.append(tell)
        yield

    monkeypatch.setattr("scripts.progress.time.monotonic", lambda: clock[0])
    monkeypatch.setattr("contracts.jit.report_compilations", listening)
    state = progress.ProgressLine("working", 2.0)
    with progress.compiling_aside(state):
        told[0]("one")
        clock[0] += 60.0
        assert state.line() == "compiling, for the first time: function 1: 0 % after 60 s"
        told[0]("other")
        assert "function 2" in state.line()
        state.update("working", done=0.0)
        clock[0] += 5.0
        state.update("working", done=1.0)
    assert state.line() == "working: 50 % after 65 s, about 5 s left"


def test_every_command_tells_its_progress_in_this_way() -> None:
    """rich's bar shows nothing if stderr is redirected: no other module uses one directly."""
    drawn = [path for path in (ROOT / "scripts").rglob("*.py") if "rich.progress" in path.read_text()]
    assert drawn == [ROOT / "scripts" / "progress.py"]
