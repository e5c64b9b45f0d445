"""Experiment E5 on a terminal: run it with a progress bar, write the results, print its tables."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from contracts.loading.files import json_text
from scripts.e5.report.tables import number
from scripts.e5.run.experiment import Options, RunPlan, plan_run, run, write_results
from scripts.e5.run.jobs import compiled
from scripts.e5.run.subjects import observed_without_certificate
from scripts.e5.run.trial import estimated_s
from scripts.e5.suite import GROUP_LABELS
from scripts.guard import kept_in, on_interrupt
from scripts.output import TABLE_WIDTH, ready_folder
from scripts.progress import rough_time, show_progress
from scripts.setup.warm import warm
from simulator.world.at_rest import CONSEQUENCE

#: Columns of the printed table: measure, head, unit, whether its limits are shown.
COLUMNS = (
    ("quality_preservation", "quality kept", "ratio", True),
    ("mttr_s", "MTTR, s", "s", True),
    ("unrecovered", "unrecovered", "ratio", False),
    ("detection_lag_s", "lag, s", "s", False),
    ("failed_ratio_incident", "failed", "ratio", False),
    ("false_switches_per_slice_month", "false switches per slice-month", "1/slice-month", True),
)


def run_and_show(options: Options, *, as_json: bool = False, quiet: bool = False) -> None:
    """Run E5 under ``options``, write ``e5.json`` and the report, print the tables, the JSON or nothing."""
    plan = plan_run(options)
    ready_folder(options.out)
    _say_broken(plan)
    started_at_s = time.monotonic()
    with on_interrupt(lambda: kept_in(options.out / "jobs")):
        content, page = _run_with_progress(plan, options)
    write_results(options.out, content, page)
    spent = f"{len(plan.jobs)} jobs in {time.monotonic() - started_at_s:.0f} s"
    Console(stderr=True).print(f"{spent}; {options.out / 'report.html'}")
    if as_json:
        typer.echo(json_text(content))
    elif not quiet:
        print_tables(content, tuple(one.name for one in plan.configurations))


def _say_broken(plan: RunPlan) -> None:
    """Print clauses broken by home kernels without a fault, and policies that only observe, before a run."""
    told = dict.fromkeys(str(broken) for entry in plan.entries for broken in compiled(entry).at_rest)
    for text in told:
        typer.echo(f"broken at rest: {text}; {CONSEQUENCE}", err=True)
    for reason in observed_without_certificate(plan.configurations, plan.entries):
        typer.echo(f"observing without a certificate: {reason}", err=True)


def _run_with_progress(plan: RunPlan, options: Options) -> tuple[dict[str, Any], str]:
    """Run with progress on stderr, compiled code warm before processes start."""
    _say_size(plan, options)
    with show_progress("compiling", len(plan.jobs)) as progress:
        warm(lambda done, known: progress.update(f"compiling {done} of {known}"))
        _say_duration(plan, options)
        progress.restart("running")
        return run(plan, options, lambda result: progress.update(result.scenario, advance=1.0))


def _say_size(plan: RunPlan, options: Options) -> None:
    """Print the amount of work, before anything is compiled."""
    here = "1 process" if options.jobs == 1 else f"{options.jobs} processes"
    seeds = "1 seed" if len(plan.seeds) == 1 else f"{len(plan.seeds)} seeds"
    where = here if options.backend == "loky" else options.backend
    typer.echo(f"{len(plan.jobs)} jobs on {where}, {seeds} each", err=True)


def _say_duration(plan: RunPlan, options: Options) -> None:
    """Print the expected duration on this machine before the run, if it is long enough for a trial."""
    expected_s = estimated_s(plan.jobs, options.jobs)
    if expected_s > 0.0:
        told = f"this will take about {rough_time(expected_s)}, by a trial of every policy on this machine"
        typer.echo(told, err=True)


def print_tables(content: dict[str, Any], configurations: tuple[str, ...]) -> None:
    """One table per group of scenarios; 95 % limits in brackets."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=TABLE_WIDTH)
    for group, rows in content["groups"].items():
        table = Table(title=GROUP_LABELS[group], title_justify="left", box=box.SIMPLE_HEAD)
        table.add_column("policy", no_wrap=True)
        for _, head, _, _ in COLUMNS:
            table.add_column(head, justify="right")
        for configuration in configurations:
            cells = (_cell(rows[configuration][name], unit, limits) for name, _, unit, limits in COLUMNS)
            table.add_row(configuration, *cells)
        console.print(table)
    _print_harm(console, content["harm"])
    for line in content["header"]["measured_by"]:
        console.print(f"note: {line}")


def _print_harm(console: Console, harm: dict[str, Any]) -> None:
    """One line per policy: its worst scenario of each measure of harm, the difference and its limit."""
    title = f"harm to {harm['to']}, percentage points; simultaneous 95 % limits"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, caption=harm["note"] or None)
    table.add_column("policy", overflow="fold")
    for measure, limit in (("useful tokens", "at least"), ("failed or exposed", "at most")):
        table.add_column(f"{measure}, worst in", overflow="fold")
        for head in ("points", limit):
            table.add_column(head, no_wrap=True)  # a name may be wrapped, a number never
    for policy, found in harm["policies"].items():
        cells = [
            cell
            for row in found["worst"].values()
            for cell in (row["scenario"] or "–", _points(row["mean"]), _points(row["limit"]))
        ]
        table.add_row(policy, *cells)
    console.print(table)


def _points(value: float | None) -> str:
    return "–" if value is None else f"{value:+.2f}"


def _cell(leaf: dict[str, Any], unit: str, limits: bool) -> str:
    if leaf["mean"] is None:
        return "–"
    text = number(leaf["mean"], unit)
    if leaf["ci_low"] is None or not limits:
        return text
    low, high = (number(leaf[name], unit).removesuffix(" %") for name in ("ci_low", "ci_high"))
    return f"{text} [dim]({low} to {high})[/dim]"


def command_of(
    suite: str, policies: str, seeds: int | None, trace: Path | None, route_policy: str, meta: str
) -> str:
    """The command that gives the same results; --jobs and --batch change none."""
    options = {"--suite": suite, "--policies": policies, "--seeds": seeds}
    return command_from(options | {"--trace": trace, "--route-policy": route_policy, "--meta": meta})


def command_from(options: Mapping[str, object]) -> str:
    """``selvage e5`` with the given ``options``."""
    words = ["selvage", "e5"]
    for name, value in options.items():
        if value:
            words += [name, str(value)]
    return shlex.join([*words, "--out", "DIR"])


def configurations_of(text: str) -> tuple[str, ...]:
    """Configurations of a comma-separated list; a comma followed by ``key=`` belongs to the configuration
    before it.
    """
    configurations: list[str] = []
    for part in text.split(","):
        if configurations and ":" in configurations[-1] and "=" in part and ":" not in part:
            configurations[-1] += f",{part}"
        else:
            configurations.append(part)
    return tuple(configurations)
