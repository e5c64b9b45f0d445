"""``selvage bench NAME``: figures of one benchmark, as a flat object.

A benchmark is a module ``scripts/bench/NAME.py`` with ``run() -> dict[str, object]``; seed, versions
and machine are added here. A benchmark on a scenario takes it as ``run(scenario=...)``; one with a
``table(figures)`` is printed as that table, and one with ``TELLS_PROGRESS`` shows its own progress.
"""

from __future__ import annotations

import inspect
import pkgutil
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Annotated, Any

import typer
from rich.console import Console

from contracts.errors import DocumentError, refusal
from contracts.loading.files import json_text
from scripts import bench as benchmarks
from scripts.cli.options import options
from scripts.output import TABLE_WIDTH
from scripts.provenance import machine_facts

app = typer.Typer()


def names() -> list[str]:
    """Benchmarks of this build."""
    return sorted(module.name for module in pkgutil.iter_modules(benchmarks.__path__))


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions:
    """The argument and the options of ``selvage bench``; texts are for benchmarks that take them."""

    name: Annotated[
        str, typer.Argument(help="Name of the benchmark; lists the names where none is given.")
    ] = ""
    scenario: Annotated[
        str, typer.Option("--scenario", help="Scenario (file or URI) of a benchmark that is run on one.")
    ] = ""
    load: Annotated[
        str,
        typer.Option(
            "--load", help="For controls: loads in percent of the fleet's capacity, as 60,80,95,110."
        ),
    ] = ""
    policies: Annotated[str, typer.Option("--policies", help="For controls: policies, comma-separated.")] = ""
    days: Annotated[str, typer.Option("--days", help="For controls: slice-days of each load.")] = ""
    seeds: Annotated[str, typer.Option("--seeds", help="For incidents: seeds A..B, or one.")] = ""
    classes: Annotated[
        str, typer.Option("--classes", help="For incidents: classes, comma-separated; default: all.")
    ] = ""
    limit_s: Annotated[
        str, typer.Option("--limit-s", help="For incidents: time for which each is watched, s.")
    ] = ""
    out: Annotated[str, typer.Option("--out", help="For incidents: folder of finished parts.")] = ""
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False


@app.command()
@options(BenchOptions)
def bench(asked: BenchOptions) -> None:
    """Run benchmark NAME and print its figures with its seed, versions and machine."""
    name = asked.name
    if not name:
        typer.echo("\n".join(names()))
        return
    if name not in names():
        raise _refusal("NAME", f"one of {', '.join(names())}", repr(name), "choose a name from the list")
    module: Any = import_module(f"{benchmarks.__name__}.{name}")
    figures = {**machine_facts(), **_figures(module, name, _given(asked))}
    if asked.as_json:
        typer.echo(json_text(figures))
    elif hasattr(module, "table"):
        console = Console()
        (console if console.is_terminal else Console(width=TABLE_WIDTH)).print(module.table(figures))
    else:
        width = max(len(key) for key in figures)
        for key in sorted(figures):
            typer.echo(f"{key:<{width}}  {figures[key]}")


def _given(asked: BenchOptions) -> dict[str, str]:
    """The options of a benchmark that were given."""
    texts = {key: value for key, value in asdict(asked).items() if key not in ("name", "as_json")}
    return {key: value for key, value in texts.items() if value}


def _figures(module: Any, name: str, given: dict[str, str]) -> dict[str, object]:
    """The figures of ``module``; DocumentError for an option that it does not accept."""
    for option in given.keys() - inspect.signature(module.run).parameters.keys():
        raise _refusal(f"--{option.replace('_', '-')}", f"none for {name}", given[option], "leave it out")
    if getattr(module, "TELLS_PROGRESS", False):
        return dict(module.run(**given))
    with Console(stderr=True).status(f"running benchmark {name}"):
        return dict(module.run(**given))


def _refusal(path: str, expected: str, actual: str, next_step: str) -> DocumentError:
    return refusal("selvage bench", expected, actual, next_step, path=path)
