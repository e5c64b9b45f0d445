"""Puts routing tables in force: replaces Envoy's files atomically and waits for the acknowledgement.

Every file has a version, a hash of its content. Envoy reports the version in force, so an acknowledgement
cannot be mistaken for one of another write. If Envoy refuses a file, or does not acknowledge it in time, all
files of the same table are restored. A reset records what it removes before it does so; if the process is
killed in between, the next driver restores it.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contracts.loading.files import canonical_sha256, json_text, write_pinned
from live.errors import ActuationError, LiveError
from live.gateway.admin import EnvoyAdmin, SubscriptionState
from live.gateway.clusters import assignments
from live.gateway.listeners import STAT_PREFIX, listeners
from live.gateway.routes import ROUTE_CONFIG, route_configuration
from live.gateway.settings import GatewayFiles, GatewaySettings
from live.gateway.table import GatewayTable, Upstream

_POLL_S = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedFile:
    """One file that Envoy watches. statistics: prefix of Envoy's statistics about it."""

    path: Path
    statistics: str
    version: str
    content: bytes


def table_files(table: GatewayTable, settings: GatewaySettings, files: GatewayFiles) -> list[WatchedFile]:
    """Endpoints first, then routes: a new route must not point at endpoints that are still old."""
    found = [
        versioned_resources(files.endpoints(name), f"cluster.{name}", [resource], table.version)
        for name, resource in assignments(table, settings).items()
    ]
    routes = [route_configuration(table, settings)]
    found.append(
        versioned_resources(files.routes, f"http.{STAT_PREFIX}.rds.{ROUTE_CONFIG}", routes, table.version)
    )
    return found


def listener_file(
    settings: GatewaySettings, files: GatewayFiles, upstreams: Iterable[Upstream], without: str = ""
) -> WatchedFile:
    """All listeners except the hop of replica ``without``."""
    resources = listeners(settings, files, upstreams, without)
    return versioned_resources(files.listeners, "listener_manager.lds", resources, 0)


def versioned_resources(
    path: Path, statistics: str, resources: list[dict[str, Any]], number: int
) -> WatchedFile:
    """``resources`` in Envoy's format, with a version derived from their content."""
    version = f"{number}-{canonical_sha256(resources)[:16]}"
    content = f"{json_text({'version_info': version, 'resources': resources})}\n".encode()
    return WatchedFile(path=path, statistics=statistics, version=version, content=content)


def write_files(found: Iterable[WatchedFile]) -> None:
    """Write every file atomically, for an Envoy that does not run yet; folders are created."""
    for one in found:
        one.path.parent.mkdir(parents=True, exist_ok=True)
        write_pinned(one.path, one.content)


