"""Publicly reported incidents, replayed on a live server: ``selvage bench incidents``.

Each class of reports is reproduced on one vLLM server of the shipped model, once per seed, under users' load,
with trigger parameters that ``faults.drill.incidents`` draws. It is observed by a health check, the prefill
probe, and every kind of generation probe. A fault is *caught* when a clause of the contract
``serving-generation`` is in alarm by the detectors and thresholds that the false-switch budget gives it, or
when consecutive probes got no complete answer; else it is *missed*. Controls run without a fault.

Finished parts are kept in ``--out``, and the same command resumes from them.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.table import Table

from scripts.output import ready_folder
from scripts.progress import show_progress
from scripts.provenance import cores, cpu_model, package_version, sources_sha256

if TYPE_CHECKING:
    from scripts.studies.incidents.plan import IncidentPart
    from scripts.studies.incidents.results import IncidentResult, KeptParts

#: It shows its own progress.
TELLS_PROGRESS = True
OUT = "out/incidents"


def run(seeds: str = "0", classes: str = "", limit_s: str = "45", out: str = OUT) -> dict[str, Any]:
    """Flat figures of every class and seed, misses among them; times are wall time from the injection."""
    from faults.drill.incidents import FaultPlace
    from live.drill.one_server import BLOCK_TOKENS, CONTEXT_TOKENS
    from live.measure.corpus import SLICES
    from scripts.studies.incidents.plan import limit_of, planned
    from scripts.studies.incidents.results import KeptParts, figures_of

    place = FaultPlace(block_tokens=BLOCK_TOKENS, context_tokens=CONTEXT_TOKENS, slices=SLICES)
    watched_s = limit_of(limit_s)
    parts = planned(seeds, classes, watched_s, place)
    ready_folder(Path(out))
    machine = [cpu_model(), cores(), package_version("vllm")]
    kept = KeptParts(Path(out), sources_sha256("live"), machine)
    return figures_of(_all(parts, kept)) | {"seeds": seeds, "limit_s": watched_s}


def _all(parts: tuple[IncidentPart, ...], kept: KeptParts) -> list[IncidentResult]:
    """Results of every part in order, the ones in ``kept`` first."""
    found = {part.place: kept.load(part) for part in parts}
    todo = tuple(part for part in parts if found[part.place] is None)
    left_s = sum(part.expected_s for part in todo)
    typer.echo(f"{len(parts)} parts, {len(parts) - len(todo)} kept from before", err=True)
    typer.echo(f"this will take at most about {left_s / 60.0:.0f} minutes, and a server's start", err=True)
    if todo:
        found |= _run(todo, kept, left_s)
    return [one for part in parts if (one := found[part.place]) is not None]


def _run(todo: tuple[IncidentPart, ...], kept: KeptParts, left_s: float) -> dict[str, IncidentResult]:
    """Results of ``todo``; each part is kept as soon as it is finished."""
    from scripts.studies.incidents.watching import WatchedServer

    found: dict[str, IncidentResult] = {}
    with (
        tempfile.TemporaryDirectory(prefix="selvage-incidents-") as folder,
        show_progress("a server", left_s) as shown,
    ):

        def keep(part: IncidentPart, result: IncidentResult) -> None:
            found[part.place] = result
            kept.save(part, result)
            after = "" if result.after_s is None else f" after {result.after_s:.0f} s by {result.by}"
            told_of = f"{result.verdict}{after}; {result.tokens} tokens, {result.spent_s:.0f} s"
            typer.echo(f"{part.place}: {told_of}", err=True)
            shown.update(part.place, advance=part.expected_s)

        say, ready = (lambda text: typer.echo(text, err=True)), (lambda: shown.restart("incidents"))
        WatchedServer(Path(folder), say, ready).run(todo, keep)
    return found


def table(figures: dict[str, Any]) -> Table:
    """A row per class and seed, and the misses of every seed."""
    columns = (
        "incident",
        "seed",
        "verdict",
        "by",
        "after s",
        "probe tokens",
        "prefill alone",
        "health check",
    )
    shown = Table(*columns)
    for name in [key.removesuffix(".verdict") for key in figures if key.endswith(".verdict")]:
        incident, _, seed = name.rpartition(".")
        at = {key: figures[f"{name}.{key}"] for key in ("verdict", "by", "after_s", "tokens")}
        after = "" if at["after_s"] is None else f"{at['after_s']:.0f}"
        sees = ["caught" if figures[f"{name}.{who}"] else "missed" for who in ("prefill", "health")]
        shown.add_row(incident, seed, at["verdict"], at["by"], after, str(at["tokens"]), *sees)
    for key in [key for key in figures if key.startswith("missed.")]:
        shown.add_row("missed", key.removeprefix("missed."), str(figures[key] or "nothing"))
    return shown
