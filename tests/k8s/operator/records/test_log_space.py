"""Decision logs of many policies in limited space: the oldest files go, the rest verifies and replays."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from k8s.operator.records.journal import PolicyJournal
from k8s.operator.records.log_space import LogSpace
from live.control.chain import missing_records
from live.control.journal import Beginning, DecisionLog, read_log, segments
from live.control.loop import ControlPorts, LiveController
from live.control.replay import replay
from policies.registry import make_configuration
from tests.support.fleets.builders import make_fleet, make_layout
from tests.support.fleets.fakes import ManualClock, RecordingActuator, ScriptedTelemetry
from tests.support.fleets.worlds import drift, script

LAYOUT = make_layout(kernels=2, slices=1, per_kernel=2)
SETUP = make_configuration("hysteresis", make_fleet(LAYOUT))
SEGMENT_BYTES = 40_000


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a file hold about one state and some turns."""
    monkeypatch.setattr("k8s.operator.records.log_space.LEAST_SEGMENT_BYTES", SEGMENT_BYTES)


def taken(folder: Path) -> int:
    """Bytes in ``folder``."""
    return sum(one.stat().st_size for one in folder.rglob("*") if one.is_file())


def journal(space: LogSpace, name: str) -> PolicyJournal:
    """A journal as from ``open_journal``, without a cluster."""
    space.opened(space.folder / name)
    beginning = Beginning(setup=SETUP, state=None, documents={"pool": "p"}, code_version="1")
    log = DecisionLog(space.folder / name, beginning, space.segment_bytes)
    return PolicyJournal(policy=name, setup=SETUP, log=log, space=space)


def turns(one: PolicyJournal, ticks: int) -> Iterator[None]:
    """Run ``ticks`` turns of a logged controller, one per step of the iterator."""
    ports = ControlPorts(
        source=ScriptedTelemetry(script(LAYOUT, ticks, drift(LAYOUT, [0, 1], 3.0))),
        clock=ManualClock(),
        actuator=RecordingActuator(range(0)),
        watchers=(one,),
    )
    controller = LiveController(SETUP, ports)
    for _ in range(ticks):
        controller.step()
        yield


def test_the_logs_of_all_policies_stay_within_their_space(tmp_path: Path) -> None:
    """Over hundreds of turns of three policies, the folder exceeds its limit by a few lines at most."""
    space = LogSpace(tmp_path, 12 * SEGMENT_BYTES)
    journals = [journal(space, name) for name in ("a", "b", "c")]
    most = 0
    for _ in zip(*(turns(one, 400) for one in journals), strict=True):
        most = max(most, taken(tmp_path))
    assert 6 * SEGMENT_BYTES < most < 16 * SEGMENT_BYTES
    assert all(len(segments(tmp_path / name)) >= 1 for name in ("a", "b", "c"))


def test_the_remaining_log_is_verified_and_replayed(tmp_path: Path) -> None:
    """A log without its oldest files begins with a full state: its chain verifies and it replays."""
    space = LogSpace(tmp_path, 6 * SEGMENT_BYTES)
    one = journal(space, "a")
    for _ in turns(one, 400):
        pass
    one.close()
    assert not (tmp_path / "a" / "decisions-000001.jsonl").exists()
    rows = read_log(tmp_path / "a")
    assert rows[0]["kind"] == "start"
    found = replay(rows, SETUP)
    assert found.ticks > 0
    assert found.identical


def test_logs_of_deleted_policies_are_removed_first(tmp_path: Path) -> None:
    """Logs that are no longer written to are removed before those of active policies."""
    space = LogSpace(tmp_path, 6 * SEGMENT_BYTES)
    gone = journal(space, "gone")
    for _ in turns(gone, 60):
        pass
    gone.close()
    stays = journal(space, "stays")
    for _ in turns(stays, 400):
        pass
    assert not segments(tmp_path / "gone")
    assert taken(tmp_path) < 8 * SEGMENT_BYTES


def test_without_any_space_nothing_is_written_and_one_warning_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """If other files fill the folder, turns are not logged, with one warning; logging resumes with space."""
    space = LogSpace(tmp_path, 6 * SEGMENT_BYTES)
    one = journal(space, "a")
    (tmp_path / "a" / "other").write_bytes(b"x" * 7 * SEGMENT_BYTES)
    before = taken(tmp_path)
    with caplog.at_level(logging.WARNING):
        for at, _ in enumerate(turns(one, 45), 1):
            if at == 40:
                assert taken(tmp_path) == before
                (tmp_path / "a" / "other").unlink()
    assert [line.levelname for line in caplog.records if "no turn is logged" in line.message] == ["WARNING"]
    found = replay(read_log(tmp_path / "a"), SETUP)
    assert found.identical
    assert (found.ticks, found.starts) == (5, 2)
    assert [one.turns for one in missing_records(read_log(tmp_path / "a"))] == [40]
