"""Rows of the gateway's logs as records: each once, however the writes were split."""

from __future__ import annotations

import gzip
import json
import threading
from itertools import pairwise
from pathlib import Path

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from live.errors import LiveError
from live.gateway.admin import EnvoyAdmin, SubscriptionState
from live.gateway.settings import GatewayFiles
from live.gateway.statistics import GatewayLogs, LogTail, attempt_of, request_of

ROW = {
    "at": "1700000000.5",
    "route": "serve:code",
    "cluster": "slice-code",
    "replica": "bf16-0",
    "code": 200,
    "flags": "-",
    "attempts": 2,
    "first_ms": 12,
    "ms": 40,
}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.lists(st.integers(0, 60), max_size=8), lines=st.lists(st.integers(0, 99), max_size=12))
def test_every_line_is_read_once_however_it_was_written(
    tmp_path: Path, cuts: list[int], lines: list[int]
) -> None:
    """However a log grows, its whole lines are returned once and in order."""
    path = tmp_path / "log"
    path.unlink(missing_ok=True)
    tail = LogTail(path)
    text = "".join(f"line {number}\n" for number in lines).encode()
    found: list[bytes] = []
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    for start, end in pairwise(places):
        with path.open("ab") as stream:
            stream.write(text[start:end])
        found += tail.lines()
    assert found == [f"line {number}".encode() for number in lines]


def test_a_log_that_was_begun_anew_is_read_from_its_start(tmp_path: Path) -> None:
    """After a rename the new file is read whole."""
    path = tmp_path / "log"
    path.write_text("one\n")
    tail = LogTail(path)
    assert tail.lines() == [b"one"]
    path.rename(tmp_path / "log.1")
    path.write_text("two\n")
    assert tail.lines() == [b"two"]


@pytest.mark.parametrize("packed", [False, True])
def test_no_row_is_lost_when_a_log_is_rotated_during_writes(tmp_path: Path, packed: bool) -> None:
    """Renamed, still written, replaced, and the old one packed and removed: every row is returned once."""
    path, rows, each = tmp_path / "log", 4000, 100
    looked = threading.Event()

    def write() -> None:
        stream = path.open("ab", buffering=0)
        for number in range(rows):
            if number and number % each == 0:
                for _ in range(2):  # the second reading began after the previous rotation
                    looked.clear()
                    looked.wait()
                old = path.rename(tmp_path / f"log.{number}")
                stream.write(f"{number - 1} renamed\n".encode())  # as Envoy does until it reopens its log
                stream.close()
                stream = path.open("ab", buffering=0)
                if packed:
                    (tmp_path / f"{old.name}.gz").write_bytes(gzip.compress(old.read_bytes()))
                    old.unlink()
            stream.write(f"{number}\n".encode())
        stream.close()

    tail, found, writer = LogTail(path), [], threading.Thread(target=write)
    writer.start()
    while writer.is_alive():
        found += tail.lines()
        looked.set()
    writer.join()
    found += tail.lines()
    told = [line.decode().split() for line in found]
    assert [int(one[0]) for one in told if len(one) == 1] == list(range(rows))
    assert sum(len(one) == 2 for one in told) == rows // each - 1


def test_a_torn_last_row_is_returned_and_a_truncated_file_is_read_anew(tmp_path: Path) -> None:
    """A torn last row of a replaced file is returned, and counted as unreadable; a file that became
    shorter is read from its start.
    """
    path = tmp_path / "log"
    path.write_text("one\ntw")
    tail = LogTail(path)
    assert tail.lines() == [b"one"]
    path.rename(tmp_path / "log.1")
    assert tail.lines() == []
    path.write_text("three\n")
    assert tail.lines() == [b"tw", b"three"]
    path.write_text("4\n")
    assert tail.lines() == [b"4"]


def test_rows_become_records() -> None:
    """A served request names slice, replica, status and tries; Envoy's dash is nothing."""
    request = request_of(ROW)
    assert (request.slice, request.replica, request.code, request.attempts) == ("code", "bf16-0", 200, 2)
    assert (request.shed, request.flags, request.started_at_s) == (False, "", 1700000000.5)
    shed = request_of({**ROW, "route": "shed:code", "replica": None, "code": 429})
    assert (shed.shed, shed.slice, shed.replica) == (True, "code", "")
    copy = attempt_of({**ROW, "cluster": "shadow-fp32", "first_ms": None, "code": 0})
    assert (copy.shadow, copy.first_byte_ms, copy.code) == (True, None, 0)
    assert not attempt_of(ROW).shadow


