"""``selvage policy certify|show``: judge a policy by the meta-contract, and print a certificate."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from contracts.documents import MetaContract, PolicyArtifact
from contracts.documents.artifact import Certificate, CertifiedClause
from contracts.errors import DocumentError, refusal
from contracts.loading.files import sha256_of
from contracts.loading.loader import read_text
from contracts.loading.shipped import SHIPPED_META
from contracts.loading.uris import resolve_uri
from contracts.regular_files import ONNX_BYTES, read_regular
from policies.artefacts import builtin_sha256, load_artefact, manifest_subject, network_subject
from policies.certify.admission import (
    TRAINED,
    Subject,
    load_certificate,
    refuse_unless_certified,
    refuse_unless_passing,
)
from policies.certify.artifact_files import named_meta
from policies.certify.certificate import CertificationEvidence
from policies.certify.evidence import evidence_file, evidence_text, refuse_other_episodes
from policies.spec import parse_spec
from policies.supervised import load_meta
from scripts.cli.options import MOST_SEEDS, options
from scripts.guard import EXIT_FAILED, kept_in, on_interrupt
from scripts.output import TABLE_WIDTH, ready_file, write_whole
from scripts.partial_results import KeptResults, parts_folder
from scripts.progress import show_progress
from scripts.setup.warm import warm_with_progress
from scripts.train.certificates import refuse_other_worlds
from scripts.train.certify import (
    CertificationPlan,
    CertificationRequest,
    certificate_of,
    plan_certification,
    run_suites,
)
from scripts.workers import BACKEND_HELP, refuse_unknown

_SHOW = "selvage policy show"


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command("certify")(options(CertifyOptions)(certify_policy))
    app.command("show")(show)


@dataclass(frozen=True, slots=True, kw_only=True)
class CertifyOptions:
    """The argument and the options of ``selvage policy certify``."""

    policy: Annotated[str, typer.Argument(help="name or name:key=value,..., as for `selvage simulate`.")]
    out: Annotated[Path | None, typer.Option("--out", help="File for the certificate (JSON).")] = None
    meta: Annotated[str, typer.Option(help="MetaContract; package:... for the shipped one.")] = SHIPPED_META
    seeds: Annotated[
        int | None, typer.Option(min=1, max=MOST_SEEDS, help="Seeds of the incidents; default: as asked.")
    ] = None
    quiet_days: Annotated[
        float | None, typer.Option(min=0.001, max=1e6, help="Slice-days without a fault; default: as asked.")
    ] = None
    jobs: Annotated[int, typer.Option(min=1, help="Jobs beside each other.")] = 1
    backend: Annotated[str, typer.Option(help=BACKEND_HELP)] = "loky"
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False


def certify_policy(asked: CertifyOptions) -> None:
    """Run POLICY on the meta-contract's suites; exit code 1 if a clause fails.

    Fewer seeds or days than the meta-contract asks for make a certificate that no loader accepts.
    With --out a stopped run goes on from what it has finished. No clause depends on --jobs or --backend but
    the latency of decisions, which is measured.
    """
    refuse_unknown(asked.backend, "selvage policy certify")
    subject, rules = subject_of(asked.policy)
    request = CertificationRequest(
        spec=asked.policy,
        subject=asked.policy,
        subject_sha256=subject,
        rules_sha256=rules,
        command=_command(asked.out),
        meta_uri=asked.meta,
        seeds=asked.seeds,
        quiet_days=asked.quiet_days,
        jobs=asked.jobs,
        backend=asked.backend,
    )
    plan = plan_certification(request)
    if asked.out is not None:
        ready_file(asked.out)
    kept = KeptResults(None if asked.out is None else parts_folder(asked.out))
    with on_interrupt(lambda: _kept(asked.out)):
        evidence = run_certification(plan, kept)
    found = certificate_of(plan, evidence)
    if asked.out is not None:
        write_whole(asked.out, certificate_json(found))
        write_whole(evidence_file(asked.out), evidence_text(evidence))
        kept.forget()
    if asked.as_json:
        typer.echo(certificate_json(found), nl=False)
    else:
        print_certificate(found)
    if not found.passed:
        raise typer.Exit(EXIT_FAILED)


def _kept(out: Path | None) -> str:
    return "nothing was kept; add --out FILE" if out is None else kept_in(parts_folder(out))


def _command(out: Path | None) -> str:
    """The command as typed, without the result's place, which does not affect it."""
    words = ["FILE" if out is not None and word == str(out) else word for word in sys.argv[1:]]
    return " ".join(["selvage", *words]) if words else "selvage policy certify"


