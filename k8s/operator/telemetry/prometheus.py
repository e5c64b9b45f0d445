"""Reads a pool's servers from Prometheus: one query per tick for all pods."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import httpx

from contracts.documents import KernelPool
from contracts.documents.pool import Prometheus
from contracts.errors import DocumentError, Problem
from contracts.regular_files import read_regular
from k8s.operator.admission import Documents
from k8s.operator.telemetry.pool_reader import PoolReader, ReadFailure, Sensing
from live.bounded_http import system_clock_ahead_s
from live.observe.metrics import EngineReading
from live.observe.prometheus import PodQuery, readings_of
from live.observe.prometheus_api import PrometheusApi, PrometheusError
from live.origins import origin_of, trusted

_TOKEN_BYTES = 64 * 1024
#: Window of the query in scrape intervals, so that it contains the newest sample at any tick.
_SCRAPES = 2.0
#: Scrape intervals without a sample before a pod is reported; a new pod has no sample yet.
_PATIENCE = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusAccess:
    """Which Prometheus servers may be queried, and how. origins: ``https://HOST:PORT``, the only ones that
    get the token; token_file: read at every query, no token if absent; ca_file: additional CA certificates.
    """

    origins: tuple[str, ...] = ()
    token_file: Path | None = None
    ca_file: Path | None = None

    def client(self) -> httpx.Client:
        """HTTP client for all pools. Raises OSError if the CA certificates cannot be read."""
        given = self.ca_file if self.ca_file is not None and self.ca_file.exists() else None
        return httpx.Client(verify=trusted(given), follow_redirects=False)

    def token(self) -> str:
        """The current token, "" if there is none; DocumentError if the file holds no valid token."""
        if self.token_file is None or not self.token_file.exists():
            return ""
        found = read_regular(self.token_file, _TOKEN_BYTES).decode("ascii", "replace").strip()
        if not found.isprintable() or " " in found or "\ufffd" in found:
            expected, step = "one line with the token", "correct --prometheus-token-file"
            raise DocumentError([_problem(str(self.token_file), expected, "something else", step)])
        return found

    def allowed(self, told: Prometheus, pool: KernelPool) -> str:
        """The URL without trailing slashes; DocumentError if its origin is not allowed."""
        origin = origin_of(told.url)
        if origin not in self.origins:
            place = f"KernelPool {pool.metadata.name}: prometheus.url"
            step = f"start the operator with --prometheus-origin {origin}, or correct the URL"
            raise DocumentError([_problem(place, "an origin that may be asked", origin, step)])
        return told.url.rstrip("/")


def check_interval(documents: Documents) -> None:
    """Raise DocumentError if telemetry would become stale between two scrapes."""
    told, pool = documents.pool.spec.prometheus, documents.pool.metadata.name
    stale_s = documents.contract.spec.detection.stale_after_s
    if told is None or 2.0 * told.scrape_interval_s <= stale_s:
        return
    expected = f"at most half of the contract's detection.stale_after_s ({stale_s:g} s)"
    step = "let Prometheus scrape more often and say so, or raise stale_after_s"
    place = f"KernelPool {pool}: prometheus.scrape_interval_s"
    raise DocumentError([_problem(place, expected, f"{told.scrape_interval_s:g} s", step)])


class PrometheusScrapes(PoolReader):
    """Prometheus samples of one pool's servers. client: shared by pools.

    Each scrape is returned once. A pod that was not scraped again is absent from the result.
    """

    def __init__(self, sensing: Sensing, access: PrometheusAccess, client: httpx.Client) -> None:
        pool = sensing.documents.pool
        told = pool.spec.prometheus
        assert told is not None  # pools without it are scraped directly
        check_interval(sensing.documents)
        self._api = PrometheusApi(access.allowed(told, pool), client, access.token)
        self._interval_s, self._discovery = told.scrape_interval_s, sensing.discovery
        self._query = PodQuery(
            namespace=sensing.namespace,
            window_s=_SCRAPES * told.scrape_interval_s + sensing.setup.fleet.tick_s,
            pod_label=told.pod_label,
            namespace_label=told.namespace_label,
        )
        self._handed: dict[str, float] = {}
        """Pod -> Prometheus' Unix time of its newest scrape at the last call."""
        self._asked: dict[str, float] = {}
        """Pod -> time since which it has no sample, on a monotonic clock."""

    def close(self) -> None:
        """Do nothing; the client is shared with other pools."""

    def scrape(self, urls: Mapping[str, str]) -> dict[str, EngineReading]:
        """Replica -> newest scrape, for replicas in ``urls`` that were scraped since the last call."""
        pods = {one.slot: one.pod for one in self._discovery.pods if one.slot in urls}
        try:
            found = self._read({pod for pod in pods.values() if pod})
        except PrometheusError as error:
            self.failure = ReadFailure(reason=error.reason, message=f"nothing is read of servers: {error}")
            return {}
        self.failure, self.problem = None, self._lacking(pods, found)
        fresh = {slot: _dated(found[pod]) for slot, pod in pods.items() if self._is_new(found, pod)}
        self._handed = {pod: one.read_at_s for pod, one in found.items()}
        return fresh

    def _read(self, pods: set[str]) -> dict[str, EngineReading]:
        """Pod -> its newest scrape."""
        if not pods:
            return {}
        found = readings_of(self._api.query(self._query.text(pods)), self._query.pod_label)
        return {pod: found[pod] for pod in pods & found.keys()}

    def _is_new(self, found: Mapping[str, EngineReading], pod: str) -> bool:
        return pod in found and found[pod].read_at_s > self._handed.get(pod, float("-inf"))

    def _lacking(self, pods: Mapping[str, str], found: Mapping[str, EngineReading]) -> str:
        """Message about pods that have had no sample for too long; "" if there are none."""
        now_s = time.monotonic()
        lacking = [pod or slot for slot, pod in pods.items() if pod not in found]
        self._asked = {one: self._asked.get(one, now_s) for one in lacking}
        late_s = _PATIENCE * self._interval_s
        told = sorted(one for one, since_s in self._asked.items() if now_s - since_s >= late_s)
        if not told:
            return ""
        return (
            f"Prometheus has no samples of {', '.join(told)}; does it scrape these pods, with the labels "
            f"{self._query.namespace_label} and {self._query.pod_label}?"
        )


def _dated(found: EngineReading) -> EngineReading:
    """``found`` converted from Prometheus' system clock to the clock of ``monotonic_unix_s``."""
    return replace(found, read_at_s=found.read_at_s - system_clock_ahead_s())


def _problem(place: str, expected: str, actual: str, next_step: str) -> Problem:
    return Problem(file=place, line=0, path="", expected=expected, actual=actual, next_step=next_step)
