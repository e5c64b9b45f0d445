"""The decision log: complete after a crash at any byte, refused if altered, replayed byte by byte."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from contracts.errors import DocumentError, StateError
from contracts.telemetry import FleetTelemetry
from controller.options import ControllerSetup
from live.control.chain import ChainWriter, read_chain
from live.control.journal import Beginning, DecisionLog, read_log, record_texts, segments
from live.control.loop import ControlPorts, LiveController
from live.control.replay import replay, what_if
from live.control.telemetry_json import telemetry_from_json, telemetry_to_json
from policies.registry import make_configuration
from scripts.cli.run_reports.decision_log import read_decisions
from tests.support.fleets.builders import make_fleet, make_layout
from tests.support.fleets.fakes import ManualClock, RecordingActuator, ScriptedTelemetry
from tests.support.fleets.worlds import drift, script

LAYOUT = make_layout(kernels=2, slices=1, per_kernel=2)
FLEET = make_fleet(LAYOUT)
SETUP = make_configuration("hysteresis", FLEET)


def record(
    folder: Path,
    ticks: int,
    setup: ControllerSetup = SETUP,
    segment_bytes: int = 10**9,
    refuses: range = range(0),
) -> LiveController:
    """A run with a fault, and its log in ``folder``."""
    log = DecisionLog(
        folder, Beginning(setup=setup, state=None, documents={"pool": "p"}, code_version="1"), segment_bytes
    )
    ports = ControlPorts(
        source=ScriptedTelemetry(script(LAYOUT, ticks, drift(LAYOUT, [0, 1], 3.0))),
        clock=ManualClock(),
        actuator=RecordingActuator(refuses),
        watchers=(log,),
    )
    one = LiveController(setup, ports)
    for _ in range(ticks):
        one.step()
    log.close()
    assert one.last_error in ("", "plan: the plan was refused")
    return one


def test_telemetry_is_read_back_bit_for_bit() -> None:
    """NaN, infinities, signs of zero, shapes and types survive."""
    seen = next(script(LAYOUT, 1))
    odd = np.array([[np.nan, -0.0, np.inf, 1e-300]])
    seen = replace(seen, kv_used_ratio=odd, waiting=np.zeros((1, 4)))
    back = telemetry_from_json(json.loads(json.dumps(telemetry_to_json(seen), allow_nan=False)))
    for entry in fields(FleetTelemetry):
        left, right = getattr(seen, entry.name), getattr(back, entry.name)
        for a, b in zip(arrays(left), arrays(right), strict=True):
            assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes()), entry.name


def arrays(value: object) -> list[np.ndarray]:
    """The arrays of a field."""
    if isinstance(value, np.ndarray):
        return [value]
    assert is_dataclass(value)
    return [getattr(value, one.name) for one in fields(value)]


def test_what_is_no_telemetry_is_refused() -> None:
    """A missing field and an absurd shape give an error, not an array."""
    good = telemetry_to_json(next(script(LAYOUT, 1)))
    huge = good | {"running": {"t": "<f8", "s": [10**9, 10**9], "v": [], "f": 0.0, "i": []}}
    for bad in ({}, huge, good | {"running": {"t": "O", "s": [1], "v": [1]}}):
        with pytest.raises(StateError):
            telemetry_from_json(bad)


def test_a_crash_at_any_byte_leaves_every_whole_line_and_the_chain_goes_on(tmp_path: Path) -> None:
    """Cut anywhere, the file is read up to the last whole line; the next writer removes the rest."""
    place = tmp_path / "whole"
    writer = ChainWriter(place)
    for number in range(3):
        writer.append({"n": number, "text": "é\n"})
    writer.close()
    content = place.read_bytes()
    for cut in range(len(content) + 1):
        torn = tmp_path / "torn"
        torn.write_bytes(content[:cut])
        found = read_chain(torn)
        assert len(found.rows) == content[:cut].count(b"\n")
        assert found.whole_bytes + found.torn_bytes == cut
        again = ChainWriter(torn)
        assert again.repaired_bytes == found.torn_bytes
        again.append({"n": "next"})
        again.close()
        assert [row["n"] for row in read_chain(torn).rows] == [*range(len(found.rows)), "next"]


def test_an_altered_missing_or_moved_line_is_refused_with_its_number(tmp_path: Path) -> None:
    """Any other byte in a line, a missing line and two exchanged ones break the chain at their place."""
    place = tmp_path / "log"
    writer = ChainWriter(place)
    for number in range(4):
        writer.append({"n": number})
    writer.close()
    lines = place.read_bytes().splitlines(keepends=True)
    for at in range(len(lines[1]) - 1):
        changed = bytearray(lines[1])
        changed[at] ^= 1
        if changed[at] == ord("\n"):
            continue
        place.write_bytes(b"".join([lines[0], bytes(changed), *lines[2:]]))
        with pytest.raises(DocumentError, match=r"log:2"):
            read_chain(place)
    for rows in ([lines[0], lines[2], lines[3]], [lines[0], lines[2], lines[1], lines[3]]):
        place.write_bytes(b"".join(rows))
        with pytest.raises(DocumentError, match="previous"):
            read_chain(place)


def test_a_log_decides_again_byte_by_byte(tmp_path: Path) -> None:
    """Through refused plans and several files every record is reproduced."""
    record(tmp_path, 40, segment_bytes=60_000, refuses=range(2, 20))
    assert len(segments(tmp_path)) > 1
    found = replay(read_log(tmp_path), SETUP)
    assert found.identical, found.differences[:1]
    assert found.ticks == 40
    assert found.moved_logged == found.moved_replayed > 0


def test_one_altered_observation_is_decided_otherwise(tmp_path: Path) -> None:
    """A replay that could not differ would prove nothing."""
    record(tmp_path, 40)
    rows = read_log(tmp_path)
    for row in rows:
        if row["kind"] == "tick":
            probes = row["telemetry"]["probes"]["values"]
            row["telemetry"]["probes"]["values"] = {**probes, "v": [0.01 for _ in probes["v"]]}
    assert not replay(rows, SETUP).identical


def test_another_policy_over_the_same_telemetry_says_where_it_differs(tmp_path: Path) -> None:
    """A policy that never moves differs in the ticks with moves, and in no others."""
    record(tmp_path, 40)
    rows = read_log(tmp_path)
    found = what_if(rows, make_configuration("fixed-bare", FLEET))
    moved = [row["now_s"] for row in rows if row["kind"] == "tick" and record_texts(row)]
    assert moved
    assert [one.now_s for one in found.differences] == moved
    assert found.moved_replayed == 0


def test_a_restart_goes_on_in_the_same_chain_and_an_explanation_reads_it(tmp_path: Path) -> None:
    """A second start is a separate line, a torn line before it is cut, and only ticks are explained."""
    record(tmp_path, 5)
    file = segments(tmp_path)[0]
    with file.open("ab") as stream:
        stream.write(b'{"half": ')
    record(tmp_path, 5)
    rows = read_log(tmp_path)
    assert [row["kind"] for row in rows] == ["start", *["tick"] * 5] * 2
    assert len(read_decisions(file)) == 10
    assert replay(rows, SETUP).identical


def test_a_failing_source_is_noted_once(tmp_path: Path) -> None:
    """While nothing can be decided the log says why once, not every second."""
    log = DecisionLog(tmp_path, Beginning(setup=SETUP, state=None, documents={}, code_version="1"))
    ports = ControlPorts(source=ScriptedTelemetry([]), clock=ManualClock(), watchers=(log,))
    one = LiveController(SETUP, ports)
    for _ in range(5):
        one.step()
    log.close()
    assert [row["kind"] for row in read_log(tmp_path)] == ["start", "note"]
    assert one.errors == 5


def test_a_full_disk_leaves_the_log_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a written line is removed, and the next line fits."""
    writer = ChainWriter(tmp_path / "log")
    writer.append({"n": 1})
    real = __import__("os").write

    def half(number: int, content: bytes) -> int:
        if len(content) < 80:
            raise OSError(28, "No space left on device")
        return int(real(number, content[:50]))

    monkeypatch.setattr("live.control.chain.os.write", half)
    with pytest.raises(OSError, match="No space"):
        writer.append({"n": 2})
    monkeypatch.undo()
    writer.append({"n": 3})
    writer.close()
    assert [row["n"] for row in read_chain(tmp_path / "log").rows] == [1, 3]