def subject_of(policy: str) -> tuple[str, str | None]:
    """``(subject, rules)``: hash of the subject of ``policy``'s certificate, an ONNX file with encoding and
    rules or every setting, and of the rules if there are any.

    Raises DocumentError for a trained policy with its own settings, which no manifest could name.
    """
    try:
        name, values = parse_spec(policy)
        if name not in TRAINED:
            return builtin_sha256(policy), None
    except ValueError as error:
        raise _refusal("POLICY", "name or name:key=value,...", str(error)) from None
    if set(values) != {"onnx"}:
        raise _refusal("POLICY", f"{name}:onnx=FILE and nothing else", policy)
    content = read_regular(str(values["onnx"]), ONNX_BYTES, "e.g. selvage policy certify sequential")
    found = network_subject(hashlib.sha256(content).hexdigest(), name)
    return found.sha256, found.rules_sha256


def _refusal(path: str, expected: str, actual: str) -> DocumentError:
    hint = "e.g. selvage policy certify sequential"
    return refusal("selvage policy certify", expected, actual, hint, path=path)


def run_certification(plan: CertificationPlan, kept: KeptResults) -> CertificationEvidence:
    """Run the suites with progress on stderr; ``kept`` as ``run_suites`` takes it."""
    warm_with_progress()
    with show_progress(f"certifying {plan.request.subject}", 1.0) as progress:
        return run_suites(plan, lambda share: progress.update(done=share), kept, progress.expect)


def show(
    document: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Certificate (JSON), or the manifest of an artefact (YAML); package:... for shipped ones.",
        ),
    ],
    meta: Annotated[
        str, typer.Option(help="MetaContract that it must keep; the manifest's own, or the shipped one.")
    ] = "",
) -> None:
    """Print what FILE certifies and say whether the meta-contract, as it reads today, accepts it."""
    file = resolve_uri(document, _SHOW)
    if file.suffix == ".json":
        terms, place = load_meta(meta or SHIPPED_META, _SHOW)
        found = load_certificate(read_text(file), str(file))
        print_certificate(found)
        _print_bound(found, file)
        _verdict(lambda: _refuse_unless_of_today(found, terms, file, place))
        return
    artefact = load_artefact(str(file), allow_uncertified=True)
    subject = manifest_subject(artefact.manifest)
    terms, place = load_meta(meta, _SHOW) if meta else named_meta(artefact.manifest, artefact.file)
    print_manifest(artefact.manifest)
    if artefact.manifest.spec.certificate is not None:
        print_certificate(artefact.manifest.spec.certificate)
        _print_bound(artefact.manifest.spec.certificate, file)
    _verdict(lambda: _refuse_unless_driving(artefact.manifest, terms, subject, file, place))


def _print_bound(found: Certificate, file: Path) -> None:
    """Print what its hash of the suites' worlds covers, and the file's own hash, to be pinned."""
    form = "1, without pools, traces and plug-ins" if found.inputs_sha256 is None else "2, every input"
    typer.echo(f"inputs bound by format {form}; sha256 of {file.name}: {sha256_of(file)}")


def _refuse_unless_driving(
    manifest: PolicyArtifact, meta: MetaContract, subject: Subject, file: Path, meta_file: Path
) -> None:
    """DocumentError unless the artefact may drive, and the episodes next to it reproduce its certificate."""
    refuse_unless_certified(manifest, meta, subject, str(file), meta_file)
    assert manifest.spec.certificate is not None  # else it was refused
    _refuse_other_episodes(manifest.spec.certificate, meta, file)
    refuse_other_worlds(manifest.spec.certificate, meta_file, file)


