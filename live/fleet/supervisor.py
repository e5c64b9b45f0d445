"""The supervisor process of a fleet: starts servers and Envoy, restarts them, and writes the state file."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from live.errors import LiveError
from live.fleet.children import Children
from live.fleet.envoy import Envoy, home_table, with_ports, write_gateway
from live.fleet.launchers import ForkLauncher, Launcher, NotYetError, SpawnLauncher
from live.fleet.plan import FleetPlan, has_gpu
from live.fleet.processes import adopt_orphans, await_group_end, kill_group, process_id, runs
from live.fleet.server import RestartRule, Server, ServerSettings
from live.fleet.state import FleetFolder, FleetState, Phase, read_state, write_state
from live.gateway.process import free_ports
from live.gateway.settings import GatewaySettings
from live.gateway.table import ShadowRoute

_TICK_S = 0.05
_GRACE_S = 5.0


class StartMethod(StrEnum):
    """How servers are started. auto: forked on a CPU if possible, otherwise spawned."""

    AUTO = "auto"
    FORK = "fork"
    SPAWN = "spawn"


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorOptions:
    """Options of a fleet. start_s: longest time of one server from start to ready."""

    start: StartMethod = StartMethod.AUTO
    gateway: GatewaySettings = field(default_factory=GatewaySettings)
    rule: RestartRule = field(default_factory=RestartRule)
    shadows: tuple[ShadowRoute, ...] = ()
    start_s: float = 300.0


Say = Callable[[str], None]


def claim(folder: FleetFolder) -> int:
    """Lock ``folder`` for this process; LiveError while another fleet runs there.

    Processes that a killed supervisor left behind are ended first.
    """
    folder.path.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder.lock, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise LiveError(
            f"{folder.path}: a fleet runs there already; end it with `selvage fleet down`"
        ) from None
    end_leftovers(read_state(folder))
    return descriptor


def end_leftovers(state: FleetState | None) -> int:
    """Kill process groups that a state file names and that still run; returns their number."""
    named = [server.process for server in state.servers] + [state.gateway.process] if state else []
    left = [process for process in named if process is not None and runs(process)]
    for process in left:
        kill_group(process.pid)
        await_group_end(process.pid, _GRACE_S)
    return len(left)


class Supervisor:
    """Runs one fleet in this process. Start it from the main thread, because its children die with that
    thread.
    """

    def __init__(self, folder: FleetFolder, plan: FleetPlan, options: SupervisorOptions, say: Say) -> None:
        self._folder = folder
        self._plan = plan
        self._options = options
        self._say = say
        self._stopping = False
        self._began_at_s = time.monotonic()
        self._up_s = 0.0
        self._told: dict[str, str] = {}
        self._unwritten = False
        ports = free_ports(len(plan.replicas) + 2)
        self._servers = tuple(
            Server(plan=one, options=plan.options, port=port, log=folder.log(one.name))
            for one, port in zip(plan.replicas, ports, strict=False)
        )
        settings = with_ports(options.gateway, ports[-2:])
        self._envoy = Envoy(settings, folder.gateway, folder.log("envoy"), options.rule)

    def stop(self, *_: Any) -> None:
        """End the fleet; can be used as a signal handler."""
        self._stopping = True

    def run(self) -> None:
        """Start the fleet and keep it running until ``stop``; LiveError if it cannot be started."""
        lock = claim(self._folder)
        upstreams = tuple(server.upstream for server in self._servers)
        table = home_table(self._plan, upstreams, self._options.shadows)
        write_gateway(self._envoy.settings, self._folder.gateway, table, upstreams)
        self._envoy.check()
        self._publish(0.0, self._options.start.value)
        adopt_orphans()
        children = Children()
        try:
            with ThreadPoolExecutor(max_workers=len(self._servers)) as executor:
                self._keep_up(children, executor)
        finally:
            self._end(children)
            os.close(lock)

    def _keep_up(self, children: Children, executor: ThreadPoolExecutor) -> None:
        launcher = self._launcher(children)
        means = ServerSettings(
            launcher=launcher,
            children=children,
            executor=executor,
            rule=self._options.rule,
            start_s=self._options.start_s,
        )
        try:
            while not self._stopping:
                self._turn(means)
                time.sleep(_TICK_S)
        finally:
            self._terminate(means)
            launcher.close()

    def _turn(self, means: ServerSettings) -> None:
        now_s = time.monotonic() - self._began_at_s
        changed = False
        for pid, code in means.children.ended().items():
            changed |= self._note_end(pid, code, now_s, means)
        changed |= self._envoy.advance(now_s, means.children)
        self._envoy.require_start()
        self._envoy.rotate(now_s)
        for server in self._servers:
            changed |= server.advance(now_s, means)
        if changed or self._unwritten:
            self._publish(now_s, means.launcher.how)

    def _note_end(self, pid: int, code: int, now_s: float, means: ServerSettings) -> bool:
        if pid == self._envoy.pid:
            self._envoy.ended(now_s, means.children)
            return True
        for server in self._servers:
            if server.process is not None and server.process.pid == pid:
                server.ended(code, now_s, means)
                return True
        return False

    def _publish(self, now_s: float, how: str) -> None:
        state = self._state(how)
        if not self._up_s and state.ready():
            self._up_s = now_s
            state = replace(state, up_s=round(now_s, 3))
        self._unwritten = not self._written(state)
        for server in state.servers:
            self._tell(server.name, _words(server.phase, server.up_s, server.note))
        if state.gateway.process is not None:
            self._tell("gateway", f"ready at {state.gateway.url}")

    def _written(self, state: FleetState) -> bool:
        """Write the state file. A failure, such as a full disk, is reported and retried; the fleet
        continues.
        """
        try:
            write_state(self._folder, state)
        except OSError as error:
            self._tell("state file", f"cannot be written: {error.strerror or error}")
            return False
        self._told.pop("state file", None)
        return True

    def _tell(self, name: str, words: str) -> None:
        if self._told.get(name) != words:
            self._told[name] = words
            self._say(f"{name}: {words}")

    def _state(self, how: str) -> FleetState:
        supervisor = process_id(os.getpid())
        assert supervisor is not None
        return FleetState(
            pool=self._plan.pool,
            pool_file=self._plan.pool_file,
            model=self._plan.options.model,
            served_name=self._plan.options.served_name,
            how=how,
            supervisor=supervisor,
            servers=tuple(server.state() for server in self._servers),
            gateway=self._envoy.state(),
            slices=self._plan.slices,
            homes=self._plan.homes,
            default_slice=self._plan.default_slice,
            up_s=round(self._up_s, 3),
        )

    def _launcher(self, children: Children) -> Launcher:
        """The launcher to use: forking if requested or possible; a failed attempt is reported."""
        chosen = self._options.start
        if chosen is StartMethod.SPAWN or (chosen is StartMethod.AUTO and has_gpu()):
            return SpawnLauncher(children)
        forker = ForkLauncher(children, self._folder.log("forker"))
        forker.begin()
        try:
            self._say("importing vLLM once")
            self._await_forker(forker)
        except LiveError as error:
            forker.close()
            if chosen is StartMethod.FORK:
                raise
            self._say(f"servers are started singly: {error}")
            return SpawnLauncher(children)
        return forker

    def _await_forker(self, forker: ForkLauncher) -> None:
        deadline_at_s = time.monotonic() + self._options.start_s
        while not self._stopping:
            try:
                forker.require_ready()
                return
            except NotYetError:
                if time.monotonic() > deadline_at_s:
                    raise LiveError(f"vLLM is not imported after {self._options.start_s:g} s") from None
                time.sleep(_TICK_S)

    def _terminate(self, means: ServerSettings) -> None:
        """Ask Envoy and the servers to end, then kill those that remain."""
        for server in self._servers:
            server.abandon()
        found = [self._envoy.pid, *(server.process.pid for server in self._servers if server.process)]
        pids = [pid for pid in found if pid]
        for pid in pids:
            means.children.kill(pid, signal.SIGTERM)
        deadline_at_s = time.monotonic() + _GRACE_S
        while pids and time.monotonic() < deadline_at_s:
            ended = means.children.ended()
            pids = [pid for pid in pids if pid not in ended]
            time.sleep(_TICK_S)
        for pid in pids:
            means.children.kill(pid)

    def _end(self, children: Children) -> None:
        children.close()
        for server in self._servers:
            server.phase, server.process = Phase.STOPPED, None
        state = read_state(self._folder)
        if state is not None:
            servers = tuple(server.state() for server in self._servers)
            self._written(replace(state, servers=servers, gateway=replace(state.gateway, process=None)))


def _words(phase: Phase, up_s: float, note: str) -> str:
    if phase is Phase.READY:
        return f"ready after {up_s:.1f} s"
    return f"{phase.value}: {note}" if note else phase.value
