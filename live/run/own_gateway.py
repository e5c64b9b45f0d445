"""An own Envoy in front of servers that were started elsewhere. It outlives the controller and is reused.

Its files are those of ``selvage fleet up``; every slice is at home until a controller changes it. It is not
restarted while no controller runs: if it ended, the next controller starts it with the last table in force.
To start or end it, a process must hold ``live.control.claim.controlling``.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter

from contracts.documents import KernelPool
from contracts.errors import refusal
from contracts.loading.files import write_json
from contracts.loading.untrusted import json_of
from contracts.regular_files import TEXT_BYTES, open_regular
from live.control.loop import Turn
from live.errors import LiveError, PlanError
from live.fleet.envoy import home_table, with_ports, write_gateway
from live.fleet.plan import FleetPlan, ReplicaPlan
from live.fleet.processes import await_group_end, kill_group, process_id, runs
from live.fleet.state import GatewayState
from live.gateway.actuator import upstream_of
from live.gateway.admin import EnvoyAdmin, LogRotation
from live.gateway.driver import GatewayDriver
from live.gateway.process import envoy_command, envoy_version, find_envoy, free_ports, require_free, validate
from live.gateway.settings import GatewayFiles, GatewaySettings
from live.gateway.statistics import GatewayLogs
from live.gateway.table import Upstream
from live.ports import LiveReplica

_STATE, _FORMAT = "own-gateway.json", 1
_UP_S, _END_S, _FREE_S, _POLL_S = 20.0, 10.0, 5.0, 0.05
_LEFT_RUNNING: list[subprocess.Popen[bytes]] = []  # kept, because a dropped Popen warns that it still runs


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnGateway:
    """The content of the state file. servers: address of each replica. Servers and slices are fixed while
    Envoy runs, because it reads its clusters once.
    """

    format: int = _FORMAT
    gateway: GatewayState
    servers: dict[str, str]
    slices: tuple[str, ...]


_ADAPTER = TypeAdapter(OwnGateway)


def gateway_files(folder: Path) -> GatewayFiles:
    """Paths of the gateway's files."""
    return GatewayFiles(folder=folder / "gateway")


def ensure_gateway(
    folder: Path, pool: KernelPool, file: Path, replicas: tuple[LiveReplica, ...], port: int = 0
) -> tuple[OwnGateway, bool]:
    """The Envoy in ``folder`` in front of ``replicas`` of ``pool``, read from ``file``; and whether it is
    new.

    port: where it serves; 0: its previous port, or else any. Raises DocumentError for an address that Envoy
    cannot use. Raises LiveError if it runs for other servers or at another port, is missing, or does not
    start.
    """
    upstreams = tuple(_upstream(one, file) for one in replicas)
    servers = {one.name: one.url for one in replicas}
    slices = tuple(home.slice for home in pool.spec.home)
    _reap()
    before = read_gateway(folder)
    same = before is not None and (before.servers, before.slices) == (servers, slices)
    if before is not None and _is_up(before):
        _refuse_other(before, folder, same=same, port=port)
        return before, False
    settings = GatewaySettings(listen_port=port)
    folder.mkdir(parents=True, exist_ok=True)
    if before is not None and same and port in (0, before.gateway.settings.listen_port):
        settings = before.gateway.settings  # its table files still exist, so the last table stays in force
        _await_free(settings)
    else:
        settings = with_ports(settings, free_ports(2))
        plan = _plan(pool, replicas)
        write_gateway(settings, gateway_files(folder), home_table(plan, upstreams), upstreams)
    with _starting(folder, settings) as child:
        state = replace(_serving(child, settings, folder), process=process_id(child.pid))
        found = OwnGateway(gateway=state, servers=servers, slices=slices)
        write_json(folder / _STATE, asdict(found), indent=1)
    return found, True


def end_gateway(folder: Path) -> bool:
    """End the Envoy in ``folder``; whether one ran. Its table is forgotten."""
    found = read_gateway(folder)
    ran = found is not None and _is_up(found)
    if found is not None and found.gateway.process is not None and ran:
        kill_group(found.gateway.process.pid, signal.SIGTERM)
        if not await_group_end(found.gateway.process.pid, _END_S):
            kill_group(found.gateway.process.pid)
            await_group_end(found.gateway.process.pid, _END_S)
    _reap()
    (folder / _STATE).unlink(missing_ok=True)
    return ran


def read_gateway(folder: Path) -> OwnGateway | None:
    """The state file's content in ``folder``; None without a file; LiveError if it is not valid."""
    file = folder / _STATE
    try:
        with open_regular(file) as stream:
            found = _ADAPTER.validate_python(json_of(stream.read(TEXT_BYTES)))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        first = " ".join(str(error).split())[:200]
        raise LiveError(f"{file}: no state of a gateway ({first}); end its Envoy and remove it") from None
    if found.format != _FORMAT:
        raise LiveError(f"{file}: written by another version; end that Envoy with the version it is of")
    return found


