"""``selvage contract validate|schema|register``: check documents, print schemas, keep the register.

Exit codes: 0 done, 1 a promotion was refused, 2 bad input. Results go to stdout, problems to stderr.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from contracts.assess.evidence import Build, read_evidence
from contracts.assess.register import RegisterEntry, Submission, append_entry, read_register
from contracts.documents import KernelContract, KernelProfile
from contracts.errors import refusal
from contracts.loading.files import json_text
from contracts.loading.loader import document_sha256, load_as
from contracts.loading.schema import json_schema, kind_named, structural_schema
from contracts.loading.uris import resolve_uri
from contracts.regular_files import hash_regular
from scripts.cli.judging.checks import Checked, check, every_kind
from scripts.cli.options import options
from scripts.guard import EXIT_BAD_INPUT

SHA256 = re.compile(r"[0-9a-f]{64}")

app = typer.Typer(no_args_is_help=True, help="Validate, evaluate, propose, bound and register contracts.")
register_app = typer.Typer(
    no_args_is_help=True, help="Record and show which build was promoted on which verdict."
)
app.add_typer(register_app, name="register")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
RegisterFile = Annotated[Path, typer.Option("--file", "-f", help="The register.")]
DEFAULT_REGISTER = Path("selvage-register.jsonl")


@app.command()
def validate(
    files: Annotated[list[str], typer.Argument(help="Documents of any kind; package:... for shipped ones.")],
    references: Annotated[
        bool, typer.Option(help="Also follow URIs: files, hashes, slices, measured conditions.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Check documents: syntax, keys, types, ranges, the rules between fields and what they refer to."""
    checked = [check(file, references=references) for file in files]
    if as_json:
        typer.echo(json_text([_report(one) for one in checked], indent=2))
    for one in checked:
        _say(one, quiet=as_json)
    if any(one.document is None for one in checked):
        raise typer.Exit(EXIT_BAD_INPUT)


def _report(one: Checked) -> dict[str, object]:
    found = one.document
    return {
        "file": one.file,
        "valid": found is not None,
        "kind": found.kind if found else None,
        "name": found.metadata.name if found else None,
        "sha256": document_sha256(found) if found else None,
        "broken_at_rest": list(one.broken_at_rest),
        "problems": [asdict(problem) for problem in one.problems],
        "cautions": [asdict(problem) for problem in one.cautions],
        "notes": [asdict(note) for note in one.notes],
    }


def _say(one: Checked, *, quiet: bool) -> None:
    for told in one.broken_at_rest:
        typer.echo(f"broken at rest: {told}", err=True)
    for problem in one.problems:
        typer.echo(f"error: {problem}", err=True)
    for problem in one.cautions:
        typer.echo(f"caution: {problem}", err=True)
    for note in one.notes:
        typer.echo(f"note: {note}", err=True)
    if one.document is not None and not quiet:
        name = f"{one.document.kind} {one.document.metadata.name}"
        typer.echo(f"{one.file}: {name} is valid, sha256 {document_sha256(one.document)}")


@app.command()
def schema(
    kind: Annotated[str, typer.Argument(help="Kind of document; lists the kinds where none is given.")] = "",
    structural: Annotated[
        bool, typer.Option("--structural", help="The openAPIV3Schema of a CustomResourceDefinition.")
    ] = False,
) -> None:
    """Print the JSON Schema of KIND."""
    if not kind:
        typer.echo("\n".join(one.__name__ for one in every_kind()))
        return
    model = kind_named(kind, every_kind())
    found = structural_schema(model) if structural else json_schema(model)
    typer.echo(json_text(found, indent=2))


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterAddOptions:
    """The options of ``selvage contract register add``."""

    checkpoint: Annotated[str, typer.Option(help="Weights: a file, a folder or a sha256.")]
    kernel: Annotated[str, typer.Option(help="KernelProfile of the build.")]
    contract: Annotated[str, typer.Option(help="KernelContract that the build was judged by.")]
    evidence: Annotated[Path, typer.Option(help="Evidence of the verdict: output of evaluate --json.")]
    verdict: Annotated[
        str, typer.Option(help="pass, fail or inconclusive, where the evidence is no output of evaluate.")
    ] = ""
    promote: Annotated[bool, typer.Option("--promote", help="Put the build into service.")] = False
    override_reason: Annotated[str, typer.Option(help="Reason to promote in spite of the verdict.")] = ""
    override_author: Annotated[str, typer.Option(help="Person who is responsible for the override.")] = ""
    file: RegisterFile = DEFAULT_REGISTER
    as_json: AsJson = False


