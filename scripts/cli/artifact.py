"""``selvage policy export | evaluate | sign | verify``: make an artefact of a training run, evaluate it on
E5, and sign it.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from contracts.documents import MetaContract, PolicyArtifact
from contracts.documents.artifact import Training
from contracts.errors import DocumentError
from contracts.loading.files import write_pinned
from contracts.loading.loader import dump_text, load_as, read_text
from contracts.loading.shipped import SHIPPED_ARTEFACT, SHIPPED_RECIPE
from contracts.loading.uris import PACKAGE_PREFIX, resolve_uri
from contracts.regular_files import TEXT_BYTES, read_regular
from policies.artefacts import load_artefact, with_certificate
from policies.certify.admission import LEARNED, PLAIN, load_certificate
from policies.certify.artifact_files import Artefact, RunsAs, drives_as, refuse_other_meta, write_artefact
from policies.certify.evidence import evidence_file
from policies.certify.signature import public_key, refuse_unsigned, signature_file, signature_of
from policies.supervised import load_meta
from scripts.cli.options import MOST_SEEDS, name_of_document, options
from scripts.e5.run.experiment import Options
from scripts.e5.run.terminal import command_of, configurations_of, run_and_show
from scripts.guard import EXIT_FAILED
from scripts.output import ready_folder, write_bytes
from scripts.provenance import cores
from scripts.train.exported import write_for_fleet, write_run

#: Default configurations that a learned policy is compared with.
BASELINES = "hysteresis,burn-rate,sequential,linear-program"


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command()(options(ExportOptions)(export))
    app.command()(evaluate)
    app.command()(sign)
    app.command()(verify)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """The options of ``selvage policy export``."""

    out: Annotated[Path, typer.Option("--out", help="Folder for NAME.onnx and NAME.yaml.")]
    run: Annotated[
        Path | None, typer.Argument(help="Folder of `selvage train`, or a manifest to complete.")
    ] = None
    sb3: Annotated[
        Path | None,
        typer.Option(help="Or the zip of a Stable-Baselines3 policy, trained on the environment."),
    ] = None
    name: Annotated[str, typer.Option(help="Name of the artefact.", callback=name_of_document)] = "routing"
    seed: Annotated[int | None, typer.Option(help="Seed to ship; default: the best on validation.")] = None
    recipe: Annotated[str, typer.Option(help="Recipe that the run was made with.")] = SHIPPED_RECIPE
    scenario: Annotated[
        str,
        typer.Option(
            help="Scenario whose fleet the network of a manifest is to read, to be certified there."
        ),
    ] = ""
    certificate: Annotated[Path | None, typer.Option(help="JSON of `selvage policy certify`.")] = None
    meta: Annotated[
        str, typer.Option(help="MetaContract that the certificate passes, if not the shipped one.")
    ] = ""


def export(asked: ExportOptions) -> None:
    """Write the ONNX file and its manifest; equal runs or models give equal bytes.

    Without --certificate the artefact may be evaluated, certified and observed, but drives nowhere.
    With --scenario the weights of a manifest (package:contracts/library/policies/routing.yaml is the shipped
    one) are written for the slices and kernels of that fleet, without the certificate of the first.
    """
    run, out, name = asked.run, asked.out, asked.name
    if (run is None) == (asked.sb3 is None):
        raise typer.BadParameter("give a run folder or --sb3 model.zip, one of them")
    if asked.scenario and (run is None or run.is_dir() or asked.certificate):
        raise typer.BadParameter("--scenario takes a manifest, and no certificate: certify what it writes")
    if run is not None and run.is_file() and not (asked.certificate or asked.meta or asked.scenario):
        raise typer.BadParameter(
            "a manifest is completed with --certificate, --meta or both, or read for the fleet of --scenario"
        )
    ready_folder(out)
    if asked.sb3 is not None:
        path = _write_plain(asked.sb3, out, name)
    elif asked.scenario:
        path = write_for_fleet(str(run), asked.scenario, out, name)
    else:
        assert run is not None  # one of the two was given
        path = run if run.is_file() else write_run(run, out, name, asked.seed, asked.recipe)
    if asked.certificate is not None or asked.meta:
        path = _completed(path, out, name, asked.certificate, asked.meta)
    typer.echo(str(path))


def _completed(manifest: Path, out: Path, name: str, certificate: Path | None, meta: str) -> Path:
    """Write the artefact of ``manifest`` into ``out`` with meta-contract and certificate; returns its path"""
    artefact = load_artefact(str(manifest), allow_uncertified=True)
    path = out / f"{name}.yaml"
    spec = artefact.manifest.spec.model_copy(update={"meta_contract": _from(out, meta, artefact)})
    found = artefact.manifest.model_copy(update={"spec": spec})
    if certificate is not None:
        placed = replace(artefact, manifest=found, file=path)
        found = with_certificate(placed, load_certificate(read_text(certificate), str(certificate)))
        if (episodes := evidence_file(certificate)).exists():
            write_pinned(evidence_file(path), read_regular(episodes, TEXT_BYTES))
    write_pinned(out / spec.onnx.uri, artefact.content)
    write_pinned(path, dump_text(found).encode())
    return path


def _from(out: Path, meta: str, artefact: Artefact) -> str | None:
    """The URI of the meta-contract as a manifest in ``out`` names it: that of the command line, else the
    artefact's own; DocumentError if it is not a meta-contract.
    """
    uri, origin = (
        (meta, "selvage policy export") if meta else (artefact.manifest.spec.meta_contract, artefact.file)
    )
    if uri is None:
        return None
    file = resolve_uri(uri, origin)
    load_as(MetaContract, file)
    return uri if uri.startswith(PACKAGE_PREFIX) else os.path.relpath(file.absolute(), out.absolute())


def _write_plain(sb3: Path, out: Path, name: str) -> Path:
    """The ONNX file of a policy that another library trained, and its manifest, whose path is returned."""
    from scripts.sb3 import bytes_of_zip, seed_of_zip

    seed = seed_of_zip(sb3)
    message = "Stable-Baselines3, outside of this project" + (
        "" if seed is not None else "; no seed was saved"
    )
    training = Training(command=message, seeds=(seed or 0,))
    described = "Trained on the environment by Stable-Baselines3."
    return write_artefact(
        out, name, bytes_of_zip(sb3), described, training, runs_as=RunsAs(configuration=PLAIN)
    )


def evaluate(
    artefact: Annotated[str, typer.Argument(help="Manifest or ONNX file (path or package: URI).")],
    out: Annotated[Path, typer.Option("--out", help="Folder for e5.json and report.html.")],
    suite: Annotated[str, typer.Option(help="Suite (file or package: URI); default: E5's.")] = "",
    against: Annotated[
        str, typer.Option(help="Comma-separated policy configurations to compare with.")
    ] = BASELINES,
    seeds: Annotated[
        int | None, typer.Option(min=1, max=MOST_SEEDS, help="Paired seeds; default: the suite's.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=0, help="Processes; 0 takes every core.")] = 0,
    meta: Annotated[
        str, typer.Option(help="MetaContract that supervises every policy, as in service; default: none.")
    ] = "",
) -> None:
    """Run E5 with the policy, certified or not, beside baselines; the same tables as `selvage e5`.

    With --meta each runs as that meta-contract lets it; an artefact that belongs to another is refused.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = f"{LEARNED}:onnx={artefact}"
        if not artefact.endswith(".onnx"):
            file = _unpacked(artefact, Path(folder), meta)
        policies = f"{against},{file}"
        options = Options(
            out=out,
            suite=resolve_uri(suite, "selvage policy evaluate") if suite else None,
            policies=configurations_of(policies),
            seeds=seeds,
            jobs=jobs or cores(),
            meta=meta,
            command=command_of(suite, policies, seeds, None, "", meta),
        )
        run_and_show(options)


