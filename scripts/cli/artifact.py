"""``selvage policy export | evaluate``: from a training folder to an artefact, and what it is worth on E5."""

from __future__ import annotations

import os
import posixpath
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contracts.documents import FileRef, MetaContract, PolicyArtifact, Scenario
from contracts.documents.artifact import ComparedBaseline, RecurrentState, Training, TrainingRun
from contracts.documents.profile import Version
from contracts.errors import DocumentError, Problem
from contracts.loading.archives import arrays_of
from contracts.loading.files import sha256_of, write_pinned
from contracts.loading.json_values import json_of
from contracts.loading.loader import document_sha256, dump_text, load_as, read_text
from contracts.loading.malformed import MALFORMED
from contracts.loading.uris import PACKAGE_PREFIX, resolve_uri
from contracts.regular_files import ARCHIVE_BYTES, TEXT_BYTES, read_regular
from policies.artefacts import load_artefact, with_certificate
from policies.certify.admission import load_certificate
from policies.certify.artifact_files import SHIPPED_ARTEFACT, Artefact, write_artefact
from policies.certify.evidence import evidence_file
from policies.train.recipe import SHIPPED_RECIPE, RecipeSpec, load_recipe, seed_folder
from scripts.cli.options import MOST_SEEDS, options
from scripts.e5.experiment import Options
from scripts.e5.terminal import command_of, configurations_of, run_and_show
from scripts.output import ready_folder
from scripts.provenance import cores

if TYPE_CHECKING:
    from policies.learned.choosing import InputLayout

#: What a learned policy is compared with where nothing else is asked for.
BASELINES = "hysteresis,burn-rate,sequential,linear-program"


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command()(options(ExportOptions)(export))
    app.command()(evaluate)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """The options of ``selvage policy export``."""

    out: Annotated[Path, typer.Option("--out", help="Folder for NAME.onnx and NAME.yaml.")]
    run: Annotated[
        Path | None, typer.Argument(help="Folder of `selvage train`, or a manifest to complete.")
    ] = None
    sb3: Annotated[
        Path | None, typer.Option(help="Zip of a Stable-Baselines3 policy, for NAME.onnx alone.")
    ] = None
    name: Annotated[str, typer.Option(help="Name of the artefact.")] = "routing"
    seed: Annotated[int | None, typer.Option(help="Seed to ship; the best on validation without it.")] = None
    recipe: Annotated[str, typer.Option(help="Recipe that the run was made with.")] = SHIPPED_RECIPE
    certificate: Annotated[Path | None, typer.Option(help="JSON of `selvage policy certify`.")] = None
    meta: Annotated[
        str, typer.Option(help="MetaContract that the certificate passes, if not the shipped one.")
    ] = ""


def export(asked: ExportOptions) -> None:
    """Write the ONNX file and its manifest; equal runs give equal bytes.

    Without --certificate the artefact may be evaluated, certified and observed, but drives nowhere.
    """
    run, out, name = asked.run, asked.out, asked.name
    if (run is None) == (asked.sb3 is None):
        raise typer.BadParameter("give a run folder or --sb3 model.zip, one of them")
    if run is not None and run.is_file() and not (asked.certificate or asked.meta):
        raise typer.BadParameter("a manifest is completed with --certificate, --meta or both; give one")
    ready_folder(out)
    if run is None:
        typer.echo(str(_write_plain(asked.sb3, out / f"{name}.onnx")))
        return
    path = run if run.is_file() else _write_run(run, out, name, asked.seed, asked.recipe)
    if asked.certificate is not None or asked.meta:
        path = _completed(path, out, name, asked.certificate, asked.meta)
    typer.echo(str(path))