class LogsWatch:
    """``TurnWatcher`` that rotates large logs of the gateway."""

    def __init__(self, rotation: LogRotation) -> None:
        self._rotation = rotation

    def turn(self, turn: Turn) -> None:
        """Check from time to time."""
        self._rotation.look(turn.at_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayFront:
    """The own Envoy as a controller uses it, with a description to print."""

    driver: GatewayDriver
    statistics: GatewayLogs
    rotation: LogsWatch
    description: str


@contextmanager
def serving_gateway(
    folder: Path, pool: KernelPool, file: Path, replicas: tuple[LiveReplica, ...], port: int
) -> Iterator[GatewayFront]:
    """``ensure_gateway`` with its driver; after the block Envoy continues with the last table."""
    found, new = ensure_gateway(folder, pool, file, replicas, port)
    files = gateway_files(folder)
    begun = "was started" if new else "ran already"
    message = (
        f"Envoy {found.gateway.version} {begun} and serves at {found.gateway.url}; it goes on when this "
        "controller ends, until --end-envoy"
    )
    with (
        closing(EnvoyAdmin(found.gateway.admin_url)) as admin,
        closing(GatewayDriver(found.gateway.settings, files, admin)) as driver,
    ):
        yield GatewayFront(
            driver=driver,
            statistics=GatewayLogs(files, admin, found.slices),
            rotation=LogsWatch(LogRotation(files, admin)),
            description=message,
        )


def _reap() -> None:
    """Reap ended children of this process; otherwise they would stay zombies."""
    _LEFT_RUNNING[:] = [child for child in _LEFT_RUNNING if child.poll() is None]


def _upstream(replica: LiveReplica, file: Path) -> Upstream:
    try:
        return upstream_of(replica)
    except PlanError:
        hint = "give its IP address, or route to it yourself and run with --observe"
        expected = "http://IP-ADDRESS:PORT: Envoy looks up no names here and speaks no TLS to servers"
        raise refusal(file, expected, replica.url, hint, path=f"servers of {replica.kernel}") from None


def _is_up(found: OwnGateway) -> bool:
    return found.gateway.process is not None and runs(found.gateway.process)


def _refuse_other(found: OwnGateway, folder: Path, *, same: bool, port: int) -> None:
    """LiveError if the running Envoy is not the requested one."""
    own = found.gateway.settings.listen_port
    if not same:
        message = "was started for other servers or slices, which it reads once"
    elif port not in (0, own):
        message = f"serves at port {own}, not {port}"
    else:
        return
    raise LiveError(f"{folder}: the Envoy that runs there {message}; end it with --end-envoy")


def _plan(pool: KernelPool, replicas: tuple[LiveReplica, ...]) -> FleetPlan:
    """The servers as a fleet plan, for its home table."""
    return FleetPlan(
        pool=pool.metadata.name,
        replicas=tuple(ReplicaPlan(name=one.name, kernel=one.kernel, arguments=()) for one in replicas),
        slices=tuple(home.slice for home in pool.spec.home),
        homes=tuple(home.kernel for home in pool.spec.home),
        default_slice=pool.spec.home[0].slice,
        known_good=next(kernel.name for kernel in pool.spec.kernels if kernel.role == "known_good"),
    )


def _await_free(settings: GatewaySettings) -> None:
    """Wait until the ports of a killed Envoy are free; LiveError if another process uses them."""
    deadline_at_s = time.monotonic() + _FREE_S
    while True:
        try:
            require_free(settings.listen_address, settings.listen_port, "the gateway")
            require_free("127.0.0.1", settings.admin_port, "Envoy's admin")
        except LiveError:
            if time.monotonic() > deadline_at_s:
                raise
            time.sleep(_POLL_S)
        else:
            return


@contextmanager
def _starting(folder: Path, settings: GatewaySettings) -> Iterator[subprocess.Popen[bytes]]:
    """Start Envoy in its own session; it continues after the block. If the block fails, Envoy is killed,
    because no later start would know of an unrecorded Envoy.
    """
    binary, files = find_envoy(), gateway_files(folder)
    validate(binary, files)
    with _log(folder).open("ab") as stream:
        command = envoy_command(binary, settings, files)
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, start_new_session=True
        )
    try:
        yield child
    except BaseException:  # including KeyboardInterrupt
        child.kill()
        child.wait()
        raise
    _LEFT_RUNNING.append(child)


def _serving(child: subprocess.Popen[bytes], settings: GatewaySettings, folder: Path) -> GatewayState:
    """The state of the Envoy ``child`` once it serves."""
    with closing(EnvoyAdmin(f"http://127.0.0.1:{settings.admin_port}")) as admin:
        deadline_at_s = time.monotonic() + _UP_S
        while not admin.is_live():
            if child.poll() is not None or time.monotonic() > deadline_at_s:
                raise LiveError(f"Envoy does not come up; see {_log(folder)}")
            time.sleep(_POLL_S)
        return GatewayState(
            url=f"http://{settings.listen_address}:{settings.listen_port}",
            admin_url=admin.url,
            settings=settings,
            version=envoy_version(find_envoy()),
        )


def _log(folder: Path) -> Path:
    return folder / "envoy.log"
