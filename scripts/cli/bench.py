"""``selvage bench NAME``: figures of one benchmark, as a flat object.

A benchmark is a module ``scripts/bench/NAME.py`` with ``run() -> dict[str, object]``; seed, versions
and machine are added here.
"""

from __future__ import annotations

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
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Run benchmark NAME and print its figures with its seed, versions and machine."""
    if not name:
        typer.echo("\n".join(names()))
        return
    if name not in names():
        problem = Problem(
            file="selvage bench",
            line=0,
            path="NAME",
            expected=f"one of {', '.join(names())}",
            actual=repr(name),
            next_step="choose a name from the list",
        )
        raise DocumentError([problem])
    module: Any = import_module(f"{benchmarks.__name__}.{name}")
    with Console(stderr=True).status(f"running benchmark {name}"):
        figures = {**machine_facts(), **module.run()}
    if as_json:
        typer.echo(json_text(figures))
        return
    width = max(len(key) for key in figures)
    for key in sorted(figures):
        typer.echo(f"{key:<{width}}  {figures[key]}")