def _completed(manifest: Path, out: Path, name: str, certificate: Path | None, meta: str) -> Path:
    """The artefact of ``manifest`` in ``out`` with its meta-contract and certificate; where it lies now."""
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
    artefact's own; DocumentError where it is none.
    """
    uri, origin = (
        (meta, "selvage policy export") if meta else (artefact.manifest.spec.meta_contract, artefact.file)
    )
    if uri is None:
        return None
    file = resolve_uri(uri, origin)
    load_as(MetaContract, file)
    return uri if uri.startswith(PACKAGE_PREFIX) else os.path.relpath(file.absolute(), out.absolute())


def _write_plain(sb3: Path | None, path: Path) -> Path:
    """The ONNX file of a policy that another library trained; ``gym:onnx=FILE`` names it."""
    from scripts.sb3 import bytes_of_zip

    assert sb3 is not None  # the caller has one of the two
    write_pinned(path, bytes_of_zip(sb3))
    return path


def _write_run(run: Path, out: Path, name: str, seed: int | None, recipe: str) -> Path:
    """ONNX file and manifest of a finished training folder."""
    training = _read_training(run)
    file = resolve_uri(recipe, "selvage policy export")
    document = load_recipe(file)
    if document_sha256(document) != training["recipe_sha256"]:
        raise _refused(run, f"a run of recipe {document_sha256(document)}", training["recipe_sha256"])
    runs = {row["seed"]: row for row in training["runs"]}
    shipped = max(runs, key=lambda key: runs[key]["score"]) if seed is None else seed
    if shipped not in runs:
        raise _refused(run, f"one of the seeds {sorted(runs)}", str(shipped))
    content, recurrent = _network(seed_folder(run, shipped), document.spec, str(file))
    return write_artefact(
        out,
        name,
        content,
        document.spec.description,
        _manifest_training(training, shipped, document_sha256(document), document.spec, file),
        recurrent=recurrent,
    )


def _network(folder: Path, recipe: RecipeSpec, file: str) -> tuple[bytes, RecurrentState | None]:
    """ONNX file of a seed's kept weights, and the memory of a recurrent network."""
    from policies.learned.choosing import InputLayout

    layout = InputLayout(encoder=_encoder(recipe, file))
    if recipe.ppo.algorithm == "ppo":
        return network_of(folder / "checkpoint.npz", "best/", layout), None
    width = recipe.network.width
    return network_of(folder / "actor.npz", "", layout), RecurrentState(hidden=width, cell=width)


def network_of(file: Path, prefix: str, layout: InputLayout) -> bytes:
    """ONNX file of the weights in ``file`` whose names begin with ``prefix``; DocumentError for others.

    Without a prefix they are those of a recurrent actor.
    """
    from policies.learned.onnx_graph import network_bytes, recurrent_bytes

    arrays = _arrays(file, prefix)
    if any(one.dtype.kind != "f" for one in arrays.values()):
        raise _refused(file, "weights of `selvage train`", "arrays of other numbers than floats")
    try:
        return network_bytes(arrays, layout) if prefix else recurrent_bytes(arrays, layout)
    except MALFORMED as error:
        told = f"{type(error).__name__}: {error}"[:200]
        raise _refused(file, "weights of `selvage train`", told) from None


