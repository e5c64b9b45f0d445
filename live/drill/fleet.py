"""What a drill needs of a fleet of real servers, and the fleet of this machine behind it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from faults.client.replica import ReplicaFaults
from live.drill.servers import await_serving, faults_of, require_drillable, warm_up
from live.fleet.control import require_up, statistics
from live.fleet.state import FleetDiscovery, FleetFolder
from live.load import LoadRecord
from live.ports import HostCounters, LiveReplica


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """Where requests go, and the model that they ask for. api_key: that servers want, "" for none."""

    url: str
    model: str
    api_key: str = field(default="", repr=False)


class DrillFleet(Protocol):
    """Real servers under a drill. Methods raise LiveError or DrillError where the fleet is not there."""

    def front(self) -> Front:
        """Where requests go; DrillError where a replica takes no faults."""

    def warm_up(self, prompt_tokens: int, answer_tokens: int) -> None:
        """Ask every server once, whose first answer takes longer."""

    def hosts(self) -> tuple[HostCounters, ...]:
        """The weights of every slice now; () where they are not known."""

    def replicas(self) -> tuple[LiveReplica, ...]:
        """Every replica, by the names of the drill's plan."""

    def faults(self, name: str) -> ReplicaFaults:
        """What steers the faults of a replica."""

    def await_serving(self, name: str, timeout_s: float) -> bool:
        """Wait until a replica serves; False when it is not in time, or given up."""

    def named(self, requests: list[LoadRecord]) -> list[LoadRecord]:
        """``requests`` with replicas by the names of the drill's plan."""

    def close(self) -> None:
        """Let go of connections; again without effect."""


class LocalFleet:
    """The fleet of this machine in ``folder``; undo records lie in ``records``."""

    def __init__(self, folder: FleetFolder, records: Path) -> None:
        self._folder, self._records = folder, records
        self._gateway = statistics(folder)

    def front(self) -> Front:
        """Its gateway."""
        state = require_drillable(self._folder, self._records)
        return Front(url=state.gateway.url, model=state.served_name)

    def warm_up(self, prompt_tokens: int, answer_tokens: int) -> None:
        """Ask every server for one answer and one row of log-probabilities."""
        warm_up(require_up(self._folder), prompt_tokens, answer_tokens)

    def hosts(self) -> tuple[HostCounters, ...]:
        """What the gateway reports."""
        return self._gateway.read().hosts

    def replicas(self) -> tuple[LiveReplica, ...]:
        """What the supervisor wrote down last; a replica's process is None while it does not run."""
        return FleetDiscovery(self._folder).replicas()

    def faults(self, name: str) -> ReplicaFaults:
        """What steers the faults of a replica."""
        return faults_of(self._folder, name, self._records)

    def await_serving(self, name: str, timeout_s: float) -> bool:
        """Wait until a replica serves."""
        return await_serving(self._folder, name, timeout_s)

    def named(self, requests: list[LoadRecord]) -> list[LoadRecord]:
        """As they are: this gateway names replicas as the plan does."""
        return requests

    def close(self) -> None:
        """Read the gateway no more."""
        self._gateway.close()
