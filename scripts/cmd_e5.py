"""``selvage e5``: compare policies under injected faults."""

from __future__ import annotations

import json
import shlex
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from contracts.errors import DocumentError, Problem
from contracts.uris import resolve_uri
from scripts.e5 import Options, Plan, plan_run, run, write_results
from scripts.e5_suite import GROUP_LABELS
from scripts.environment import cores
from scripts.output import ready_folder
from scripts.report_tables import number
from scripts.warm import warm

#: Columns of the printed table: measure, head, unit, whether its limits are shown.
COLUMNS = (
    ("quality_preservation", "quality kept", "ratio", True),
    ("mttr_s", "MTTR, s", "s", True),
    ("unrecovered", "unrecovered", "ratio", False),
    ("detection_lag_s", "lag, s", "s", False),
    ("failed_ratio_incident", "failed", "ratio", False),
    ("false_switches_per_slice_month", "false switches per slice-month", "1/slice-month", True),
)
#: Least width of the printed table where no terminal says its own.
WIDTH = 118


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command()(e5)


def e5(
    out: Annotated[Path, typer.Option("--out", help="Folder for e5.json, report.html and parts/.")],
    suite: Annotated[
        str, typer.Option(help="Suite document (file or package: URI); else the shipped one.")
    ] = "",
    policies: Annotated[str, typer.Option(help="Comma-separated arms; the suite's without it.")] = "",
    seeds: Annotated[int | None, typer.Option(help="Paired seeds; the suite's without it.")] = None,
    jobs: Annotated[int, typer.Option(help="Processes; 0 takes every core.")] = 0,
    batch: Annotated[int | None, typer.Option(help="Fleets in lock-step; all seeds without it.")] = None,
    trace: Annotated[Path | None, typer.Option(help="Azure LLM trace (CSV) as the arrivals.")] = None,
    route_policy: Annotated[
        str,
        typer.Option(
            help="RoutePolicy document: its policy, mode, shield and meta-contract as one more arm."
        ),
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print e5.json instead of the table.")] = False,
) -> None:
    """Run the suite under every arm with paired seeds; write the results and a report.

    No result depends on --jobs or --batch.
    """
    for name, value, least in (("--seeds", seeds, 1), ("--jobs", jobs, 0), ("--batch", batch, 1)):
        _at_least(name, value, least)
    options = Options(
        out=out,
        suite=resolve_uri(suite, "selvage e5") if suite else None,
        policies=_arms(policies) if policies else None,
        seeds=seeds,
        jobs=jobs or cores(),
        batch=batch,
        trace=trace,
        route_policy=route_policy,
        command=_command(suite, policies, seeds, trace, route_policy),
    )
    plan = plan_run(options)
    ready_folder(out)
    started_s = time.monotonic()
    content, page = _run_with_progress(plan, options)
    write_results(out, content, page)
    stderr = Console(stderr=True)
    stderr.print(f"{len(plan.jobs)} jobs in {time.monotonic() - started_s:.0f} s; {out / 'report.html'}")
    if as_json:
        typer.echo(json.dumps(content, sort_keys=True))
    else:
        _print_tables(content, plan)


def _run_with_progress(plan: Plan, options: Options) -> tuple[dict[str, Any], str]:
    """Run with a progress bar on stderr, compiled code warm before processes start."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("compiling", total=len(plan.jobs))
        warm()
        bar.update(task, description="running")
        return run(plan, options, lambda result: bar.update(task, advance=1, description=result.scenario))


def _print_tables(content: dict[str, Any], plan: Plan) -> None:
    """One table per group of scenarios; 95 % limits in brackets."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    for group, rows in content["groups"].items():
        table = Table(title=GROUP_LABELS[group], title_justify="left", box=box.SIMPLE_HEAD)
        table.add_column("policy", no_wrap=True)
        for _, head, _, _ in COLUMNS:
            table.add_column(head, justify="right")
        for arm in plan.arms:
            cells = (_cell(rows[arm.name][name], unit, limits) for name, _, unit, limits in COLUMNS)
            table.add_row(arm.name, *cells)
        console.print(table)


def _cell(leaf: dict[str, Any], unit: str, limits: bool) -> str:
    if leaf["mean"] is None:
        return "–"
    text = number(leaf["mean"], unit)
    if leaf["ci_low"] is None or not limits:
        return text
    low, high = (number(leaf[name], unit).removesuffix(" %") for name in ("ci_low", "ci_high"))
    return f"{text} [dim]({low} to {high})[/dim]"


def _command(suite: str, policies: str, seeds: int | None, trace: Path | None, route_policy: str) -> str:
    """The command that gives the same results; --jobs and --batch change none."""
    words, options = ["selvage", "e5"], {"--suite": suite, "--policies": policies, "--seeds": seeds}
    for name, value in (options | {"--trace": trace, "--route-policy": route_policy}).items():
        if value:
            words += [name, str(value)]
    return shlex.join([*words, "--out", "DIR"])


def _arms(text: str) -> tuple[str, ...]:
    """Arms of a comma-separated list; a comma followed by ``key=`` belongs to the arm before it."""
    arms: list[str] = []
    for part in text.split(","):
        if arms and ":" in arms[-1] and "=" in part and ":" not in part:
            arms[-1] += f",{part}"
        else:
            arms.append(part)
    return tuple(arms)


def _at_least(name: str, value: int | None, least: int) -> None:
    if value is not None and value < least:
        raise _refused(name, f"a whole number of at least {least}", str(value), f"e.g. {name} 2")


def _refused(path: str, expected: str, actual: str, next_step: str) -> DocumentError:
    return DocumentError([Problem("selvage e5", 0, path, expected, actual, next_step)])
