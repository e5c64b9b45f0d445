"""``selvage kld ENDPOINT --reference ...``: how far a running server is from its reference, per position.

Exits 0 without a contract or where its numeric clauses hold, 1 Failed, 2 Error (bad input), 3 Inconclusive.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scripts.cli.judging.inputs import input_refusal, load_contract
from scripts.cli.judging.tables import show_evaluation, wide_console
from scripts.cli.measuring.kld_table import KldResult, as_json, show
from scripts.cli.measuring.request import read_key
from scripts.cli.options import options
from scripts.output import write_whole
from scripts.progress import ProgressLine, show_progress

if TYPE_CHECKING:
    from live.kld.measure import ComparisonRoute
    from live.kld.reference import ReferencePlan
    from live.measure.endpoint import Endpoint
    from live.measure.prompts import Prompt
    from live.measure.reference import AnyReference

app = typer.Typer()
_TORCH = "torch"


@dataclass(frozen=True, slots=True, kw_only=True)
class KldOptions:
    """The options of ``selvage kld``."""

    endpoint: Annotated[str, typer.Argument(help="URL of the running server.")] = ""
    reference: Annotated[
        str, typer.Option(help="torch (float32, on --model), a stored .f32 file, or a server's URL.")
    ] = _TORCH
    model: Annotated[
        str, typer.Option(help="Checkpoint folder or hub name; default: the shipped reference model.")
    ] = ""
    endpoint_model: Annotated[str, typer.Option(help="Model name the server knows; default: its first.")] = ""
    prompts: Annotated[Path | None, typer.Option(help="Prompts of your own (JSON lines).")] = None
    positions: Annotated[
        int, typer.Option(min=0, max=10_000_000, help="Positions to compare; 0: all of the prompts.")
    ] = 10_000
    contract: Annotated[str, typer.Option(help="KernelContract whose numeric clauses are judged.")] = ""
    waive: Annotated[
        list[str] | None,
        typer.Option(help="CLAUSE=reason or CLAUSE/SLICE=reason: may stay undecided; repeatable."),
    ] = None
    route: Annotated[str, typer.Option(help="reduced, rows or public; default: the quickest.")] = ""
    store: Annotated[
        Path | None, typer.Option(help="Folder that keeps references; default: the server's, if it is here.")
    ] = None
    half_rows: Annotated[
        bool, typer.Option("--half-rows", help="Fetch a reference server's rows as float16.")
    ] = False
    plugin_token_file: Annotated[Path | None, typer.Option(help="File with the plug-in's token.")] = None
    reference_token_file: Annotated[Path | None, typer.Option(help="The same of the reference server.")] = (
        None
    )
    api_key_env: Annotated[str, typer.Option(help="Environment variable with the server's API key.")] = ""
    api_key_file: Annotated[Path | None, typer.Option(help="File with the server's API key.")] = None
    reference_key_env: Annotated[str, typer.Option(help="The same of the reference server.")] = ""
    reference_key_file: Annotated[Path | None, typer.Option(help="The same of the reference server.")] = None
    ca_file: Annotated[Path | None, typer.Option(help="PEM certificates that servers are checked by.")] = None
    stage: Annotated[
        Path | None,
        typer.Option(help="Measure nothing: stage vLLM's plug-in in this folder and say how to start it."),
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Also write the JSON to this file.")] = None

    @property
    def server(self) -> Endpoint:
        """The server to compare."""
        from live.measure.endpoint import Endpoint

        key = read_key("--api-key", self.api_key_env, self.api_key_file)
        return Endpoint(url=self.endpoint, model=self.endpoint_model, api_key=key, ca_file=self.ca_file)

    @property
    def token(self) -> str:
        """Token of the server's plug-in; empty if no file is named."""
        return read_key("--plugin-token", "", self.plugin_token_file)

    def plan(self, folder: Path, store: Path) -> ReferencePlan:
        """The kind of reference; DocumentError if it is unknown."""
        from live.kld.reference import ReferencePlan
        from live.measure.endpoint import Endpoint

        if self.reference.startswith(("http://", "https://")):
            key = read_key("--reference-key", self.reference_key_env, self.reference_key_file)
            token = read_key("--reference-token", "", self.reference_token_file)
            there = Endpoint(url=self.reference, api_key=key, ca_file=self.ca_file)
            return ReferencePlan(store=store, model=folder, endpoint=there, token=token, half=self.half_rows)
        if self.reference == _TORCH:
            return ReferencePlan(store=store, model=folder)
        if not Path(self.reference).is_file():
            raise input_refusal("--reference", "torch, a stored .f32 file or a URL", repr(self.reference))
        return ReferencePlan(store=store, model=folder, file=Path(self.reference))