def _unpacked(artefact: str, folder: Path, meta: str) -> str:
    """The artefact's ONNX file, its hash checked, in ``folder``, as a configuration names it; DocumentError
    if it belongs to another meta-contract than ``meta``, if that is given.
    """
    loaded = load_artefact(artefact or SHIPPED_ARTEFACT, allow_uncertified=True)
    if meta:
        asked, _ = load_meta(meta, "selvage policy evaluate")
        refuse_other_meta(loaded.manifest, loaded.file, asked, meta)
    manifest: PolicyArtifact = loaded.manifest
    path = folder / f"{manifest.metadata.name}.onnx"
    write_pinned(path, loaded.content)
    return f"{drives_as(manifest)}:onnx={path}"


def sign(
    file: Annotated[Path, typer.Argument(help="Manifest (YAML) or certificate (JSON).")],
    key: Annotated[Path, typer.Option("--key", help="Private ed25519 key, PEM without a password.")],
) -> None:
    """Write FILE.sig, and print the public key as a RoutePolicy pins it (``signed_by``).

    A key is made by `openssl genpkey -algorithm ed25519 -out KEY`.
    """
    signature, public = signature_of(read_regular(file, TEXT_BYTES), key)
    write_bytes(signature_file(file), signature)
    typer.echo(public)


def verify(
    file: Annotated[Path, typer.Argument(help="Manifest (YAML) or certificate (JSON).")],
    key: Annotated[str, typer.Option("--key", help="Public key: 64 hex digits, or a PEM file.")],
) -> None:
    """Say whether FILE.sig is the key's signature of FILE as it reads now; exit code 1 where it is not."""
    public = public_key(key)
    read_regular(file, TEXT_BYTES)
    try:
        refuse_unsigned(file, public)
    except DocumentError as error:
        typer.echo(f"refused: {error}")
        raise typer.Exit(EXIT_FAILED) from None
    typer.echo(f"signed by {public}")
