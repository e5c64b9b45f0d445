"""``selvage e5``: compare policies under injected faults."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from contracts.errors import DocumentError, Problem
from contracts.loading.uris import resolve_uri
from scripts.cli.options import LARGEST_SEED, MOST_SEEDS, options
from scripts.e5.experiment import Options
from scripts.e5.terminal import command_of, configurations_of, run_and_show
from scripts.provenance import cores
from scripts.workers import BACKEND_HELP, EVERY_CORE, refuse_unknown


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command()(options(E5Options)(e5))


@dataclass(frozen=True, slots=True, kw_only=True)
class E5Options:
    """The options of ``selvage e5``."""

    out: Annotated[Path, typer.Option("--out", help="Folder for e5.json, report.html and parts/.")]
    suite: Annotated[
        str, typer.Option(help="Suite document (file or package: URI); else the shipped one.")
    ] = ""
    policies: Annotated[str, typer.Option(help="Comma-separated configurations; the suite's without it.")] = (
        ""
    )
    seeds: Annotated[int | None, typer.Option(help="Paired seeds; the suite's without it.")] = None
    jobs: Annotated[int, typer.Option(help="Processes; 0 takes every core.")] = 0
    backend: Annotated[str, typer.Option(help=BACKEND_HELP)] = "loky"
    batch: Annotated[int | None, typer.Option(help="Fleets in lock-step; all seeds without it.")] = None
    trace: Annotated[Path | None, typer.Option(help="Azure LLM trace (CSV) as the arrivals.")] = None
    route_policy: Annotated[
        str,
        typer.Option(
            help="RoutePolicy document: its policy, mode, shield and meta-contract as one more configuration."
        ),
    ] = ""
    as_json: Annotated[bool, typer.Option("--json", help="Print e5.json instead of the table.")] = False


def e5(asked: E5Options) -> None:
    """Run the suite under every configuration with paired seeds; write the results and a report.

    No result depends on --jobs or --batch.
    """
    _at_least("--seeds", asked.seeds, 1, MOST_SEEDS)
    _at_least("--jobs", asked.jobs, 0)
    refuse_unknown(asked.backend, "selvage e5")
    _at_least("--batch", asked.batch, 1)
    run_and_show(_run_options(asked), as_json=asked.as_json)


def _run_options(asked: E5Options) -> Options:
    return Options(
        out=asked.out,
        suite=resolve_uri(asked.suite, "selvage e5") if asked.suite else None,
        policies=configurations_of(asked.policies) if asked.policies else None,
        seeds=asked.seeds,
        jobs=asked.jobs or (cores() if asked.backend == "loky" else EVERY_CORE),
        backend=asked.backend,
        batch=asked.batch,
        trace=asked.trace,
        route_policy=asked.route_policy,
        command=command_of(asked.suite, asked.policies, asked.seeds, asked.trace, asked.route_policy),
    )


def _at_least(name: str, value: int | None, least: int, most: int = LARGEST_SEED) -> None:
    if value is not None and not least <= value <= most:
        expected = f"a whole number of at least {least}" + (f", at most {most}" if value > most else "")
        raise _refused(name, expected, str(value), f"e.g. {name} 2")


def _refused(path: str, expected: str, actual: str, next_step: str) -> DocumentError:
    return DocumentError([Problem("selvage e5", 0, path, expected, actual, next_step)])
