"""``selvage bench NAME``: figures of one benchmark, as a flat object.

A benchmark is a module ``scripts/bench/NAME.py`` with ``run() -> dict[str, object]``; seed, versions
and machine are added here. One that is run on a scenario takes it as ``run(scenario=...)``; one that has a
``table(figures)`` is printed as that.
"""

from __future__ import annotations

import inspect
import pkgutil
from importlib import import_module
from typing import Annotated, Any

import typer
from rich.console import Console

from contracts.errors import DocumentError, Problem
from contracts.loading.files import json_text
from scripts import bench as benchmarks
from scripts.provenance import machine_facts

app = typer.Typer()


def names() -> list[str]:
    """Benchmarks of this build."""
    return sorted(module.name for module in pkgutil.iter_modules(benchmarks.__path__))


@app.command()
def bench(
    name: Annotated[str, typer.Argument(help="Which one; without it the names are listed.")] = "",
    scenario: Annotated[
        str, typer.Option("--scenario", help="Scenario (file or URI) of a benchmark that is run on one.")
    ] = "",
    load: Annotated[
        str, typer.Option("--load", help="Percent of what the fleet carries, of controls: 60,80,95,110.")
    ] = "",
    policies: Annotated[str, typer.Option("--policies", help="Policies of such controls.")] = "",
    days: Annotated[str, typer.Option("--days", help="Slice-days of each of them.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Run benchmark NAME and print its figures with its seed, versions and machine."""
    if not name:
        typer.echo("\n".join(names()))
        return
    if name not in names():
        raise _refused("NAME", f"one of {', '.join(names())}", repr(name), "choose a name from the list")
    module: Any = import_module(f"{benchmarks.__name__}.{name}")
    asked = {"scenario": scenario, "load": load, "policies": policies, "days": days}
    given = {option: value for option, value in asked.items() if value}
    for option in given.keys() - inspect.signature(module.run).parameters.keys():
        raise _refused(f"--{option}", f"none for {name}", given[option], "leave it out")
    with Console(stderr=True).status(f"running benchmark {name}"):
        figures = {**machine_facts(), **module.run(**given)}
    if as_json:
        typer.echo(json_text(figures))
    elif hasattr(module, "table"):
        Console().print(module.table(figures))
    else:
        width = max(len(key) for key in figures)
        for key in sorted(figures):
            typer.echo(f"{key:<{width}}  {figures[key]}")


def _refused(path: str, expected: str, actual: str, next_step: str) -> DocumentError:
    return DocumentError([Problem("selvage bench", 0, path, expected, actual, next_step)])