def _refuse_unless_of_today(found: Certificate, meta: MetaContract, file: Path, meta_file: Path) -> None:
    """DocumentError unless ``found`` passes ``meta``, and is about a built-in policy with present settings;
    a trained one is identified by its ONNX file alone, which its manifest pins.
    """
    trained = found.subject.partition(":")[0] in TRAINED
    if not trained and subject_of(found.subject)[0] != found.subject_sha256:
        raise _refusal(str(file), f"a certificate of {found.subject} as it is today", "one of other settings")
    refuse_unless_passing(found, meta, str(file), meta_file)
    _refuse_other_episodes(found, meta, file)
    refuse_other_worlds(found, meta_file, file)


def _refuse_other_episodes(found: Certificate, meta: MetaContract, file: Path) -> None:
    """Judge the episodes next to ``file`` again, if there are any."""
    place = evidence_file(file)
    if found.evidence_sha256 is not None and place.exists():
        refuse_other_episodes(found, meta, place)


def _verdict(check: Callable[[], None]) -> None:
    try:
        check()
    except DocumentError as error:
        typer.echo(f"refused: {error}")
        raise typer.Exit(EXIT_FAILED) from None
    typer.echo("accepted")


def print_manifest(manifest: PolicyArtifact) -> None:
    """Print an artefact's facts and origin."""
    spec = manifest.spec
    rows = {
        "artefact": manifest.metadata.name,
        "description": spec.description,
        "onnx sha256": spec.onnx.sha256,
        "encoding": str(spec.encoding_version),
        "meta-contract": spec.meta_contract or "the shipped one",
        "trained by": spec.training.command,
        "seeds": ", ".join(str(seed) for seed in spec.training.seeds),
    }
    for name, value in rows.items():
        typer.echo(f"{name:<13}  {value}")


def certificate_json(certificate: Certificate) -> str:
    """``certificate`` as one line of JSON per field, the same text for equal certificates."""
    return certificate.model_dump_json(indent=1) + "\n"


def print_certificate(certificate: Certificate) -> None:
    """Print the clauses as a table, then their basis."""
    table = Table(title=f"{certificate.subject}: {'passed' if certificate.passed else 'failed'}")
    for name in ("clause", "on", "value", "95 % limit", "threshold", "n", ""):
        table.add_column(name, justify="left" if name in ("clause", "on", "") else "right", no_wrap=True)
    for clause in certificate.clauses:
        table.add_row(
            clause.id,
            clause.judged_on,
            _number(clause.value),
            _number(clause.ci_high),
            f"{clause.threshold:g}",
            str(clause.n),
            _verdict_on(clause),
        )
    console = Console()
    if not console.is_terminal:
        console = Console(width=TABLE_WIDTH)
    console.print(table)
    console.print(
        f"{certificate.episodes} episodes, {certificate.seeds} seeds, "
        f"{certificate.quiet_slice_days:.4g} slice-days without a fault",
        highlight=False,
    )
    if unsure := [clause.id for clause in certificate.clauses if _is_open(clause)]:
        console.print(
            f"not shown: the value of {', '.join(unsure)} is within its threshold or missing, its limit not;"
            " more --seeds (incidents) or --quiet-days (quiet) narrow it, a busier scenario as well",
            highlight=False,
        )


def _is_open(clause: CertifiedClause) -> bool:
    """No measurement breaks the threshold, but the limit does: more episodes may prove it kept."""
    return not clause.passed and (clause.value is None or clause.value <= clause.threshold)


def _verdict_on(clause: CertifiedClause) -> str:
    kept = "kept" if clause.passed else "not shown" if _is_open(clause) else "broken"
    return kept if clause.worst is None else f"{kept}, worst: {clause.worst}"


def _number(value: float | None) -> str:
    return "nothing to judge" if value is None else f"{value:.4g}"
