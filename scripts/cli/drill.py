"""``selvage drill``: faults with a hypothesis, guards and an undo, on the simulated or a live fleet.

Exit codes: 0 passed, 1 failed, 2 bad input, 3 inconclusive, 4 invalid (not a valid experiment).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contracts.errors import DocumentError, refusal
from contracts.loading.files import json_text, plain
from scripts.cli.options import LARGEST_SEED, options
from scripts.output import ready_folder, write_whole

if TYPE_CHECKING:
    from faults.drill.outcome import DrillOutcome
    from scripts.drill.documents import ReadDrill

app = typer.Typer(
    no_args_is_help=True, help="Inject faults under load, watch, undo, and judge what happened."
)

TARGETS = ("sim", "local")
_FolderOption = Annotated[
    Path | None,
    typer.Option("--folder", help="Fleet of --target local; by default the one of `selvage fleet`."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillRunOptions:
    """Options of ``selvage drill run``."""

    drill: Annotated[str, typer.Argument(help="Name of a shipped drill, a file, or a package: URI.")]
    target: Annotated[str, typer.Option("--target", help="sim or local.")] = "sim"
    policy: Annotated[
        str, typer.Option("--policy", help="Policy configuration that heals the fleet, or none.")
    ] = "hysteresis"
    meta: Annotated[
        str,
        typer.Option(
            help="MetaContract that keeps the policy. Without: none of sim; of local its artefact's, else "
            "the shipped one."
        ),
    ] = ""
    seed: Annotated[
        int | None,
        typer.Option("--seed", min=0, max=LARGEST_SEED, help="Seed of the load; default: the document's."),
    ] = None
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for drill.json, report.html, requests.jsonl.")
    ] = None
    folder: _FolderOption = None
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False


@app.command("run")
@options(DrillRunOptions)
def run(asked: DrillRunOptions) -> None:
    """Run DRILL on one target and judge it."""
    from faults.drill.outcome import EXIT_CODES
    from scripts.drill.documents import read_drill
    from scripts.drill.inputs import input_hashes, refuse_unfit_meta
    from scripts.drill.report import content_of, lines_of, write_report

    if asked.target not in TARGETS:
        raise _refusal("--target", " or ".join(TARGETS), asked.target)
    read = read_drill(asked.drill)
    if asked.out is not None:
        ready_folder(asked.out)
    seed = read.drill.spec.seed if asked.seed is None else asked.seed
    if asked.target == "local":
        from scripts.drill.healer import on_servers

        asked = replace(asked, policy=on_servers(asked.policy, len(read.pool.spec.home)))
    refuse_unfit_meta(asked.policy, asked.meta)
    inputs = input_hashes(read, asked.policy, asked.meta)
    outcome, requests = _outcome(asked, read, seed)
    content = content_of(read, outcome, asked.target, asked.policy, seed, inputs)
    if asked.out is not None:
        write_report(asked.out, content, outcome)
        if requests:
            write_whole(asked.out / "requests.jsonl", "".join(f"{json_text(row)}\n" for row in requests))
    typer.echo(json_text(content) if asked.as_json else "\n".join(lines_of(content)))
    raise typer.Exit(EXIT_CODES[outcome.verdict])


def _outcome(asked: DrillRunOptions, read: ReadDrill, seed: int) -> tuple[DrillOutcome, list[dict[str, Any]]]:
    """The judged drill, and its requests if they were real."""
    if asked.target == "sim":
        from scripts.drill.sim import drill_simulated

        return drill_simulated(read, asked.policy, seed, _say, asked.meta), []
    from scripts.drill.local import DrilledPolicy, default_folder, drill_local

    driver = DrilledPolicy(policy=asked.policy, seed=seed, meta=asked.meta)
    done = drill_local(read, default_folder(asked.folder), driver, _say)
    return done.outcome, [plain(asdict(one)) for one in done.requests]


@app.command()
def undo(folder: _FolderOption = None) -> None:
    """Undo what a lost runner left in force on a local fleet, if anything."""
    from scripts.drill.local import default_folder, undo_local

    for line in undo_local(default_folder(folder)) or ["nothing is in force"]:
        typer.echo(line)


@app.command("list")
def list_drills(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show the drills of the library, and where each can run."""
    from scripts.drill.documents import read_drill, shipped_drills, targets_of

    rows = []
    for name in shipped_drills():
        read = read_drill(name)
        where = [target for target, reason in targets_of(read).items() if not reason]
        rows.append({"name": name, "targets": where, "description": read.drill.spec.description})
    if as_json:
        typer.echo(json_text({"drills": rows}))
        return
    for row in rows:
        typer.echo(f"{row['name']:<20} {', '.join(row['targets']):<11} {row['description']}")


@app.command()
def kinds(
    name: Annotated[str, typer.Argument(help="One kind, in full; without it all kinds, a line each.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show the kinds of faults: dose, injection, form on Kubernetes, proof and undo."""
    from scripts.drill.kinds import fault_rows, lines_of

    rows = fault_rows(name)
    if as_json:
        typer.echo(json_text({"kinds": rows}))
        return
    for line in lines_of(rows, whole=bool(name)):
        typer.echo(line)


@app.command()
def validate(
    drills: Annotated[list[str], typer.Argument(help="Names of shipped drills, files or package: URIs.")],
) -> None:
    """Check drills with their pools, and say for each target why it cannot run there."""
    from scripts.drill.documents import read_drill, targets_of

    for named in drills:
        read = read_drill(named)
        refused = targets_of(read)
        if all(refused.values()):
            reasons = "; ".join(f"{target}: {reason}" for target, reason in refused.items())
            raise refusal(
                read.file, "a target that can run it", reasons, "change the faults", path="spec.faults"
            )
        for target, reason in refused.items():
            typer.echo(f"{read.plan.name}: {target}: {reason or 'can run'}")


def _say(text: str) -> None:
    typer.echo(text, err=True)


def _refusal(option: str, expected: str, actual: str) -> DocumentError:
    return refusal("selvage drill", expected, actual, "run it with --help", path=option)
