"""What a lost runner leaves behind is found and taken back, once, by one process."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from faults.client import record as records
from faults.client.wire import DrillError
from faults.drill.ledger import DrillLedger, only_drill, pending, take_back


def gone_record(folder: Path) -> records.UndoRecord:
    """An open undo record of a replica at whose address nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    token = folder / "token"
    token.write_text("a-token-of-a-replica")
    return records.UndoRecord(
        url=url, token_file=str(token), fault={"name": "bad", "kind": "hang"}, written_at_s=1.0, ttl_s=5.0
    )


def test_the_next_start_takes_back_what_a_lost_runner_left(tmp_path: Path) -> None:
    """An open note and an open record are closed, also where the target is gone; again without effect."""
    ledger = DrillLedger(folder=tmp_path, name="lost")
    ledger.open()
    record = gone_record(tmp_path)
    path = records.path_for(ledger.records, "bad", record.url)
    records.save(path, record)
    assert (pending(tmp_path) or {})["drill"] == "lost"
    assert take_back(tmp_path) == [f"bad at {record.url}: gone with its replica"]
    assert records.load(path).state == "gone"
    assert pending(tmp_path) is None
    assert take_back(tmp_path) == []


def test_nothing_to_take_back_is_no_error(tmp_path: Path) -> None:
    """A folder without a drill has nothing pending."""
    assert pending(tmp_path) is None
    assert take_back(tmp_path) == []


def test_a_second_runner_is_refused(tmp_path: Path) -> None:
    """Who holds the fleet is named; afterwards the next one may."""
    with only_drill(tmp_path):
        DrillLedger(folder=tmp_path, name="first").open()
        with pytest.raises(DrillError, match=r"a drill runs there already .first"), only_drill(tmp_path):
            pass
    with only_drill(tmp_path):
        pass


def test_a_broken_note_is_told(tmp_path: Path) -> None:
    """Half a file is an error with the place and the next step, no surprise."""
    (tmp_path / "drill.json").write_text('{"state": ')
    with pytest.raises(DrillError, match=r"drill\.json: expected the note of a drill"):
        pending(tmp_path)