def test_garbage_in_a_log_is_counted_not_raised(tmp_path: Path) -> None:
    """An invalid row is unreadable; requests with an unknown route belong to no slice."""
    files = GatewayFiles(folder=tmp_path)
    rows = [json.dumps(ROW), "{cut", '{"at": "x"}', json.dumps({**ROW, "route": "nothing"})]
    files.requests_log.write_text("".join(f"{row}\n" for row in rows))
    admin = EnvoyAdmin("http://envoy", httpx.MockTransport(lambda _: httpx.Response(503)))
    sample = GatewayLogs(files, admin, ("code",)).read()
    assert sample.unreadable == 2
    assert [request.slice for request in sample.requests] == ["code"]
    assert sample.hosts == ()


def test_hosts_are_counted_by_slice_and_replica() -> None:
    """Envoy's hosts are those of the slices' clusters, by the name of the replica."""
    host = {
        "hostname": "bf16-0",
        "weight": 7,
        "stats": [
            {"name": "rq_success", "value": "5"},
            {"name": "rq_error"},
            {"name": "rq_active", "value": "2"},
        ],
        "health_status": {"failed_outlier_check": True},
    }
    answer = {
        "cluster_statuses": [
            {"name": "slice-code", "host_statuses": [host]},
            {"name": "replica-bf16-0", "host_statuses": [host]},
        ]
    }
    admin = EnvoyAdmin("http://envoy", httpx.MockTransport(lambda _: httpx.Response(200, json=answer)))
    (found,) = admin.hosts(("code",))
    assert (found.slice, found.replica, found.weight) == ("code", "bf16-0", 7)
    assert (found.succeeded, found.failed, found.active, found.ejected) == (5, 0, 2, True)


def test_the_version_in_force_and_refusals_are_read_by_exact_name() -> None:
    """Statistics of one subscription do not count for another with the same name prefix."""
    rows = [
        {"name": "cluster.slice-a.version_text", "value": "3-ab"},
        {"name": "cluster.slice-a.update_rejected", "value": 1},
        {"name": "cluster.slice-a.update_failure", "value": 2},
        {"name": "cluster.slice-ab.update_failure", "value": 9},
    ]
    admin = EnvoyAdmin(
        "http://envoy", httpx.MockTransport(lambda _: httpx.Response(200, json={"stats": rows}))
    )
    assert admin.subscriptions(("cluster.slice-a",)) == {
        "cluster.slice-a": SubscriptionState(version="3-ab", refused=3)
    }


@pytest.mark.parametrize("answer", [httpx.Response(500), httpx.Response(200, text="no json")])
def test_an_admin_interface_that_is_none_is_an_error(answer: httpx.Response) -> None:
    """An address that answers without Envoy's statistics is an error, unlike an Envoy without any."""
    admin = EnvoyAdmin("http://envoy", httpx.MockTransport(lambda _: answer))
    with pytest.raises(LiveError, match="http://envoy/stats"):
        admin.statistics("x")
    assert not admin.is_live()


def test_closed_statistics_leave_no_connection_open(tmp_path: Path) -> None:
    """Closing the logs closes the connection to Envoy; closing twice is no error."""
    admin = EnvoyAdmin("http://envoy", httpx.MockTransport(lambda _: httpx.Response(200, json={})))
    logs = GatewayLogs(GatewayFiles(folder=tmp_path), admin, ("prose",))
    logs.read()
    logs.close()
    logs.close()
    assert admin.closed


def test_a_gateway_that_began_anew_is_told(tmp_path: Path) -> None:
    """An Envoy that is absent, or has a shorter uptime than before, has restarted since the last reading."""
    uptimes: list[int | None] = [7, 8, None, 2, 3]

    def answer(request: httpx.Request) -> httpx.Response:
        now = uptimes[0]
        if now is None:
            raise httpx.ConnectError("refused")
        stats = [{"name": "server.uptime", "value": now}]
        return httpx.Response(200, json={"stats": stats} if request.url.path == "/stats" else {})

    logs = GatewayLogs(
        GatewayFiles(folder=tmp_path), EnvoyAdmin("http://envoy", httpx.MockTransport(answer)), ("prose",)
    )
    found: list[bool] = []
    while uptimes:
        found.append(logs.read().whole)
        uptimes.pop(0)
    assert found == [True, True, False, False, True]
