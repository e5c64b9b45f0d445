"""``selvage fleet``: vLLM servers of different kernels behind Envoy on this machine."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contracts.errors import DocumentError, refusal
from contracts.loading.files import json_text
from scripts import cli
from scripts.cli.options import options

if TYPE_CHECKING:
    from live.fleet.plan import FleetPlan
    from live.fleet.state import FleetFolder, FleetState, ServerState
    from live.fleet.supervisor import SupervisorOptions
    from live.gateway.table import ShadowRoute

app = typer.Typer(no_args_is_help=True, help="Run vLLM servers of different kernels behind Envoy.")

_FolderOption = Annotated[
    Path | None,
    typer.Option(
        "--folder", help="Where state, logs and gateway files lie; by default in your state folder."
    ),
]
_DEFAULT_NAME = "live"


@dataclass(frozen=True, slots=True, kw_only=True)
class UpOptions:
    """Options of ``selvage fleet up``."""

    pool: Annotated[
        str, typer.Argument(help="KernelPool (file or package: URI); default: a shipped one.")
    ] = ""
    model: Annotated[str, typer.Option("--model", help="Folder or hub name; default: the shipped model.")] = (
        ""
    )
    served_name: Annotated[str, typer.Option("--served-name", help="Model name of requests.")] = "selvage"
    folder: _FolderOption = None
    port: Annotated[
        int, typer.Option("--port", min=0, max=65_535, help="Port of the gateway; 0: any free one.")
    ] = 0
    start: Annotated[str, typer.Option("--start", help="auto, fork (CPU, fast) or spawn.")] = "auto"
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Return when the fleet is up.")] = False
    shadow: Annotated[
        list[str] | None,
        typer.Option("--shadow", help="SLICE:KERNEL=RATIO: mirror that share of a slice; repeatable."),
    ] = None
    context: Annotated[
        int, typer.Option("--context", min=0, help="Longest prompt and answer, tokens; 0: the model's.")
    ] = 0
    kv_cache_mib: Annotated[int, typer.Option("--kv-cache-mib", min=1, help="KV cache per replica, MiB.")] = (
        64
    )
    server_arg: Annotated[
        list[str] | None, typer.Option("--server-arg", help="Passed on to every vLLM server; repeatable.")
    ] = None
    timeout_s: Annotated[float, typer.Option("--timeout", min=1.0, help="Longest start of a server, s.")] = (
        300.0
    )
    drills: Annotated[bool, typer.Option("--drills", help="Let `selvage drill` inject faults into it.")] = (
        False
    )


@app.command()
@options(UpOptions)
def up(chosen: UpOptions) -> None:
    """Bring a fleet up and keep it up until Ctrl-C, or in the background with --detach."""
    folder = _folder(chosen.folder)
    if chosen.detach:
        _detached(folder, chosen.timeout_s)
        return
    from live.fleet.supervisor import Supervisor

    supervisor = Supervisor(folder, *_plans(chosen), lambda text: typer.echo(text, err=True))
    signal.signal(signal.SIGTERM, supervisor.stop)
    signal.signal(signal.SIGINT, supervisor.stop)
    supervisor.run()


@app.command()
def status(
    folder: _FolderOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say what runs; exit 1 unless everything serves."""
    from live.fleet.state import is_up, read_state

    place = _folder(folder)
    state = read_state(place)
    alive = is_up(state)
    if as_json:
        typer.echo(json_text({"up": alive, "fleet": asdict(state) if state else None}))
    elif state is None or not alive:
        typer.echo(f"no fleet runs in {place.path}")
    else:
        _show(state)
    if state is None or not alive or not state.ready():
        raise typer.Exit(1)


@app.command()
def down(folder: _FolderOption = None) -> None:
    """End the fleet and everything that it started; nothing to do is no error."""
    from live.fleet.control import down as end

    place = _folder(folder)
    typer.echo("the fleet is down" if end(place) else f"no fleet runs in {place.path}", err=True)


@app.command()
def restart(
    replica: Annotated[str, typer.Argument(help="Name of the replica, as status shows it.")],
    folder: _FolderOption = None,
) -> None:
    """Kill one replica with its engine; it is started again."""
    from live.fleet.control import restart as kill

    kill(_folder(folder), replica)


def _folder(named: Path | None) -> FleetFolder:
    from live.fleet.control import fleets_folder
    from live.fleet.state import FleetFolder

    return FleetFolder(path=(named or fleets_folder() / _DEFAULT_NAME).resolve())


