"""Envoy's admin interface, which listens on loopback only: readiness, statistics, hosts, logs."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import httpx

from contracts.loading.untrusted import MALFORMED, json_of
from live.bounded_http import whole_answer
from live.errors import LiveError
from live.gateway.clusters import slice_cluster
from live.gateway.settings import LOG_BYTES, ROTATE_S, GatewayFiles
from live.ports import HostCounters

_TIMEOUT_S = 2.0
_UPTIME = r"^server\.uptime$"


class GatewayGoneError(LiveError):
    """No process listens at Envoy's address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionState:
    """Envoy's state of one watched file. version: of the content in force; "" if there is none."""

    version: str
    refused: int  # updates that it rejected or could not read


class EnvoyAdmin:
    """The admin interface at ``url``; every call raises LiveError if Envoy does not answer."""

    def __init__(self, url: str, transport: httpx.BaseTransport | None = None) -> None:
        self.url = url
        # Envoy runs on this machine, so the environment's proxies are not used.
        self._client = httpx.Client(base_url=url, timeout=_TIMEOUT_S, transport=transport, trust_env=False)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    @property
    def closed(self) -> bool:
        """Whether the connection is closed."""
        return self._client.is_closed

    def is_live(self) -> bool:
        """Whether Envoy is initialised and serves."""
        try:
            return self._call("GET", "/ready").strip() == "LIVE"
        except LiveError:
            return False

    def subscriptions(self, prefixes: tuple[str, ...]) -> dict[str, SubscriptionState]:
        """State of each subscription, by the prefix of its statistics."""
        names = "|".join(re.escape(prefix) for prefix in prefixes)
        pattern = rf"^({names})\.(version_text|update_rejected|update_failure)$"
        values = self.statistics(pattern)
        with self._as_live_error("/stats"):
            return {prefix: _state(values, prefix) for prefix in prefixes}

    def statistics(self, pattern: str) -> dict[str, Any]:
        """Counters, gauges and texts with names that match ``pattern`` as a whole: name -> value."""
        with self._as_live_error("/stats"):
            answer = self._json("/stats", {"format": "json", "type": "All", "filter": pattern})
            return {row["name"]: row["value"] for row in answer.get("stats", []) if "name" in row}

    def hosts(self, slices: tuple[str, ...]) -> tuple[HostCounters, ...]:
        """Counters of every replica in the cluster of every slice."""
        wanted = {slice_cluster(name): name for name in slices}
        with self._as_live_error("/clusters"):
            answer = self._json("/clusters", {"format": "json"})
            return tuple(
                _host(wanted[status["name"]], host)
                for status in answer.get("cluster_statuses", [])
                if status["name"] in wanted
                for host in status.get("host_statuses", [])
            )

    def uptime_s(self) -> float:
        """Uptime of the Envoy process in s; NaN if it is not reported."""
        with self._as_live_error("/stats"):
            return float(self.statistics(_UPTIME).get("server.uptime", math.nan))

    def reopen_logs(self) -> None:
        """Reopen the log files after they were renamed."""
        self._call("POST", "/reopen_logs")

    @contextmanager
    def _as_live_error(self, path: str) -> Iterator[None]:
        """Raise LiveError if the JSON at ``path`` does not have Envoy's form."""
        try:
            yield
        except MALFORMED as error:
            raise LiveError(f"{self.url}{path}: expected Envoy's JSON, got {error!r:.200}") from None

    def _json(self, path: str, parameters: dict[str, str]) -> dict[str, Any]:
        response = self._response("GET", path, parameters)
        try:
            answer: dict[str, Any] = json_of(response.content)
        except (ValueError, RecursionError):
            raise LiveError(f"{self.url}{path}: expected JSON, got {response.text[:100]!r}") from None
        return answer

    def _call(self, method: str, path: str) -> str:
        return self._response(method, path, {}).text

    def _response(self, method: str, path: str, parameters: dict[str, str]) -> httpx.Response:
        try:
            response = whole_answer(self._client, method, path, _TIMEOUT_S, params=parameters)
        except httpx.ConnectError:
            raise GatewayGoneError(f"{self.url}{path}: Envoy does not answer: the port is closed") from None
        except httpx.HTTPError as error:
            raise LiveError(f"{self.url}{path}: Envoy does not answer ({type(error).__name__})") from None
        if response.status_code != 200:
            raise LiveError(f"{self.url}{path}: HTTP {response.status_code}: {response.text[:200]}")
        return response


def _state(values: dict[str, Any], prefix: str) -> SubscriptionState:
    refused = sum(int(values.get(f"{prefix}.{name}", 0)) for name in ("update_rejected", "update_failure"))
    return SubscriptionState(version=str(values.get(f"{prefix}.version_text", "")), refused=refused)


def _host(slice_name: str, host: dict[str, Any]) -> HostCounters:
    counted = {row["name"]: int(row.get("value", 0)) for row in host.get("stats", [])}
    health = host.get("health_status", {})
    return HostCounters(
        slice=slice_name,
        replica=str(host.get("hostname", "")),
        weight=int(host.get("weight", 0)),
        active=counted.get("rq_active", 0),
        succeeded=counted.get("rq_success", 0),
        failed=counted.get("rq_error", 0),
        connect_failed=counted.get("cx_connect_fail", 0),
        ejected=bool(health.get("failed_outlier_check", False)),
    )


class LogRotation:
    """Rotates a gateway's logs that have grown large; one previous file is kept."""

    def __init__(self, files: GatewayFiles, admin: EnvoyAdmin) -> None:
        self._logs = (files.requests_log, files.attempts_log)
        self._admin, self._due_at_s = admin, 0.0

    def look(self, now_s: float) -> None:
        """Check from time to time; never raises for an Envoy that does not answer."""
        if now_s < self._due_at_s:
            return
        self._due_at_s = now_s + ROTATE_S
        large = [log for log in self._logs if log.exists() and log.stat().st_size > LOG_BYTES]
        for log in large:
            log.replace(log.with_name(f"{log.name}.1"))
        if large:
            with suppress(LiveError):  # Envoy just ended; its successor opens new logs anyway
                self._admin.reopen_logs()
