"""Gateway settings that do not depend on the plan: addresses, timeouts, retries, outlier detection."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

#: A request log is rotated above this size; its size is checked at this interval, s.
LOG_BYTES, ROTATE_S = 64 * 2**20, 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """Settings of one Envoy; times in s.

    slice_header: request header that names the slice. request_timeout_s: a whole answer, streams included.
    idle_timeout_s: no byte in either direction. per_try_s: until a replica's first byte; 0: the same as
    ``request_timeout_s``, because a long answer that is not streamed has no byte before its end.
    upstream_idle_s: must be below the servers' keep-alive (uvicorn in vLLM: 5 s), or requests may be sent on
    connections that the server is closing. drain_s: time that connections through a removed hop have to end.
    resettable: route through one hop inside Envoy per replica, which ``reset`` requires.
    """

    listen_address: str = "127.0.0.1"
    listen_port: int = 0
    admin_port: int = 0
    slice_header: str = "x-selvage-slice"
    request_timeout_s: float = 600.0
    idle_timeout_s: float = 300.0
    connect_timeout_s: float = 0.5
    per_try_s: float = 0.0
    upstream_idle_s: float = 3.0
    retries: int = 3
    host_attempts: int = 5
    retry_after_s: int = 1
    gateway_failures: int = 2
    eject_s: float = 5.0
    max_ejected_percent: int = 67
    drain_s: int = 0
    threads: int = 1
    flush_s: float = 0.25
    resettable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayFiles:
    """Paths of the gateway's files; a folder per subscription, so that a rename wakes only that one."""

    folder: Path

    @property
    def bootstrap(self) -> Path:
        """Read once, when Envoy starts."""
        return self.folder / "bootstrap.json"

    @property
    def listeners(self) -> Path:
        """Listener discovery."""
        return self.folder / "listeners" / "listeners.json"

    @property
    def routes(self) -> Path:
        """Route discovery."""
        return self.folder / "routes" / "routes.json"

    def endpoints(self, cluster: str) -> Path:
        """Endpoint discovery of one cluster."""
        return self.folder / "clusters" / cluster / "endpoints.json"

    @property
    def requests_log(self) -> Path:
        """One JSON row per request."""
        return self.folder / "requests.jsonl"

    @property
    def attempts_log(self) -> Path:
        """One JSON row per attempt at a replica."""
        return self.folder / "attempts.jsonl"

    @property
    def half_reset(self) -> Path:
        """The listeners before a reset that is under way or was interrupted."""
        return self.folder / "half-reset.json"

    @property
    def lock(self) -> Path:
        """Lock file, held by the process that drives the gateway."""
        return self.folder / "driver.lock"
