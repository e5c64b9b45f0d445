"""``selvage policy route``: the RoutePolicy by which a certified artefact drives a scenario's pool."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from contracts.documents import KernelContract, KernelPool, MetaContract, RoutePolicy, Scenario
from contracts.documents.envelope import FileRef, Metadata
from contracts.documents.route import OwnedRoute, RoutePolicySpec
from contracts.errors import refusal
from contracts.loading.files import sha256_of
from contracts.loading.loader import document_sha256, dump_text, load_as
from contracts.loading.shipped import LIBRARY, SHIPPED_META
from contracts.loading.uris import resolve_uri
from policies.artefacts import load_artefact
from policies.certify.admission import LEARNED
from policies.certify.artifact_files import (
    Artefact,
    drives_as,
    load_learned,
    load_plain,
    named_meta,
    refuse_other_meta,
)
from policies.route import refuse_uncertified_baseline
from policies.supervised import load_meta
from scripts.cli.options import name_of_document
from scripts.output import ready_folder, refuse_to_replace, write_whole
from simulator.world.scenario import load_scenario


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command()(route)


def route(
    artefact: Annotated[str, typer.Argument(help="Manifest of the policy; package:... for shipped ones.")],
    scenario: Annotated[str, typer.Argument(help="Scenario with the pool and the contract.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="File for the RoutePolicy.")],
    mode: Annotated[
        Literal["observe", "enforce"],
        typer.Option(help="observe decides and moves nothing; enforce needs a passing certificate."),
    ] = "observe",
    name: Annotated[
        str,
        typer.Option(help="Name of the document and of the route that it owns.", callback=name_of_document),
    ] = "chat",
    meta: Annotated[str, typer.Option(help="MetaContract; the artefact's own, or the shipped one.")] = "",
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
) -> None:
    """Write the RoutePolicy by which ARTEFACT drives SCENARIO's pool, with every hash pinned.

    The artefact and the meta-contract are those that were certified together; nothing is admitted here that
    `selvage simulate --route-policy` would refuse.
    """
    if not force:
        refuse_to_replace(out, "selvage policy route")
    loaded = load_artefact(artefact, allow_uncertified=mode == "observe")
    file = resolve_uri(scenario, "selvage policy route")
    kept = _kept_by(loaded, meta, mode)
    if mode == "enforce":
        refuse_uncertified_baseline(load_as(MetaContract, kept), kept)
    spec = _pinned(_spec(loaded, file, mode, name), (loaded.file, kept), out)
    _refuse_other_fleet(loaded, file)
    made = RoutePolicy(metadata=Metadata(name=name), spec=spec)
    ready_folder(out.parent)
    write_whole(out, dump_text(made))
    typer.echo(str(out))


def _kept_by(artefact: Artefact, meta: str, mode: str) -> Path:
    """Path of the document's meta-contract; DocumentError if the document is to be enforced and it is not
    that of the artefact's certificate.
    """
    if not meta:
        return named_meta(artefact.manifest, artefact.file)[1]
    asked, place = load_meta(meta, "selvage policy route")
    if mode == "enforce":
        refuse_other_meta(artefact.manifest, artefact.file, asked, meta)
    return place


def _refuse_other_fleet(artefact: Artefact, file: Path) -> None:
    """DocumentError if the network reads other slices or fewer kernels than the scenario ``file`` has."""
    load = load_learned if drives_as(artefact.manifest) == LEARNED else load_plain
    load(str(artefact.file), load_scenario(file).setup, None)


def _spec(artefact: Artefact, file: Path, mode: Literal["observe", "enforce"], name: str) -> RoutePolicySpec:
    """Pool, contract and tick of the scenario ``file``."""
    asked = load_as(Scenario, file)
    if asked.spec.pool_uri is None:
        hint = "move the pool to a file of its own and name it by pool_uri"
        raise refusal(file, "a pool with a name", "none", hint, path="spec.pool_uri")
    pool = load_as(KernelPool, resolve_uri(asked.spec.pool_uri, file))
    contract = load_as(KernelContract, resolve_uri(asked.spec.contract, file))
    return RoutePolicySpec(
        description=f"The policy {artefact.manifest.metadata.name} on the pool {pool.metadata.name}.",
        policy=drives_as(artefact.manifest),
        mode=mode,
        tick_s=asked.spec.tick_s,
        pool=pool.metadata.name,
        contract=contract.metadata.name,
        meta_contract=SHIPPED_META,
        route=OwnedRoute(name=name),
    )


def _pinned(spec: RoutePolicySpec, files: tuple[Path, Path], out: Path) -> RoutePolicySpec:
    """``spec`` with the manifest and the meta-contract in ``files``, by their hashes."""
    manifest, meta = files
    return spec.model_copy(
        update={
            "artifact": FileRef(uri=_seen_from(out, manifest), sha256=sha256_of(manifest)),
            "meta_contract": _seen_from(out, meta),
            "meta_contract_sha256": document_sha256(load_as(MetaContract, meta)),
        }
    )


def _seen_from(out: Path, file: Path) -> str:
    """The file as the document ``out`` names it: relative, or by name if it is shipped."""
    library = resolve_uri(LIBRARY, "selvage policy route")
    if file.is_relative_to(library):
        return f"{LIBRARY}{file.relative_to(library).as_posix()}"
    return Path(os.path.relpath(file.absolute(), out.parent.absolute())).as_posix()
