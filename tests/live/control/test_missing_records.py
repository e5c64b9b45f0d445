"""Records missing from a decision log: every reader reports them, and none gives a wrong result."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from live.control.chain import missing_records
from live.control.journal import Beginning, DecisionLog, read_log, segments
from live.control.loop import ControlPorts, LiveController
from live.control.replay import replay
from policies.registry import make_configuration
from scripts.cli.main import app
from tests.support.fleets.builders import make_fleet, make_layout
from tests.support.fleets.fakes import ManualClock, RecordingActuator, ScriptedTelemetry
from tests.support.fleets.worlds import drift, script

LAYOUT = make_layout(kernels=2, slices=1, per_kernel=2)
SETUP = make_configuration("hysteresis", make_fleet(LAYOUT))
TICKS = 60


class Disk:
    """A disk that is full in some ticks, and then writes half a line."""

    def __init__(self, full: range, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self._full, self._write = 0, full, os.write
        monkeypatch.setattr("live.control.chain.os.write", self.write)

    def write(self, number: int, content: bytes) -> int:
        """As os.write."""
        if self.now not in self._full:
            return self._write(number, content)
        if len(content) < 80:
            raise OSError(28, "No space left on device")
        return self._write(number, content[: len(content) // 2])


def record(folder: Path, disk: Disk | None = None, segment_bytes: int = 10**9) -> LiveController:
    """A run with a fault, with its log on ``disk``."""
    log = DecisionLog(
        folder, Beginning(setup=SETUP, state=None, documents={"pool": "p"}, code_version="1"), segment_bytes
    )
    clock = ManualClock()
    ports = ControlPorts(
        source=ScriptedTelemetry(script(LAYOUT, TICKS, drift(LAYOUT, [0, 1], 3.0))),
        clock=clock,
        actuator=RecordingActuator(),
        watchers=(log,),
    )
    one = LiveController(SETUP, ports)
    for at in range(TICKS):
        if disk is not None:
            disk.now = at
        one.step()
        clock.advance(1000.0)
    log.close()
    return one


def explained(folder: Path, *words: str) -> str:
    """Output of the command."""
    said = CliRunner().invoke(app, ["explain", str(folder), *words])
    assert said.exit_code == 0, said.output
    return said.output


@pytest.mark.parametrize("segment_bytes", [10**9, 1])
def test_a_log_on_a_disk_that_was_full_says_so_and_decides_again_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, segment_bytes: int
) -> None:
    """No half line stays; later records begin with the state they continue from, and name what is missing."""
    controller = record(tmp_path, Disk(range(10, 40), monkeypatch), segment_bytes)
    assert controller.errors == 30
    rows = read_log(tmp_path)
    found = replay(rows, SETUP)
    assert (found.identical, found.ticks) == (True, TICKS - 30)
    (missing,) = missing_records(rows)
    assert (missing.from_s, missing.to_s, missing.turns) == (10.0, 39.0, 30)
    told = "30 records from 10 to 39 s could not be written"
    assert told in explained(tmp_path)
    assert told in explained(tmp_path, "--at", "20")
    assert "plan" not in explained(tmp_path, "--at", "20")  # the tick before was not in force then
    assert told not in explained(tmp_path, "--at", "50")


def test_a_log_whose_oldest_files_were_removed_says_from_when_it_knows(tmp_path: Path) -> None:
    """Before its first record nothing is explained; the rest is replayed, byte by byte."""
    record(tmp_path, segment_bytes=1)
    for old in segments(tmp_path)[:20]:
        old.unlink()
    rows = read_log(tmp_path)
    assert replay(rows, SETUP).identical
    (missing,) = missing_records(rows)
    first_s = next(row["now_s"] for row in rows if row["kind"] == "tick")
    assert (missing.from_s, missing.to_s, missing.turns) == (None, first_s, None)
    told = f"records before {first_s:.0f} s are missing"
    assert told in explained(tmp_path)
    assert told in explained(tmp_path, "--at", str(first_s - 5.0))
    assert "plan" not in explained(tmp_path, "--at", str(first_s - 5.0))
    assert told not in explained(tmp_path, "--at", str(first_s + 1.0))
    plain = json.loads(explained(tmp_path, "--json"))
    assert plain["missing"] == [{"from_s": None, "to_s": first_s, "turns": None}]


def test_a_whole_log_misses_nothing(tmp_path: Path) -> None:
    """Several files of one log are no gap."""
    record(tmp_path, segment_bytes=1)
    assert len(segments(tmp_path)) > 2
    assert missing_records(read_log(tmp_path)) == ()
    assert "missing" not in explained(tmp_path)
