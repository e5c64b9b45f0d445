"""What the gateway saw: new rows of its two logs, and Envoy's counters per replica."""

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
    """Whole new lines of a growing file, also after it was renamed and begun anew.

    The file under way stays open: what was written to it after its last reading and before another stood in
    its place is read to its end first, whatever became of its name. Rows that a file loses by being cut short
    in place, and a whole file that came and went between two readings, are not seen.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = -1
        self._offset = 0
        self._close: Callable[[], object] = lambda: None

    def lines(self) -> list[bytes]:
        """Lines that ended since the previous call; a line under way waits, unless its file was followed."""
        newer = self._newer()  # before the older one is read, which is complete by now
        if newer is None:
            return self._ended()
        found = self._ended(followed=True)
        self._close()
        self._file, self._offset = newer, 0
        self._close = weakref.finalize(self, os.close, newer)
        return found + self._ended()

    def _newer(self) -> int | None:
        """Another file than the one under way that has its place now, opened."""
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
    """Rows of a log as records; those that are no rows are counted."""

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
    """``live.ports.GatewayStatistics`` over the files and the admin interface of one Envoy.

    Call ``close``, unless the owner of ``admin`` closes that.
    """

    def __init__(self, files: GatewayFiles, admin: EnvoyAdmin, slices: tuple[str, ...]) -> None:
        self._requests = LogTail(files.requests_log)
        self._attempts = LogTail(files.attempts_log)
        self._admin = admin
        self._slices = slices
        self._uptime_s = math.nan  # of Envoy, when it last said so

    def close(self) -> None:
        """Close the connection to Envoy; once is enough."""
        self._admin.close()

    def read(self) -> GatewaySample:
        """Rows since the previous call; no host where Envoy does not answer: unknown, not zero.

        Envoy is asked after its rows are read, so rows that an end of Envoy left are never taken for others.
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
        """Of the replicas, and whether the process of before is there."""
        try:
            hosts, uptime_s = self._admin.hosts(self._slices), self._admin.uptime_s()
        except LiveError as error:
            return (), not isinstance(error, GatewayGoneError)
        before_s, self._uptime_s = self._uptime_s, uptime_s
        return hosts, not uptime_s < before_s


def request_of(row: dict[str, Any]) -> GatewayRequest:
    """A row of the log of requests; slice "" for what was routed nowhere. One of ``MALFORMED`` for no row."""
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
    """A row of the log of tries; one of ``MALFORMED`` for no row."""
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
    """``value`` as a number; ValueError for one that is none, or is not finite."""
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
