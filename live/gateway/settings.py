"""How the gateway behaves whatever the plan says: addresses, time-outs, retries, outlier detection."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

#: A log of requests that has so many bytes is begun anew, looked at every so many seconds.
LOG_BYTES, ROTATE_S = 64 * 2**20, 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """Settings of one Envoy; times in s.

    slice_header: what clients name their slice with. request_timeout_s: a whole answer, streams included.
    idle_timeout_s: no byte in either direction. per_try_s: until a replica's first byte, 0: as long as
    ``request_timeout_s``; a legitimate long answer that is not streamed has no byte before its end.
    upstream_idle_s: below the servers' own keep-alive (uvicorn in vLLM: 5 s), or requests meet closed doors.
    drain_s: how long a hop that is taken away may still end by itself.
    resettable: one hop inside Envoy per replica, which is what makes ``reset`` possible.
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
    """Where the gateway's files lie: a folder per subscription, so that a rename wakes one."""

    folder: Path

    @property
    def bootstrap(self) -> Path:
        """Read once, at the start of Envoy."""
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
        """One JSON row per try at a replica."""
        return self.folder / "attempts.jsonl"

    @property
    def half_reset(self) -> Path:
        """What the listeners were before a reset that is under way, or was cut short."""
        return self.folder / "half-reset.json"

    @property
    def lock(self) -> Path:
        """Lock file, held by the process that drives the gateway."""
        return self.folder / "driver.lock"