@register_app.command("add")
@options(RegisterAddOptions)
def register_add(asked: RegisterAddOptions) -> None:
    """Enter a (checkpoint, kernel, contract) triple with its verdict; refuse to promote without a pass."""
    place = resolve_uri(asked.kernel, "selvage")
    profile = load_as(KernelProfile, place)
    judged_by = load_as(KernelContract, resolve_uri(asked.contract, "selvage"))
    build = Build(profile=profile, profile_file=place, contract=judged_by)
    evidence = read_evidence(asked.evidence, build, asked.verdict)
    submission = Submission(
        checkpoint_sha256=content_sha256(asked.checkpoint),
        kernel=profile.spec.kernel,
        kernel_sha256=document_sha256(profile),
        contract=judged_by.metadata.name,
        contract_sha256=document_sha256(judged_by),
        verdict=evidence.verdict,
        verdict_source=evidence.source,
        evidence_sha256=evidence.sha256,
        recorded_at=datetime.now(UTC).isoformat(timespec="seconds"),
        promote=asked.promote,
        override_reason=asked.override_reason,
        override_author=asked.override_author,
    )
    _show([append_entry(asked.file, submission)], as_json=asked.as_json)


def content_sha256(source: str) -> str:
    """sha256 of a file, of a folder (names and contents in order), or ``source`` if it is a hash already."""
    path = Path(source)
    try:
        if path.is_dir():
            parts = [p for p in sorted(path.rglob("*")) if p.is_file()]
            listing = [f"{p.relative_to(path).as_posix()} {hash_regular(p)}" for p in parts]
            return hashlib.sha256("\n".join(listing).encode()).hexdigest()
        if path.exists():
            return hash_regular(path)
    except (OSError, ValueError) as error:
        raise refusal(source, "a readable file", str(error), "check it") from None
    if SHA256.fullmatch(source) is None:
        hint = "check the path, or give the 64 hex digits"
        raise refusal(source, "a file, a folder or a sha256", "none of them", hint)
    return source


@register_app.command("list")
def register_list(file: RegisterFile = DEFAULT_REGISTER, as_json: AsJson = False) -> None:
    """All entries, oldest first, after checking the chain."""
    _show(list(read_register(file)), as_json=as_json, several=True)


@register_app.command("show")
def register_show(
    sequence: Annotated[int, typer.Argument(help="Number of the entry, from 1.")],
    file: RegisterFile = DEFAULT_REGISTER,
    as_json: AsJson = False,
) -> None:
    """One entry in full."""
    entries = read_register(file)
    if not 1 <= sequence <= len(entries):
        expected = f"an entry from 1 to {len(entries)}" if entries else "an entry; the register is empty"
        raise refusal(file, expected, str(sequence), "see register list")
    entry = entries[sequence - 1]
    if as_json:
        _show([entry], as_json=True)
        return
    for key, value in asdict(entry).items():
        typer.echo(f"{key:<18} {value}")


@register_app.command("verify")
def register_verify(
    file: RegisterFile = DEFAULT_REGISTER,
    head: Annotated[str, typer.Option(help="Hash of the last known entry.")] = "",
    as_json: AsJson = False,
) -> None:
    """Check every hash of the chain; with --head also that nothing was cut off its end."""
    if not file.exists():
        raise refusal(file, "a register", "no file", "name the register")
    entries = read_register(file)
    known = [entry.entry_sha256 for entry in entries]
    if head and head not in known:
        hint = "entries were removed or the register was replaced; restore it from a copy"
        raise refusal(file, f"the entry {head}", "no such entry", hint)
    found = {"entries": len(entries), "head": known[-1] if known else None, "valid": True}
    if as_json:
        typer.echo(json_text(found))
    else:
        typer.echo(f"{file}: {len(entries)} entries, chain intact, head {found['head'] or 'none'}")


def _show(entries: list[RegisterEntry], *, as_json: bool, several: bool = False) -> None:
    if as_json:
        found = [asdict(entry) for entry in entries]
        typer.echo(json_text(found if several else found[0], indent=2))
        return
    for entry in entries:
        triple = (
            f"{entry.checkpoint_sha256[:12]} {entry.kernel} {entry.contract}@{entry.contract_sha256[:12]}"
        )
        reason = f" (override: {entry.override_reason})" if entry.override_reason else ""
        typer.echo(
            f"{entry.sequence:>4} {entry.recorded_at} {triple} {entry.verdict} {entry.decision}{reason}"
        )
