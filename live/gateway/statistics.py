"""The gateway's statistics: new rows of its two logs, and Envoy's counters per replica."""

from __future__ import annotations

import math
import os
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from contracts.loading.untrusted import MALFORMED, json_of
from live.errors import LiveError
from live.gateway.admin import EnvoyAdmin, GatewayGoneError
from live.gateway.clusters import shadow_cluster
from live.gateway.routes import SERVE, SHED
from live.gateway.settings import GatewayFiles
from live.ports import GatewayAttempt, GatewayRequest, GatewaySample, HostCounters

Row = TypeVar("Row", GatewayRequest, GatewayAttempt)

_SHADOW = shadow_cluster("")


class LogTail:
    """New complete lines of a growing file, also across its rotation.

    The current file stays open. After a rotation it is read to its end before its successor is read. Not seen
    are rows lost when a file is truncated in place, and a file that was created and replaced between two
    readings.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = -1
        self._offset = 0
        self._close: Callable[[], object] = lambda: None

    def lines(self) -> list[bytes]:
        """Lines completed since the previous call. An incomplete last line waits, unless its file was
        rotated.
        """
        newer = self._newer()  # opened before the older file is read, which is complete by now
        if newer is None:
            return self._ended()
        found = self._ended(followed=True)
        self._close()
        self._file, self._offset = newer, 0
        self._close = weakref.finalize(self, os.close, newer)
        return found + self._ended()

    def _newer(self) -> int | None:
        """Descriptor of the file now at the path, if it is not the current one; otherwise None."""
        try:
            found = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        if self._file >= 0 and os.path.samestat(os.fstat(found), os.fstat(self._file)):
            os.close(found)
            return None
        return found

    def _ended(self, *, followed: bool = False) -> list[bytes]:
        """Complete lines of the current file; with ``followed`` also the rest, because no more will come."""
        if self._file < 0:
            return []
        size = os.fstat(self._file).st_size
        self._offset = 0 if size < self._offset else self._offset
        parts, at = [], self._offset
        while at < size and (part := os.pread(self._file, size - at, at)):
            parts.append(part)
            at += len(part)
        *whole, rest = b"".join(parts).split(b"\n")
        self._offset = at - len(rest)
        return [*whole, rest] if followed and rest else whole


@dataclass(slots=True)
class _Rows:
    """Parses the rows of a log; counts lines that are not valid rows."""

    unreadable: int = 0

    def parse(self, lines: list[bytes], record: Callable[[dict[str, Any]], Row]) -> list[Row]:
        found = []
        for line in lines:
            try:
                found.append(record(json_of(line)))
            except MALFORMED:
                self.unreadable += 1
        return found


class GatewayLogs:
    """``live.ports.GatewayStatistics`` over the log files and the admin interface of one Envoy.

    Call ``close``, unless the owner of ``admin`` closes that.
    """

    def __init__(self, files: GatewayFiles, admin: EnvoyAdmin, slices: tuple[str, ...]) -> None:
        self._requests = LogTail(files.requests_log)
        self._attempts = LogTail(files.attempts_log)
        self._admin = admin
        self._slices = slices
        self._uptime_s = math.nan  # Envoy's uptime at the last reading, s

    def close(self) -> None:
        """Close the connection to Envoy; repeated calls have no effect."""
        self._admin.close()

    def read(self) -> GatewaySample:
        """Rows since the previous call. If Envoy does not answer, there are no hosts: unknown, not zero.

        Envoy is asked after the logs are read, so that rows of an Envoy that has ended are attributed to it.
        """
        rows = _Rows()
        requests = rows.parse(self._requests.lines(), request_of)
        attempts = rows.parse(self._attempts.lines(), attempt_of)
        hosts, whole = self._hosts()
        return GatewaySample(
            read_at_s=time.time(),
            requests=tuple(request for request in requests if request.slice),
            attempts=tuple(attempt for attempt in attempts if attempt.slice),
            hosts=hosts,
            unreadable=rows.unreadable,
            whole=whole,
        )

    def _hosts(self) -> tuple[tuple[HostCounters, ...], bool]:
        """Counters of the replicas, and whether Envoy is still the same process."""
        try:
            hosts, uptime_s = self._admin.hosts(self._slices), self._admin.uptime_s()
        except LiveError as error:
            return (), not isinstance(error, GatewayGoneError)
        before_s, self._uptime_s = self._uptime_s, uptime_s
        return hosts, not uptime_s < before_s


def request_of(row: dict[str, Any]) -> GatewayRequest:
    """A row of the request log; slice "" for a request that was not routed. ``MALFORMED`` if it is no row."""
    route = str(row["route"] or "")
    return GatewayRequest(
        started_at_s=_finite(row["at"]),
        slice=_slice_of(route),
        code=_whole(row.get("code")),
        shed=route.startswith(SHED),
        replica=_text(row.get("replica")),
        attempts=_whole(row.get("attempts")),
        duration_ms=_number(row.get("ms")) or 0.0,
        flags=_text(row.get("flags")),
    )


def attempt_of(row: dict[str, Any]) -> GatewayAttempt:
    """A row of the attempts log; raises one of ``MALFORMED`` if it is no row."""
    return GatewayAttempt(
        started_at_s=_finite(row["at"]),
        slice=_slice_of(str(row["route"] or "")),
        replica=_text(row.get("replica")),
        code=_whole(row.get("code")),
        first_byte_ms=_number(row.get("first_ms")),
        duration_ms=_number(row.get("ms")) or 0.0,
        flags=_text(row.get("flags")),
        shadow=_text(row.get("cluster")).startswith(_SHADOW),
    )


def _slice_of(route: str) -> str:
    for prefix in (SERVE, SHED):
        if route.startswith(prefix):
            return route.removeprefix(prefix)
    return ""


def _finite(value: Any) -> float:
    """``value`` as a finite number; ValueError otherwise."""
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"expected a finite number, got {number}")
    return number


def _text(value: Any) -> str:
    return "" if value in (None, "-") else str(value)


def _whole(value: Any) -> int:
    return int(value) if isinstance(value, int | float) else 0


def _number(value: Any) -> float | None:
    return _finite(value) if isinstance(value, int | float) else None
