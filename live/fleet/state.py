"""The state file of a fleet, which other processes read: a terminal, a controller, a prober."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from pydantic import TypeAdapter

from contracts.loading.files import write_json
from contracts.loading.untrusted import json_of
from contracts.regular_files import TEXT_BYTES, open_regular
from contracts.telemetry import ReplicaState
from live.errors import LiveError
from live.fleet.processes import ProcessId, runs
from live.gateway.settings import GatewayFiles, GatewaySettings
from live.ports import LiveReplica

FORMAT = 1


class Phase(StrEnum):
    """Phase of a server's life cycle."""

    WAITING = "waiting"  # for its first start or a restart
    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"  # given up
    STOPPED = "stopped"


#: State of each phase in the controller's telemetry.
REPLICA_STATES = {
    Phase.WAITING: ReplicaState.DEAD,
    Phase.STARTING: ReplicaState.STARTING,
    Phase.READY: ReplicaState.READY,
    Phase.FAILED: ReplicaState.DEAD,
    Phase.STOPPED: ReplicaState.ABSENT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerState:
    """One replica as the supervisor knows it. up_s: from start to ready; restarts: starts after the first."""

    name: str
    kernel: str
    url: str
    phase: Phase
    process: ProcessId | None = None
    nonce: str = ""
    fingerprint: str = ""
    version: str = ""
    context_tokens: int = 0
    up_s: float = 0.0
    restarts: int = 0
    note: str = ""  # why it is not ready
    arguments: tuple[str, ...] = ()  # of vLLM, without address, port and names


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayState:
    """Envoy as the supervisor knows it."""

    url: str
    admin_url: str
    settings: GatewaySettings
    process: ProcessId | None = None
    version: str = ""
    restarts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetState:
    """A fleet at one instant. up_s: from the command until all servers are ready; 0 before that."""

    pool: str
    model: str
    served_name: str
    how: str  # servers are forked or spawned
    supervisor: ProcessId
    servers: tuple[ServerState, ...]
    gateway: GatewayState
    slices: tuple[str, ...]
    homes: tuple[str, ...]
    default_slice: str
    pool_file: str = ""  # file of the KernelPool that was started
    up_s: float = 0.0

    def ready(self) -> bool:
        """Whether everything serves."""
        return self.gateway.process is not None and all(s.phase is Phase.READY for s in self.servers)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetFolder:
    """The folder of one fleet and the paths in it."""

    path: Path

    @property
    def state(self) -> Path:
        """The state file."""
        return self.path / "fleet.json"

    @property
    def lock(self) -> Path:
        """Lock file that the supervisor holds while it runs."""
        return self.path / "fleet.lock"

    @property
    def gateway(self) -> GatewayFiles:
        """The files of Envoy."""
        return GatewayFiles(folder=self.path / "gateway")

    @property
    def drills(self) -> Path:
        """Drill files of a fleet that accepts faults: notes, records, and the needs of each replica."""
        return self.path / "drills"

    def log(self, name: str) -> Path:
        """Log of the process called ``name``."""
        return self.path / "logs" / f"{name}.log"


_STATE = TypeAdapter(FleetState)


def write_state(folder: FleetFolder, state: FleetState) -> None:
    """Replace the state file atomically."""
    write_json(folder.state, {"format": FORMAT, **asdict(state)}, indent=1)


def read_state(folder: FleetFolder) -> FleetState | None:
    """The fleet's last written state; None without a file; LiveError if the file is not a valid state."""
    try:
        with open_regular(folder.state) as stream:
            found = json_of(stream.read(TEXT_BYTES))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise LiveError(f"{folder.state}: no state of a fleet ({error}); remove it") from None
    if not isinstance(found, dict) or found.pop("format", None) != FORMAT:
        raise LiveError(
            f"{folder.state}: written by another version; end that fleet with the version it is of"
        )
    try:
        return _STATE.validate_python(found)
    except ValueError as error:
        first = " ".join(str(error).split())[:200]
        raise LiveError(f"{folder.state}: no state of a fleet ({first}); remove it") from None


def is_up(state: FleetState | None) -> bool:
    """Whether the supervisor in ``state`` is alive."""
    return state is not None and runs(state.supervisor)


class FleetDiscovery:
    """``live.ports.Discovery`` over a state file: the last state that could be read.

    A missing or unreadable file changes no server: the last known state is used while its supervisor lives.
    ``outdated`` says why the state is not current; "" if it is. A new fleet in the same folder is refused,
    because its gateway has other ports.
    """

    def __init__(self, folder: FleetFolder) -> None:
        self._folder = folder
        self._last: FleetState | None = None
        self.outdated = ""

    def replicas(self) -> tuple[LiveReplica, ...]:
        """Every replica in the order of the fleet; all are absent once the supervisor has died.

        Raises LiveError if the file is unreadable and never was readable, or if another fleet now runs there.
        """
        try:
            state, problem = read_state(self._folder), f"{self._folder.state}: the file is gone"
        except LiveError as error:
            if self._last is None:
                raise
            state, problem = None, str(error)
        if state is not None and self._last is not None and state.supervisor != self._last.supervisor:
            self._refuse_another(state)
        self.outdated = problem if state is None and self._last is not None else ""
        self._last = state or self._last
        alive = is_up(self._last)
        return tuple(_replica(server, alive) for server in (self._last.servers if self._last else ()))

    def _refuse_another(self, state: FleetState) -> None:
        """Refuse another fleet's state: it would change a gateway that the controller does not know."""
        if is_up(state):
            message = "another fleet runs there since; end this controller and start it anew"
            raise LiveError(f"{self._folder.path}: {message}")


def _replica(server: ServerState, alive: bool) -> LiveReplica:
    state = REPLICA_STATES[server.phase] if alive else ReplicaState.ABSENT
    return LiveReplica(
        name=server.name,
        kernel=server.kernel,
        url=server.url,
        state=state,
        pid=server.process.pid if server.process else None,
        fingerprint=server.fingerprint,
    )
