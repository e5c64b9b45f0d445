"""The fleet's Envoy: its files are written and checked; its process is started and restarted."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from contracts.loading.files import json_text, write_pinned
from live.errors import LiveError
from live.fleet.children import Children
from live.fleet.plan import FleetPlan
from live.fleet.processes import ProcessId, process_id
from live.fleet.server import RestartRule
from live.fleet.state import GatewayState
from live.gateway.admin import EnvoyAdmin, LogRotation
from live.gateway.clusters import shadow_cluster, slice_cluster
from live.gateway.driver import listener_file, table_files, write_files
from live.gateway.listeners import bootstrap
from live.gateway.process import envoy_command, envoy_version, find_envoy, require_free, validate
from live.gateway.settings import GatewayFiles, GatewaySettings
from live.gateway.table import GatewayRotation, GatewayTable, ShadowRoute, Upstream, slice_routes


def home_table(
    plan: FleetPlan, upstreams: tuple[Upstream, ...], shadows: tuple[ShadowRoute, ...] = ()
) -> GatewayTable:
    """The table with every slice at its home kernel, which a fleet serves until a controller changes it.

    It includes replicas that are not ready yet: a request that cannot connect to one is retried at another.
    """
    layout = plan.layout()
    table = np.zeros((len(plan.slices), len(layout.kernels) + 1))
    for index, home in enumerate(plan.homes):
        table[index, layout.kernels.index(home)] = 1.0
    all_replicas = np.ones(len(layout.replicas), dtype=np.bool_)
    by_replica = {upstream.replica: upstream for upstream in upstreams}
    rotation = GatewayRotation(in_rotation=all_replicas, upstreams=by_replica)
    return GatewayTable(
        version=0,
        routes=slice_routes(table, rotation, layout),
        default_slice=plan.default_slice,
        shadows=shadows,
        shadow_upstreams=upstreams,
    )


def with_ports(settings: GatewaySettings, free: list[int]) -> GatewaySettings:
    """``settings`` with ``free`` ports where none are named; LiveError if a named port is in use."""
    for port, what in ((settings.listen_port, "the gateway"), (settings.admin_port, "Envoy's admin")):
        if port:
            require_free(settings.listen_address, port, what)
    return replace(
        settings,
        listen_port=settings.listen_port or free[0],
        admin_port=settings.admin_port or free[1],
    )


def write_gateway(
    settings: GatewaySettings, files: GatewayFiles, table: GatewayTable, upstreams: tuple[Upstream, ...]
) -> None:
    """Write every file that Envoy starts from."""
    files.folder.mkdir(parents=True, exist_ok=True)
    files.half_reset.unlink(missing_ok=True)  # of an earlier fleet, with other ports
    clusters = [slice_cluster(route.slice) for route in table.routes]
    clusters += sorted({shadow_cluster(shadow.kernel) for shadow in table.shadows})
    start = bootstrap(settings, files, clusters, upstreams)
    write_pinned(files.bootstrap, f"{json_text(start, indent=1)}\n".encode())
    write_files([*table_files(table, settings, files), listener_file(settings, files, upstreams)])


class Envoy:
    """The Envoy process. Instants are those of the supervisor's monotonic clock, in s."""

    def __init__(
        self, settings: GatewaySettings, files: GatewayFiles, log: Path, rule: RestartRule | None = None
    ) -> None:
        """rule: when it is restarted and when it is given up; None: the servers' default rule."""
        self.settings = settings
        self._rule = rule or RestartRule()
        self._failures = 0  # ends in a row, without a steady run between them
        self._files = files
        self._log = log
        self._binary = find_envoy()
        self._version = envoy_version(self._binary)
        self._process: ProcessId | None = None
        self._starts = 0
        self._start_at_s = 0.0
        self._given_up = False
        self._live = False
        self._live_at_s = 0.0
        self._admin = EnvoyAdmin(f"http://127.0.0.1:{settings.admin_port}")
        self._rotation = LogRotation(files, self._admin)

    @property
    def pid(self) -> int:
        """Process number; 0 if it does not run."""
        return self._process.pid if self._process else 0

    def check(self) -> None:
        """Let Envoy validate its bootstrap; LiveError if it refuses it."""
        validate(self._binary, self._files)

    def advance(self, now_s: float, children: Children) -> bool:
        """Start it if it does not run and is due; whether anything changed."""
        if self._process is None and now_s >= self._start_at_s and not self._given_up:
            self._start(now_s, children)
            return True
        if self._process is not None and not self._live and self._admin.is_live():
            self._live, self._live_at_s = True, now_s
            return True
        return False

    def _start(self, now_s: float, children: Children) -> None:
        command = envoy_command(self._binary, self.settings, self._files)
        self._starts += 1
        pid = 0
        with suppress(OSError):  # a failed start, such as for lack of memory, counts as an end
            pid = children.start(command, self._log, dict(os.environ))
        self._process = process_id(pid) if pid else None
        if self._process is None:
            if pid:
                children.forget(pid)
            self._again(0.0, now_s)

    def ended(self, now_s: float, children: Children) -> None:
        """Its process ended. The rule says when it starts again; a steady run resets the count of
        failures.
        """
        children.forget(self.pid)
        ran_s = now_s - self._live_at_s if self._live else 0.0
        self._process, self._live = None, False
        self._again(ran_s, now_s)

    def _again(self, ran_s: float, now_s: float) -> None:
        self._failures = self._rule.failures(self._failures, ran_s)
        wait_s = self._rule.wait_s(self._failures)
        self._given_up = wait_s is None
        self._start_at_s = now_s + (wait_s or 0.0)

    def rotate(self, now_s: float) -> None:
        """Rotate logs that have grown large; one previous file is kept."""
        if self._live:
            self._rotation.look(now_s)

    def require_start(self) -> None:
        """LiveError if it was given up after too many ends in a row."""
        if self._given_up:
            raise LiveError(f"Envoy ended {self._failures} times in a row; see {self._log}")

    def state(self) -> GatewayState:
        """Its entry in the state file; without a process until it serves."""
        return GatewayState(
            url=f"http://{self.settings.listen_address}:{self.settings.listen_port}",
            admin_url=self._admin.url,
            settings=self.settings,
            process=self._process if self._live else None,
            version=self._version,
            restarts=max(0, self._starts - 1),
        )
