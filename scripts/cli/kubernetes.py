"""``selvage kubernetes``: the custom resource definitions, the operator and its drills."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contracts.documents.drill import Undo
from contracts.errors import MissingPartError
from k8s.resources.definition import manifest_files, write_manifests
from scripts.cli.kubernetes_drills import drill_extension, drills
from scripts.cli.measuring.request import read_key
from scripts.cli.options import (
    GENERATION_TOKENS,
    LOG_FORMAT,
    LOG_LEVEL,
    NAMESPACE,
    PROBE_LIMIT,
    READMIT_OVER,
    SCRAPE_TIMEOUT,
    VERIFY_PROBES,
    options,
)
from scripts.cli.registries import AUTH_FILE, REGISTRY, copied, pulled_or_path, registry_access
from scripts.guard import EXIT_BUG

if TYPE_CHECKING:
    from k8s.operator.records.log_space import LogSpace
    from k8s.operator.telemetry.pool_source import Watching
    from k8s.operator.telemetry.probing import Access
    from k8s.process.serve import OperatorSettings
    from live.artefacts.fetch import RegistryAccess

#: Default undo of a drill.
_UNSAID = Undo()

app = typer.Typer(no_args_is_help=True, help="Custom resources and operator for Kubernetes.")
app.command("drill-extension")(drill_extension)
app.command("drills")(drills)


@app.callback()
def kubernetes() -> None:
    """Custom resources and operator for Kubernetes."""


@app.command()
def crds(
    out: Annotated[Path | None, typer.Option("--out", help="Folder to write to; default: stdout.")] = None,
) -> None:
    """Print the CustomResourceDefinitions, or write them with their kustomization.

    ``selvage kubernetes crds | kubectl apply --server-side -f -``
    """
    if out is not None:
        for path in write_manifests(out):
            typer.echo(str(path))
        return
    texts = [text for name, text in manifest_files().items() if name != "kustomization.yaml"]
    typer.echo("---\n".join(texts), nl=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRequest:
    """The options of ``selvage kubernetes operator``."""

    namespace: NAMESPACE = "default"
    shed_service: Annotated[
        str, typer.Option("--shed-service", help="SERVICE:PORT that answers 429, for what is shed.")
    ] = "selvage-refuse:8080"
    metrics_port: Annotated[int, typer.Option("--metrics-port", help="Port of the metrics; 0: none.")] = 9464
    health_port: Annotated[
        int, typer.Option("--health-port", help="Port of /healthz and /readyz; 0: none.")
    ] = 8081
    model: Annotated[str, typer.Option(help="Name that the servers know; default: their first.")] = ""
    api_key_env: Annotated[str, typer.Option(help="Environment variable that holds the servers' key.")] = ""
    api_key_file: Annotated[
        Path | None,
        typer.Option(help="File that holds the servers' key, a mounted Secret; no key if it is absent."),
    ] = None
    ca_file: Annotated[Path | None, typer.Option(help="Certificates of a private authority, PEM.")] = None
    registry: REGISTRY = None
    registry_auth_file: AUTH_FILE = None
    prompts: Annotated[
        str, typer.Option(help="Golden prompts, a file or an oci:// URI; default: the shipped ones.")
    ] = ""
    prompts_sha256: Annotated[
        str,
        typer.Option("--prompts-sha256", help="Their sha256: with others nothing starts."),
    ] = ""
    references_from: Annotated[
        str, typer.Option(help="oci:// URI of answers of the reference, copied to --references at the start.")
    ] = ""
    references: Annotated[
        Path, typer.Option(help="Folder on a volume that keeps the reference's answers.")
    ] = Path("/var/lib/selvage/references")
    reference: Annotated[
        str, typer.Option(help="URL of the reference server; default: a pod of the pool.")
    ] = ""
    probe_tokens: Annotated[
        float, typer.Option(min=0.0, help="Probe budget, prompt tokens per second and replica; 0: no probes.")
    ] = 64.0
    generation_tokens: GENERATION_TOKENS = 32.0
    probe_limit: PROBE_LIMIT = 2.0
    scrape_timeout: SCRAPE_TIMEOUT = 1.0
    verify_probes: VERIFY_PROBES = _UNSAID.verify_probes
    readmit_over: READMIT_OVER = _UNSAID.readmit_over_s
    flush_first: Annotated[
        bool,
        typer.Option(
            help="Keep it out until its prefix cache is flushed (vLLM's development mode) or it is restarted."
        ),
    ] = False
    gateway_metrics: Annotated[
        list[str] | None, typer.Option(help="URL of a gateway proxy's Prometheus metrics; once for each.")
    ] = None
    gateway_clusters: Annotated[
        str, typer.Option(help="Regular expression of the gateway's cluster names; default: Envoy Gateway's.")
    ] = ""
    prometheus_origin: Annotated[
        list[str] | None,
        typer.Option(help="Origin of a Prometheus that pools may name, https://HOST:PORT; once for each."),
    ] = None
    prometheus_token_file: Annotated[
        Path | None,
        typer.Option(
            help="File with the token for that Prometheus, read at every query; no token if it is absent."
        ),
    ] = None
    prometheus_ca_file: Annotated[
        Path | None, typer.Option(help="Certificates of its authority, PEM; none if the file is absent.")
    ] = None
    decision_log: Annotated[
        Path | None, typer.Option(help="Folder on a volume for decision logs; default: none.")
    ] = None
    decision_log_mib: Annotated[
        int,
        typer.Option(min=8, help="Most space of all decision logs together, MiB; the oldest are deleted."),
    ] = 768
    webhook_origin: Annotated[
        list[str] | None,
        typer.Option(help="Origin that webhooks of promotions may call, https://HOST:PORT; once for each."),
    ] = None
    log_format: LOG_FORMAT = "json"
    log_level: LOG_LEVEL = "info"
    otel_events: Annotated[
        bool, typer.Option("--otel-events", help="Send changed verdicts by OTLP; OTEL_* variables say where.")
    ] = False
    advise: Annotated[
        bool, typer.Option(help="Label pods with their contract's health, so that others act on it.")
    ] = False


@app.command()
@options(OperatorRequest)
def operator(asked: OperatorRequest) -> None:
    """Run the operator of one namespace until a signal ends it; routes stay as they are then.

    Exit code 70 where its loop ended of an unforeseen error: routes stay, and the pod is to be restarted.
    """
    try:
        from k8s.process.logs import set_up_logs
        from k8s.process.serve import serve
    except ModuleNotFoundError as error:
        raise MissingPartError(f"{error.name} is not installed; pip install 'selvage-fleet[k8s]'") from None
    set_up_logs(asked.log_format, asked.log_level)
    if not serve(_settings(asked)):
        raise typer.Exit(EXIT_BUG)


def _settings(asked: OperatorRequest) -> OperatorSettings:
    from k8s.operator.telemetry.probing import Access
    from k8s.process.serve import OperatorSettings
    from k8s.routes.rules import Backend

    name, _, port = asked.shed_service.partition(":")
    if not name or not port.isdecimal():
        expected = f"expected SERVICE:PORT, got {asked.shed_service!r}"
        raise typer.BadParameter(expected, param_hint="--shed-service")
    file = asked.api_key_file if asked.api_key_file is not None and asked.api_key_file.exists() else None
    key = read_key("--api-key", asked.api_key_env, file)
    access = Access(api_key=key, ca_file=asked.ca_file, model=asked.model, key_file=asked.api_key_file)
    registries = registry_access(asked.registry or (), asked.registry_auth_file, asked.ca_file)
    if asked.references_from:
        copied(asked.references_from, registries, asked.references, "--references-from")
    return OperatorSettings(
        namespace=asked.namespace,
        identity=os.environ.get("POD_NAME", f"{socket.gethostname()}-{os.getpid()}"),
        shed=Backend(name=name, port=int(port)),
        metrics_port=asked.metrics_port or None,
        advises=asked.advise,
        health_port=asked.health_port or None,
        access=access,
        watching=_watching(asked, access, registries),
        journal=_journal(asked),
        webhook_origins=_origins(asked.webhook_origin or (), "--webhook-origin"),
        otel_events=asked.otel_events,
        registries=registries,
    )


def _journal(asked: OperatorRequest) -> LogSpace | None:
    from k8s.operator.records.log_space import LogSpace

    folder = asked.decision_log
    return None if folder is None else LogSpace(folder, asked.decision_log_mib * 2**20)


def _origins(given: Sequence[str], option: str) -> tuple[str, ...]:
    from live.origins import allowed_origin

    try:
        return tuple(allowed_origin(one) for one in given)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def _watching(asked: OperatorRequest, access: Access, registries: RegistryAccess) -> Watching:
    from k8s.operator.telemetry.pool_source import ENVOY_GATEWAY, Watching
    from k8s.operator.telemetry.probing import Probing
    from k8s.operator.telemetry.prometheus import PrometheusAccess
    from live.run.options import ProbeOptions, ReturnOptions

    probing = None
    if asked.probe_tokens:
        given = asked.prompts or str(ProbeOptions().prompts)
        options = ProbeOptions(
            prompts=pulled_or_path(given, registries, "--prompts", asked.prompts_sha256),
            tokens_per_s=asked.probe_tokens,
            generation_tokens_per_s=asked.generation_tokens,
            limit_s=asked.probe_limit,
            reference_url=asked.reference,
        )
        probing = Probing(
            options=options,
            references=asked.references,
            access=access,
            returns=ReturnOptions(verify_probes=asked.verify_probes, readmit_over_s=asked.readmit_over),
            flush_first=asked.flush_first,
        )
    gateways, clusters = tuple(asked.gateway_metrics or ()), asked.gateway_clusters or ENVOY_GATEWAY
    prometheus = PrometheusAccess(
        origins=_origins(asked.prometheus_origin or (), "--prometheus-origin"),
        token_file=asked.prometheus_token_file,
        ca_file=asked.prometheus_ca_file,
    )
    return Watching(
        probing=probing,
        gateways=gateways,
        clusters=clusters,
        prometheus=prometheus,
        scrape_timeout_s=asked.scrape_timeout,
    )
