"""Faults left by a dead runner are found and undone, once, by one process."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from faults.client import record as records
from faults.client.replica import ReplicaFaults
from faults.client.wire import DrillError
from faults.drill.ledger import DrillLedger, only_drill, pending, take_back
from tests.support.fleets.drill_runs import drill_plan


@contextmanager
def steered(folder: Path, asked: list[dict[str, object]]) -> Iterator[records.UndoRecord]:
    """An open record of a replica without a fault, which answers every undo so."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            content = json.dumps({"flushed": True, "canary_is_clean": True}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield replace(gone_record(folder), url=f"http://127.0.0.1:{server.server_port}")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def gone_record(folder: Path) -> records.UndoRecord:
    """An open undo record of a replica whose address has a closed port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    token = folder / "token"
    token.write_text("a-token-of-a-replica")
    return records.UndoRecord(
        url=url, token_file=str(token), fault={"name": "bad", "kind": "hang"}, written_at_s=1.0, ttl_s=5.0
    )


def test_the_next_start_takes_back_what_a_lost_runner_left(tmp_path: Path) -> None:
    """An open note and an open record are closed, even if the target is gone; idempotent."""
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


@pytest.mark.parametrize("recorded", [False, True])
def test_a_runner_that_was_killed_before_its_injection_leaves_nothing(tmp_path: Path, recorded: bool) -> None:
    """Killed between note and record, or between record and injection: nothing to undo, and all is closed."""
    ledger, asked = DrillLedger(folder=tmp_path, name="lost"), list[dict[str, object]]()
    ledger.open()
    with steered(tmp_path, asked) as record:
        if recorded:
            records.save(records.path_for(ledger.records, "bad", record.url), record)
        assert take_back(tmp_path) == ([f"bad at {record.url}: undone"] if recorded else [])
    assert asked == ([{"name": "bad"}] if recorded else [])
    assert pending(tmp_path) is None


def test_a_full_disk_at_the_undo_record_injects_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No record, no fault, and the error names the remedy; a record that cannot be closed stops no undo."""
    asked: list[dict[str, object]] = []
    fault = drill_plan().strikes[0].fault
    with steered(tmp_path, asked) as record:
        replica = ReplicaFaults(record.url, tmp_path / "token", tmp_path / "records")
        with monkeypatch.context() as full:
            full.setattr(records, "write_pinned", _full)
            with pytest.raises(DrillError, match="so nothing is injected; make room"):
                replica.inject(fault, 5.0)
            assert asked == []
        path = records.path_for(tmp_path / "records", "bad", record.url)
        records.save(path, record)
        with monkeypatch.context() as full:
            full.setattr(records, "write_pinned", _full)
            assert replica.undo("bad").clean
        assert asked == [{"name": "bad"}]
        assert records.load(path).state == "open"


def _full(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


def test_nothing_to_take_back_is_no_error(tmp_path: Path) -> None:
    """A folder without a drill has nothing pending."""
    assert pending(tmp_path) is None
    assert take_back(tmp_path) == []


def test_a_second_runner_is_refused(tmp_path: Path) -> None:
    """The error names the present holder of the fleet; after its end the next drill may run."""
    with only_drill(tmp_path):
        DrillLedger(folder=tmp_path, name="first").open()
        with pytest.raises(DrillError, match=r"a drill runs there already .first"), only_drill(tmp_path):
            pass
    with only_drill(tmp_path):
        pass


def test_a_broken_note_is_told(tmp_path: Path) -> None:
    """Half a file is an error with the path and the next step."""
    (tmp_path / "drill.json").write_text('{"state": ')
    with pytest.raises(DrillError, match=r"drill\.json: expected the note of a drill"):
        pending(tmp_path)
