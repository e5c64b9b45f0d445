"""What the gateway saw: new rows of its two logs, and Envoy's counters per replica."""

from __future__ import annotations

import math
import os
import time
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
    """Whole new lines of a growing file, also after it was renamed and begun anew."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inode = 0
        self._offset = 0

    def lines(self) -> list[bytes]:
        """Lines that ended since the previous call; a line under way waits."""
        try:
            with self._path.open("rb") as stream:
                status = os.fstat(stream.fileno())
                if status.st_ino != self._inode or status.st_size < self._offset:
                    self._inode, self._offset = status.st_ino, 0
                stream.seek(self._offset)
                text = stream.read()
        except FileNotFoundError:
            return []
        whole, _, _ = text.rpartition(b"\n")
        self._offset += len(whole) + 1 if whole else 0
        return whole.split(b"\n") if whole else []


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

    ``close`` it, or whoever made ``admin`` closes that.
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