class GatewayDriver:
    """The only writer of a running gateway's files; a second one is refused."""

    def __init__(
        self, settings: GatewaySettings, files: GatewayFiles, admin: EnvoyAdmin, timeout_s: float = 5.0
    ) -> None:
        self.settings = settings
        self.files = files
        self.admin = admin
        self._timeout_s = timeout_s
        self._lock = _locked(files.lock)
        #: Whether an earlier driver was killed during a reset, which has been undone.
        self.recovered = self.recover()

    def close(self) -> None:
        """Release the lock; repeated calls have no effect."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
            self.admin.close()

    def apply(self, table: GatewayTable) -> float:
        """Put ``table`` in force; returns the time taken, in s. After an ActuationError nothing has
        changed.
        """
        return self.exchange(table_files(table, self.settings, self.files))

    def reset(self, replica: str, upstreams: tuple[Upstream, ...]) -> float:
        """Close every connection to ``replica``, then open its hop again; returns the time taken, in s.

        Requests without a first byte are retried at another replica; answers under way are cut off.
        Raises LiveError if hops are disabled.
        """
        if not self.settings.resettable:
            raise LiveError(f"{replica}: this gateway runs without hops, so open requests cannot be reset")
        if replica not in {one.replica for one in upstreams}:
            raise LiveError(
                f"{replica}: no such replica; there are {', '.join(u.replica for u in upstreams)}"
            )
        started_at_s, whole = time.monotonic(), listener_file(self.settings, self.files, upstreams)
        write_pinned(self.files.half_reset, whole.content)
        try:
            self.exchange([listener_file(self.settings, self.files, upstreams, without=replica)])
            self._await_drained(started_at_s + self.settings.drain_s + self._timeout_s)
        finally:
            self._open_again(whole)
        return time.monotonic() - started_at_s

    def _open_again(self, whole: WatchedFile) -> None:
        try:
            self.exchange([whole])
        except BaseException:  # an Envoy that does not answer now reads the restored file later
            self.recover()
            raise
        self.files.half_reset.unlink(missing_ok=True)

    def recover(self) -> bool:
        """Open every hop that an interrupted reset left closed; whether there was one. Idempotent.

        Envoy need not answer: it reads the file when it notices the change, or when it starts.
        """
        try:
            content = self.files.half_reset.read_bytes()
        except FileNotFoundError:
            return False
        write_pinned(self.files.listeners, content)
        self.files.half_reset.unlink(missing_ok=True)
        return True

    def exchange(self, wanted: list[WatchedFile]) -> float:
        """Replace the files with versions that are not in force, and wait for Envoy; all or nothing."""
        started_at_s = time.monotonic()
        before = self.admin.subscriptions(tuple(one.statistics for one in wanted))
        changed = [one for one in wanted if before[one.statistics].version != one.version]
        if not changed:
            return 0.0
        strange = [str(one.path) for one in changed if not one.path.exists()]
        if strange:
            raise ActuationError(f"the gateway was not started with {', '.join(strange)}")
        old = [one.path.read_bytes() for one in changed]
        try:
            for one in changed:
                write_pinned(one.path, one.content)
            self._acknowledged(changed, before, started_at_s + self._timeout_s)
        except (ActuationError, LiveError, OSError) as error:
            try:
                self._put_back(changed, old)
            except ActuationError as left:
                raise ActuationError(f"{error}; {left}") from None
            raise ActuationError(f"{error}; the last table stays in force") from None
        return time.monotonic() - started_at_s

    def _acknowledged(
        self, changed: list[WatchedFile], before: dict[str, SubscriptionState], deadline_at_s: float
    ) -> None:
        waiting = list(changed)
        while waiting:
            now = self.admin.subscriptions(tuple(one.statistics for one in waiting))
            waiting = [one for one in waiting if now[one.statistics].version != one.version]
            refused = [o for o in waiting if now[o.statistics].refused > before[o.statistics].refused]
            if refused:
                raise ActuationError(f"Envoy refused {refused[0].path}; its log says why")
            if waiting and time.monotonic() > deadline_at_s:
                raise ActuationError(
                    f"Envoy did not acknowledge {waiting[0].path} within {self._timeout_s:g} s"
                )
            if waiting:
                time.sleep(_POLL_S)

    def _put_back(self, changed: list[WatchedFile], old: list[bytes]) -> None:
        """Restore every file, also after one fails; ActuationError names those that could not be restored."""
        left = []
        for one, content in zip(changed, old, strict=True):
            try:
                if one.path.read_bytes() != content:
                    write_pinned(one.path, content)
            except OSError as error:
                left.append(f"{one.path} ({error.strerror or error})")
        if left:
            raise ActuationError(f"the last table is not put back in {', '.join(left)}")

    def _await_drained(self, deadline_at_s: float) -> None:
        name = "listener_manager.total_listeners_draining"
        while self.admin.statistics(f"^{name}$").get(name, 0):
            if time.monotonic() > deadline_at_s:
                raise ActuationError("Envoy still drains the hop; its connections may be open")
            time.sleep(_POLL_S)


def _locked(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise LiveError(f"{path}: another controller drives this gateway; end that first") from None
    return descriptor
