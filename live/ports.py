"""The ports of the live world: discovery of servers, the gateway's counts, resets of streams, shares.

Telemetry, prober and drills are written against these; a fleet of this machine (``live.fleet``), servers that
somebody else started, and tests implement them. Routing itself is ``controller.ports.RouteActuator``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from contracts.telemetry import ReplicaState


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveReplica:
    """One server as discovery sees it. pid: its main process, None for servers that others started."""

    name: str
    kernel: str
    url: str  # http://HOST:PORT, without a path
    state: ReplicaState
    pid: int | None = None
    fingerprint: str = ""  # as the server states it; empty: not known


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayRequest:
    """One request as it ended at the gateway: counts what clients saw."""

    started_at_s: float  # Unix time
    slice: str
    code: int  # HTTP status, 0: the client got none
    shed: bool  # answered 429 by the table
    replica: str  # that gave the answer, "" where none did
    attempts: int  # tries at replicas
    duration_ms: float
    flags: str  # Envoy's response flags, "" for none


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayAttempt:
    """One try at a replica: counts what replicas did, retried or not."""

    started_at_s: float  # Unix time at which the request came
    slice: str
    replica: str
    code: int  # HTTP status, 0: no answer
    first_byte_ms: float | None  # from the start of the request to the replica's first byte
    duration_ms: float  # from the start of the request to the end of this try
    flags: str
    shadow: bool  # a mirrored copy; nobody waits for its answer


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCounters:
    """What the gateway counted of a replica in the cluster of a slice since the replica was put there."""

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
    """What a gateway that counts by slice and kernel alone counted since the last reading."""

    slice: str
    kernel: str  # "" where the gateway does not tell kernels apart, and for what was shed
    offered: int  # requests that began
    answered: int
    failed: int
    timed_out: int = 0  # of these, no whole answer in time, as far as the gateway tells
    edges_ms: tuple[float, ...] = ()  # upper edges of ``counts``, the last inf; (): not told
    counts: tuple[int, ...] = ()  # answers up to each edge


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySample:
    """All that the gateway reported since the last reading. Rows carry no text of users.

    whole: False where the gateway is not there, or was started anew since: what it was about has no answer,
    and no replica is at fault.
    """

    read_at_s: float  # Unix time
    requests: tuple[GatewayRequest, ...]
    attempts: tuple[GatewayAttempt, ...]
    hosts: tuple[HostCounters, ...]
    unreadable: int  # rows that could not be parsed
    clusters: tuple[ClusterCounts, ...] = ()
    whole: bool = True
    tells_replicas: bool = True  # False: of single replicas it says nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Unanswered:
    """Why a replica was not read, or told nothing. times: in a row."""

    why: str
    times: int


class Discovery(Protocol):
    """Which replicas there are, now."""

    def replicas(self) -> tuple[LiveReplica, ...]:
        """Every known replica, ready or not, in a fixed order."""


class GatewayStatistics(Protocol):
    """What the gateway saw."""

    def read(self) -> GatewaySample:
        """Everything since the previous call."""


class StreamReset(Protocol):
    """Ends the open requests of a hung replica."""

    def reset(self, replica: str) -> None:
        """End every open request at ``replica``; unanswered ones are tried elsewhere. Raises LiveError."""


class ReplicaShares(Protocol):
    """Gives replicas that come back a part of their traffic."""

    def admit(self, shares: Mapping[str, float]) -> None:
        """From the next plan on: 0..1 of what a whole replica gets; who is not named is whole."""