def _plans(chosen: UpOptions) -> tuple[FleetPlan, SupervisorOptions]:
    """The servers to run, and how."""
    from live.fleet.plan import ServerOptions, default_pool, load_pool, plan_fleet
    from live.fleet.supervisor import StartMethod, SupervisorOptions
    from live.gateway.settings import GatewaySettings

    if chosen.start not in list(StartMethod):
        raise _refusal("--start", ", ".join(StartMethod), repr(chosen.start))
    servers = ServerOptions(
        model=chosen.model,
        served_name=chosen.served_name,
        max_model_len=chosen.context,
        kv_cache_bytes=chosen.kv_cache_mib * 2**20,
        extra=tuple(chosen.server_arg or ()),
    )
    pool, file = load_pool(chosen.pool or default_pool())
    checkpoints = _folder(chosen.folder).path.parent / "checkpoints"
    run = SupervisorOptions(
        start=StartMethod(chosen.start),
        gateway=GatewaySettings(listen_port=chosen.port),
        shadows=tuple(_shadow(text) for text in chosen.shadow or ()),
        start_s=chosen.timeout_s,
    )
    plan = plan_fleet(pool, file, servers, checkpoints)
    if chosen.drills:
        from live.drill.servers import open_for_drills

        plan = open_for_drills(plan, _folder(chosen.folder))
    return plan, run


def _shadow(text: str) -> ShadowRoute:
    """``SLICE:KERNEL=RATIO`` as a route."""
    from live.gateway.table import ShadowRoute

    place, _, share = text.partition("=")
    slice_name, _, kernel = place.partition(":")
    try:
        ratio = float(share)
    except ValueError:
        ratio = -1.0
    if not slice_name or not kernel or not 0.0 <= ratio <= 1.0:
        raise _refusal("--shadow", "SLICE:KERNEL=RATIO with a ratio of 0 to 1", repr(text))
    return ShadowRoute(slice=slice_name, kernel=kernel, ratio=ratio)


def _refusal(option: str, expected: str, actual: str) -> DocumentError:
    return refusal("selvage fleet up", expected, actual, "run it with --help", path=option)


def _show(state: FleetState) -> None:
    """Table of servers on the terminal, then the gateway."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("replica", "kernel", "phase", "up s", "restarts", "memory MiB", "url", "note"):
        table.add_column(heading, overflow="fold")
    for server in state.servers:
        table.add_row(*_row(server))
    console = Console()
    console.print(table)
    gateway = state.gateway
    serves = f"serves at {gateway.url}" if gateway.process else "does not serve"
    console.print(f"Envoy {gateway.version} {serves}, admin {gateway.admin_url}", soft_wrap=True)
    homes = ", ".join(f"{name} on {home}" for name, home in zip(state.slices, state.homes, strict=True))
    console.print(f"homes: {homes}; no header: {state.default_slice}", soft_wrap=True)


def _row(server: ServerState) -> tuple[str, ...]:
    from live.fleet.processes import group_memory_bytes

    memory = group_memory_bytes(server.process.pid) / 2**20 if server.process else 0.0
    counts = (f"{server.up_s:.1f}", str(server.restarts), f"{memory:.0f}")
    return (server.name, server.kernel, server.phase.value, *counts, server.url, server.note)


def _detached(folder: FleetFolder, timeout_s: float) -> None:
    """The same command in a process of its own session; its progress is shown until everything serves."""
    from live.errors import LiveError
    from live.fleet.state import is_up, read_state

    if is_up(read_state(folder)):
        raise LiveError(f"{folder.path}: a fleet runs there already; end it with `selvage fleet down`")
    log = folder.log("supervisor")
    log.parent.mkdir(parents=True, exist_ok=True)
    arguments = [word for word in sys.argv[1:] if word not in ("--detach", "-d")]
    with log.open("wb") as stream:
        child = subprocess.Popen(
            [sys.executable, "-m", f"{cli.__name__}.main", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )
    _follow(child, folder, log, timeout_s)


def _follow(child: subprocess.Popen[bytes], folder: FleetFolder, log: Path, timeout_s: float) -> None:
    from live.errors import LiveError
    from live.fleet.state import read_state

    deadline_at_s, shown = time.monotonic() + timeout_s, 0
    while True:
        ended = child.poll() is not None  # before its log is read, which is then complete
        text = log.read_text(errors="replace")
        typer.echo(text[shown:], err=True, nl=False)
        shown = len(text)
        if ended:
            raise LiveError(f"the fleet did not come up (exit code {child.returncode}); see {folder.path}")
        state = read_state(folder)
        if state is not None and state.supervisor.pid == child.pid and state.ready():
            typer.echo(f"up after {state.up_s:.1f} s: {state.gateway.url}")
            return
        if time.monotonic() > deadline_at_s:
            raise LiveError(f"not everything serves after {timeout_s:g} s; see `selvage fleet status`")
        time.sleep(0.05)
