"""``selvage kubernetes drills`` and ``drill-extension``: drills on a cluster."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path
from tempfile import gettempdir
from typing import Annotated

import typer

from contracts.errors import MissingPartError
from k8s.resources.drill_extension import DRILL_PORT
from scripts.cli.measuring.request import read_key
from scripts.cli.options import LOG_FORMAT, LOG_LEVEL, NAMESPACE, options
from scripts.cli.registries import AUTH_FILE, REGISTRY, registry_access


def drill_extension(
    out: Annotated[Path | None, typer.Option("--out", help="Folder to write to; default: stdout.")] = None,
) -> None:
    """Print what lets unmodified vLLM pods take faults (a ConfigMap and a patch), or write it."""
    from k8s.resources.drill_extension import extension_texts, write_extension

    if out is None:
        typer.echo("---\n".join(extension_texts().values()), nl=False)
        return
    for path in write_extension(out):
        typer.echo(str(path))


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillsRequest:
    """The options of ``selvage kubernetes drills``."""

    gateway: Annotated[str, typer.Option(help="URL where the load of drills enters the cluster.")]
    namespace: NAMESPACE = "default"
    allow_namespace: Annotated[
        list[str] | None, typer.Option(help="Namespace where drills are allowed; default: none.")
    ] = None
    drill_port: Annotated[
        int, typer.Option(min=1, max=65535, help="Port of the servers' fault injection.")
    ] = DRILL_PORT
    model: Annotated[str, typer.Option(help="Name that the servers know; default: their first.")] = ""
    api_key_env: Annotated[str, typer.Option(help="Environment variable that holds the servers' key.")] = ""
    api_key_file: Annotated[
        Path | None,
        typer.Option(help="File that holds the servers' key, a mounted Secret; no key if it is absent."),
    ] = None
    token_file: Annotated[Path, typer.Option(help="The servers' drill token, a mounted Secret.")] = Path(
        "/etc/selvage-drill/token"
    )
    records: Annotated[
        Path,
        typer.Option(help="Folder for records of single calls; the ConfigMap of a drill is authoritative."),
    ] = Path(gettempdir(), "selvage-drills")
    health_port: Annotated[
        int, typer.Option("--health-port", help="Port of /healthz and /readyz; 0: none.")
    ] = 8081
    registry: REGISTRY = None
    registry_auth_file: AUTH_FILE = None
    ca_file: Annotated[Path | None, typer.Option(help="Certificates of registries' authority, PEM.")] = None
    log_format: LOG_FORMAT = "json"
    log_level: LOG_LEVEL = "info"
    shed_service: Annotated[
        str, typer.Option("--shed-service", help="As the operator's: SERVICE:PORT that answers 429.")
    ] = "selvage-refuse:8080"


@options(DrillsRequest)
def drills(asked: DrillsRequest) -> None:
    """Run the FaultDrills of one namespace until a signal ends it; faults in force are then undone."""
    try:
        from k8s.operator.drills.fleet import Entrance
        from k8s.operator.drills.pods import Steering
        from k8s.process.drills import DrillSettings, serve_drills
        from k8s.process.logs import set_up_logs
        from k8s.routes.rules import Backend
    except ModuleNotFoundError as error:
        raise MissingPartError(f"{error.name} is not installed; pip install 'selvage-fleet[k8s]'") from None
    name, _, port = asked.shed_service.partition(":")
    if not name or not port.isdecimal():
        expected = f"expected SERVICE:PORT, got {asked.shed_service!r}"
        raise typer.BadParameter(expected, param_hint="--shed-service")
    file = asked.api_key_file if asked.api_key_file is not None and asked.api_key_file.exists() else None
    key = read_key("--api-key", asked.api_key_env, file)
    set_up_logs(asked.log_format, asked.log_level)
    serve_drills(
        DrillSettings(
            namespace=asked.namespace,
            allowed=frozenset(asked.allow_namespace or ()),
            identity=os.environ.get("POD_NAME", f"{socket.gethostname()}-{os.getpid()}"),
            entrance=Entrance(url=asked.gateway.rstrip("/"), model=asked.model, api_key=key),
            steering=Steering(token_file=asked.token_file, records=asked.records, port=asked.drill_port),
            shed=Backend(name=name, port=int(port)),
            registries=registry_access(asked.registry or (), asked.registry_auth_file, asked.ca_file),
            health_port=asked.health_port or None,
        )
    )