def _read_training(run: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json_of(read_regular(run / "training.json", TEXT_BYTES))
        finished = all(row["finished"] for row in content["runs"])
    except (DocumentError, ValueError, KeyError, TypeError, RecursionError):
        raise _refused(run, "training.json of `selvage train`", "none that can be read") from None
    if not finished:
        raise _refused(run, "a finished training", "seeds that were interrupted")
    return content


def _encoder(recipe: RecipeSpec, file: str) -> Any:
    """The recipe's encoding: its kernels_max and the slices of its contract."""
    from controller.encoding.encoder import Encoder
    from simulator.env.base import load_base

    base = load_base(resolve_uri(recipe.episodes.scenarios[0], file), recipe.episodes.horizon_s)
    return Encoder(kernels_max=recipe.episodes.kernels_max, slices=len(base.compiled.layout.slices))


def _arrays(file: Path, prefix: str = "") -> dict[str, Any]:
    """Arrays of ``file`` whose names begin with ``prefix``, without it."""
    try:
        stored = arrays_of(read_regular(file, ARCHIVE_BYTES))
        return {name.removeprefix(prefix): one for name, one in stored.items() if name.startswith(prefix)}
    except ValueError as error:
        raise _refused(file, "arrays of `selvage train`", f"{error}"[:200]) from None


def _manifest_training(
    training: dict[str, Any], shipped: int, sha256: str, recipe: RecipeSpec, file: Path
) -> Training:
    runs = tuple(
        TrainingRun(
            seed=row["seed"],
            env_steps=row["env_steps"],
            chosen_at=row["chosen_at"],
            score=row["score"],
            shipped=row["seed"] == shipped,
        )
        for row in training["runs"]
    )
    versions = sorted((name, text) for name, text in training["versions"].items() if text)
    return Training(
        command=training["command"],
        seeds=tuple(row["seed"] for row in training["runs"]),
        recipe_sha256=sha256,
        data=_data(recipe, file),
        runs=runs,
        baselines=_compared(training, shipped),
        versions=tuple(Version(name=name, version=text) for name, text in versions),
    )


def _compared(training: dict[str, Any], shipped: int) -> tuple[ComparedBaseline, ...]:
    found = []
    for configuration, score in training["baselines"].items():
        gain = next(row for row in score["gains"] if row["seed"] == shipped)
        found.append(
            ComparedBaseline(
                configuration=configuration,
                score=score["reward"],
                gain=gain["mean"],
                gain_low=gain["ci_low"],
                gain_high=gain["ci_high"],
            )
        )
    return tuple(found)


def _data(recipe: RecipeSpec, file: Path) -> tuple[FileRef, ...]:
    """Scenarios of the recipe with the pools and contracts they name, by the hash of the file."""
    found: dict[str, str] = {}
    for uri in recipe.episodes.scenarios:
        path = resolve_uri(uri, file)
        spec = load_as(Scenario, path).spec
        found[uri] = sha256_of(path)
        for inner in filter(None, (spec.pool_uri, spec.contract)):
            found[_beside(uri, inner)] = sha256_of(resolve_uri(inner, path))
    return tuple(FileRef(uri=uri, sha256=sha256) for uri, sha256 in found.items())


def _beside(uri: str, inner: str) -> str:
    """``inner``, found in the document ``uri``, as a URI of its own."""
    if "://" in inner or inner.startswith("package:"):
        return inner
    return posixpath.normpath(f"{uri.rpartition('/')[0]}/{inner}")  # no URI of ours may go up by ".."


def evaluate(
    artefact: Annotated[str, typer.Argument(help="Manifest or ONNX file (path or package: URI).")],
    out: Annotated[Path, typer.Option("--out", help="Folder for e5.json and report.html.")],
    suite: Annotated[str, typer.Option(help="Suite (file or package: URI); E5's without it.")] = "",
    against: Annotated[str, typer.Option(help="Comma-separated configurations beside it.")] = BASELINES,
    seeds: Annotated[
        int | None, typer.Option(min=1, max=MOST_SEEDS, help="Paired seeds; the suite's without it.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=0, help="Processes; 0 takes every core.")] = 0,
) -> None:
    """Run E5 with the policy, certified or not, beside baselines; the same tables as `selvage e5`."""
    with tempfile.TemporaryDirectory() as folder:
        file = artefact if artefact.endswith(".onnx") else _unpacked(artefact, Path(folder))
        policies = f"{against},learned:onnx={file}"
        options = Options(
            out=out,
            suite=resolve_uri(suite, "selvage policy evaluate") if suite else None,
            policies=configurations_of(policies),
            seeds=seeds,
            jobs=jobs or cores(),
            command=command_of(suite, policies, seeds, None, ""),
        )
        run_and_show(options)


def _unpacked(artefact: str, folder: Path) -> str:
    """The artefact's ONNX file, its hash checked, in ``folder``."""
    loaded = load_artefact(artefact or SHIPPED_ARTEFACT, allow_uncertified=True)
    manifest: PolicyArtifact = loaded.manifest
    path = folder / f"{manifest.metadata.name}.onnx"
    write_pinned(path, loaded.content)
    return str(path)


def _refused(place: Path, expected: str, actual: str) -> DocumentError:
    return DocumentError([Problem(str(place), 0, "", expected, actual, "run `selvage train` first")])
