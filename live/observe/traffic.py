"""Counts the gateway's rows for the telemetry record: by slice and kernel, and by replica."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import FleetLayout
from contracts.telemetry import LATENCY_FAMILIES
from contracts.units import MS_PER_S
from live.observe.increments import on_record_edges
from live.ports import ClusterCounts, GatewayAttempt, GatewaySample

_NO_ANSWER, _OK, _REDIRECT, _SERVER_ERROR, _GATEWAY_TIMEOUT = 0, 200, 300, 500, 504
#: An answer that ends within this time of its first byte, ms, came in one piece: it shows no time to first
#: token.
_ONE_PIECE_MS = 2.0
_LATENCY, _TTFT = LATENCY_FAMILIES.index("latency_ms"), LATENCY_FAMILIES.index("ttft_ms")
#: Samples without host counters for which the last open requests are kept; after more, they are unknown.
_KEPT_SAMPLES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayTraffic:
    """What the gateway counted since the last reading, of one fleet."""

    offered: NDArray[np.int64]  # [S]
    answered: NDArray[np.int64]  # [S, K]
    failed: NDArray[np.int64]  # [S, K]
    timed_out: NDArray[np.int64]  # [S, K], part of ``failed``
    latency_le: NDArray[np.int64]  # [S, K, F, E + 1]
    replica_answered: NDArray[np.int64]  # [R]
    replica_failed: NDArray[np.int64]  # [R]


class TrafficCounter:
    """Counts the samples of one gateway; keeps the state that counting needs between samples."""

    def __init__(self, layout: FleetLayout) -> None:
        self._layout = layout
        self._edges_ms = np.array([*layout.edges_ms, np.inf])
        self._slice = {name: at for at, name in enumerate(layout.slices)}
        self._replica = {name: at for at, name in enumerate(layout.replicas)}
        self._under_way = np.zeros(len(layout.slices), dtype=np.int64)
        #: float64 [R], requests that the gateway last had open at each replica; 0 if it does not report them.
        self.open = np.zeros(len(layout.replicas))
        self._untold = 0  # samples since the last one with host counters
        #: Whether the newest sample has host counters.
        self.told = False
        #: int64 [R], failures since the last answer of each replica.
        self.consecutive_failed = np.zeros(len(layout.replicas), dtype=np.int64)

    def count(self, sample: GatewaySample) -> GatewayTraffic:
        """Counts of ``sample``, without rows of unknown slices and replicas, and without mirrored requests.

        Attempts without an answer are left out too if the sample is not whole, because then the gateway
        failed, not a replica.
        """
        kernels, slices, replicas = self._layout.shape
        families = (len(LATENCY_FAMILIES), len(self._edges_ms))
        found = GatewayTraffic(
            offered=self._offered(sample),
            answered=np.zeros((slices, kernels), dtype=np.int64),
            failed=np.zeros((slices, kernels), dtype=np.int64),
            timed_out=np.zeros((slices, kernels), dtype=np.int64),
            latency_le=np.zeros((slices, kernels, *families), dtype=np.int64),
            replica_answered=np.zeros(replicas, dtype=np.int64),
            replica_failed=np.zeros(replicas, dtype=np.int64),
        )
        told = [one for one in sample.attempts if sample.whole or one.code != _NO_ANSWER]
        for attempt in sorted(told, key=lambda one: one.started_at_s + one.duration_ms / MS_PER_S):
            if attempt.slice in self._slice and attempt.replica in self._replica and not attempt.shadow:
                self._add(found, attempt)
        for cluster in sample.clusters:
            if cluster.slice in self._slice:
                self._add_cluster(found, cluster)
        return found

    def _offered(self, sample: GatewaySample) -> NDArray[np.int64]:
        """int64 [S]: requests that ended, plus the change of the number of requests under way.

        The gateway logs a request only when it ends, so a hang would look like no traffic without the second
        term.
        """
        ended = np.zeros(len(self._slice), dtype=np.int64)
        for request in sample.requests:
            if request.slice in self._slice:
                ended[self._slice[request.slice]] += 1
        self.told = bool(sample.hosts)
        self._untold = 0 if self.told else self._untold + 1
        if not sample.whole:  # requests under way in an earlier process no longer exist
            self._under_way[:] = 0
        if self.told or not sample.whole or self._untold > _KEPT_SAMPLES:
            self.open[:] = 0.0
        if not self.told:
            return ended
        under_way = np.zeros_like(ended)
        for host in sample.hosts:
            if host.slice in self._slice:
                under_way[self._slice[host.slice]] += host.active
                if host.replica in self._replica:
                    self.open[self._replica[host.replica]] += host.active
        before, self._under_way = self._under_way, under_way
        return np.asarray(np.maximum(ended + under_way - before, 0))

    def _add_cluster(self, found: GatewayTraffic, cluster: ClusterCounts) -> None:
        """Counts of a slice on a kernel; if the kernel is unknown, only the offered requests."""
        s = self._slice[cluster.slice]
        found.offered[s] += cluster.offered
        if cluster.kernel not in self._layout.kernels:
            return
        k = self._layout.kernels.index(cluster.kernel)
        found.answered[s, k] += cluster.answered
        found.failed[s, k] += cluster.failed
        found.timed_out[s, k] += min(cluster.timed_out, cluster.failed)
        if cluster.edges_ms:
            edges_s = tuple(edge / MS_PER_S for edge in cluster.edges_ms)
            found.latency_le[s, k, _LATENCY] += on_record_edges(
                edges_s, np.array(cluster.counts, dtype=np.float64), self._layout.edges_ms
            )

    def _add(self, found: GatewayTraffic, attempt: GatewayAttempt) -> None:
        s, r = self._slice[attempt.slice], self._replica[attempt.replica]
        k = int(self._layout.replica_kernel[r])
        if _OK <= attempt.code < _REDIRECT:
            found.answered[s, k] += 1
            found.replica_answered[r] += 1
            self.consecutive_failed[r] = 0
            found.latency_le[s, k, _LATENCY] += attempt.duration_ms <= self._edges_ms
            first_ms = attempt.first_byte_ms
            if first_ms is not None and attempt.duration_ms - first_ms > _ONE_PIECE_MS:
                found.latency_le[s, k, _TTFT] += first_ms <= self._edges_ms
        elif attempt.code == _NO_ANSWER or attempt.code >= _SERVER_ERROR:
            found.failed[s, k] += 1
            found.timed_out[s, k] += attempt.code == _GATEWAY_TIMEOUT
            found.replica_failed[r] += 1
            self.consecutive_failed[r] += 1
