"""The interface that a drill needs of a fleet of real servers, and its implementation for this machine."""

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
    """Where requests are sent, and the model they name. api_key: that servers require; "" for none."""

    url: str
    model: str
    api_key: str = field(default="", repr=False)


class DrillFleet(Protocol):
    """Real servers under a drill. Methods raise LiveError or DrillError if the fleet does not run."""

    def front(self) -> Front:
        """The address for requests; DrillError if a replica does not accept faults."""

    def warm_up(self, prompt_tokens: int, answer_tokens: int) -> None:
        """Send every server one request, because its first answer takes longer."""

    def hosts(self) -> tuple[HostCounters, ...]:
        """Current weights of every slice; () if unknown."""

    def replicas(self) -> tuple[LiveReplica, ...]:
        """Every replica, named as in the drill's plan."""

    def faults(self, name: str) -> ReplicaFaults:
        """The client that steers a replica's faults."""

    def await_serving(self, name: str, timeout_s: float) -> bool:
        """Wait until a replica serves; False on timeout, or if it was given up."""

    def named(self, requests: list[LoadRecord]) -> list[LoadRecord]:
        """``requests`` with replicas named as in the drill's plan."""

    def close(self) -> None:
        """Close connections; repeated calls have no effect."""


class LocalFleet:
    """The fleet of this machine in ``folder``; undo records are kept in ``records``."""

    def __init__(self, folder: FleetFolder, records: Path) -> None:
        self._folder, self._records = folder, records
        self._gateway = statistics(folder)

    def front(self) -> Front:
        """The fleet's gateway."""
        state = require_drillable(self._folder, self._records)
        return Front(url=state.gateway.url, model=state.served_name)

    def warm_up(self, prompt_tokens: int, answer_tokens: int) -> None:
        """Request one answer and one row of log-probabilities from every server."""
        warm_up(require_up(self._folder), prompt_tokens, answer_tokens)

    def hosts(self) -> tuple[HostCounters, ...]:
        """Weights as the gateway reports them."""
        return self._gateway.read().hosts

    def replicas(self) -> tuple[LiveReplica, ...]:
        """The replicas in the supervisor's state file; ``pid`` is None while a replica does not run."""
        return FleetDiscovery(self._folder).replicas()

    def faults(self, name: str) -> ReplicaFaults:
        """The client that steers a replica's faults."""
        return faults_of(self._folder, name, self._records)

    def await_serving(self, name: str, timeout_s: float) -> bool:
        """Wait until a replica serves."""
        return await_serving(self._folder, name, timeout_s)

    def named(self, requests: list[LoadRecord]) -> list[LoadRecord]:
        """Unchanged: this gateway names replicas as the plan does."""
        return requests

    def close(self) -> None:
        """Stop reading the gateway."""
        self._gateway.close()
