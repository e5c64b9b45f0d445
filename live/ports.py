"""Ports of the live world: discovery of servers, gateway statistics, stream resets, traffic shares.

Telemetry, prober and drills are written against these protocols; a fleet on this machine (``live.fleet``),
servers started elsewhere, and tests implement them. Routing itself is ``controller.ports.RouteActuator``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from contracts.telemetry import ReplicaState


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveReplica:
    """One server as discovery reports it. pid: its main process, None for servers started elsewhere."""

    name: str
    kernel: str
    url: str  # http://HOST:PORT, without a path
    state: ReplicaState
    pid: int | None = None
    fingerprint: str = ""  # as the server states it; "": unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayRequest:
    """One finished request at the gateway, as the client saw it."""

    started_at_s: float  # Unix time
    slice: str
    code: int  # HTTP status, 0: the client got none
    shed: bool  # answered 429 by the table
    replica: str  # that gave the answer; "" if there was none
    attempts: int  # attempts at replicas
    duration_ms: float
    flags: str  # Envoy's response flags, "" for none


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayAttempt:
    """One attempt of a request at one replica, retried or not."""

    started_at_s: float  # Unix time at which the request came
    slice: str
    replica: str
    code: int  # HTTP status, 0: no answer
    first_byte_ms: float | None  # from the start of the request to the replica's first byte
    duration_ms: float  # from the start of the request to the end of this attempt
    flags: str
    shadow: bool  # a mirrored request; its answer is dropped


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCounters:
    """Counters of a replica in the cluster of a slice, since the replica was added to the cluster."""

    slice: str
    replica: str
    weight: int
    active: int  # requests under way
    succeeded: int
    failed: int
    connect_failed: int
    ejected: bool  # by the gateway's own outlier detection


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterCounts:
    """Increments since the last reading, from a gateway that counts by slice and kernel only."""

    slice: str
    kernel: str  # "" if the gateway does not distinguish kernels, and for shed requests
    offered: int  # requests that began
    answered: int
    failed: int
    timed_out: int = 0  # part of ``failed``: no complete answer in time, if the gateway reports it
    edges_ms: tuple[float, ...] = ()  # upper edges of ``counts``, the last inf; (): not reported
    counts: tuple[int, ...] = ()  # answers up to each edge


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySample:
    """Everything that the gateway reported since the last reading. Rows carry no text of users.

    whole: False if the gateway is unreachable or was restarted since: requests in flight were lost through no
    fault of a replica.
    """

    read_at_s: float  # Unix time
    requests: tuple[GatewayRequest, ...]
    attempts: tuple[GatewayAttempt, ...]
    hosts: tuple[HostCounters, ...]
    unreadable: int  # rows that could not be parsed
    clusters: tuple[ClusterCounts, ...] = ()
    whole: bool = True
    tells_replicas: bool = True  # False: the gateway does not report single replicas


@dataclass(frozen=True, slots=True, kw_only=True)
class Unanswered:
    """Why a replica's metrics could not be read, or were empty. times: how often in a row."""

    why: str
    times: int


class Discovery(Protocol):
    """Finds the replicas that exist now."""

    def replicas(self) -> tuple[LiveReplica, ...]:
        """Every known replica, ready or not, in a fixed order."""


class GatewayStatistics(Protocol):
    """Reads what the gateway counted."""

    def read(self) -> GatewaySample:
        """Everything reported since the previous call."""


class StreamReset(Protocol):
    """Ends the open requests of a hung replica."""

    def reset(self, replica: str) -> None:
        """End every open request at ``replica``; unanswered ones are retried elsewhere. Raises LiveError."""


class ReplicaShares(Protocol):
    """Limits the traffic of replicas that are being re-admitted."""

    def admit(self, shares: Mapping[str, float]) -> None:
        """Set shares (replica -> 0..1 of a full replica's traffic) from the next plan on; others have 1."""