@app.command()
@options(KldOptions)
def kld(asked: KldOptions) -> None:
    """Compare the server at ENDPOINT with a reference, position by position, and print the table.

    Exits 0 without --contract or where its numeric clauses hold, 1 Failed, 2 Error, 3 Inconclusive.
    """
    if asked.stage is not None:
        _stage(asked.stage)
        return
    if not asked.endpoint:
        raise input_refusal("ENDPOINT", "the URL of a running server", "none", "e.g. http://127.0.0.1:8000")
    wanted = _route(asked.route)
    if asked.contract:
        load_contract(asked.contract)
    with _store(asked) as store:
        result = _compared(asked, store, wanted)
    text = as_json(result)
    if asked.out is not None:
        write_whole(asked.out, text + "\n")
    if asked.as_json:
        typer.echo(text)
    else:
        console = wide_console()
        show(console, result)
        if result.evaluation is not None:
            console.print(f"Numeric clauses of {asked.contract} (the others need other evidence):")
            show_evaluation(console, result.evaluation)
    raise typer.Exit(result.evaluation.outcome.exit_code if result.evaluation else 0)


def _compared(asked: KldOptions, store: Path, wanted: ComparisonRoute | None) -> KldResult:
    """Prompts, reference, comparison and verdict, with progress on stderr."""
    from contracts.assess.gate import parse_waiver
    from live.kld.measure import Comparison
    from live.kld.prompts import kld_prompts
    from live.kld.table import tables
    from live.kld.verdict import judge
    from live.measure.checkpoint import find_checkpoint
    from live.measure.prompts import dump_prompts

    server, waivers = asked.server, [parse_waiver(text) for text in asked.waive or ()]
    folder = find_checkpoint(asked.model)
    prompts = kld_prompts(asked.positions, folder, own=asked.prompts, other_model=bool(asked.model), say=_say)
    began_at_s = time.monotonic()
    reference = _reference(asked.plan(folder, store), prompts)
    reference_s = time.monotonic() - began_at_s
    comparison = Comparison(endpoint=server, token=asked.token, prompts=prompts, reference=reference)
    choice = comparison.choose(wanted)
    total = sum(prompt.positions for prompt in prompts)
    with show_progress(f"{choice.route}: {total} positions", total) as progress:
        began_at_s = time.monotonic()
        found = comparison.run(choice.route, lambda done: progress.update(advance=done))
        spent_s = time.monotonic() - began_at_s
    return KldResult(
        endpoint=server.base,
        route=choice.route,
        route_reason=choice.reason,
        reference=asked.reference if asked.reference != _TORCH else f"torch float32 of {folder.name}",
        reference_sha256=reference.sha256,
        prompts_sha256=hashlib.sha256(dump_prompts(prompts).encode()).hexdigest(),
        spent_s=spent_s,
        reference_s=reference_s,
        tables=tables(found),
        evaluation=judge(load_contract(asked.contract), found, waivers) if asked.contract else None,
    )


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _reference(plan: ReferencePlan, prompts: list[Prompt]) -> AnyReference:
    from live.kld.reference import reference_for

    def advance(progress: ProgressLine) -> None:
        progress.update(advance=1.0)

    with show_progress(f"reference: {len(prompts)} prompts", len(prompts)) as progress:
        return reference_for(plan, prompts, lambda: advance(progress))


@contextmanager
def _store(asked: KldOptions) -> Iterator[Path]:
    """Store of references: as requested, else where a server on this machine reads them, else none."""
    from live.kld.server import local_folder

    folder = asked.store or local_folder(asked.server, asked.token)
    if folder is not None:
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="selvage-kld-") as scratch:
        yield Path(scratch)


def _route(name: str) -> ComparisonRoute | None:
    from live.kld.measure import ComparisonRoute

    if not name:
        return None
    if name not in list(ComparisonRoute):
        raise input_refusal("--route", f"one of {', '.join(ComparisonRoute)}", repr(name))
    return ComparisonRoute(name)


def _stage(folder: Path) -> None:
    """Stage the plug-in and print what a server's start needs."""
    from live.kld.stage import stage

    staged = stage(folder, before=dict(os.environ))
    print("Set these for vLLM's API server and start it as always:", file=sys.stderr)
    for name, value in staged.environment.items():
        typer.echo(f"export {name}={shlex.quote(value)}")
    token = staged.token_file
    print(f"Then: selvage kld http://HOST:PORT --plugin-token-file {token}", file=sys.stderr)
