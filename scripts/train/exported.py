"""From a finished training folder, or an artefact of another fleet, to the ONNX file and the manifest."""

from __future__ import annotations

import posixpath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contracts.documents import FileRef, Scenario
from contracts.documents.artifact import ComparedBaseline, RecurrentState, Training, TrainingRun
from contracts.documents.profile import Version
from contracts.errors import DocumentError, refusal
from contracts.loading.files import sha256_of
from contracts.loading.loader import document_sha256, load_as
from contracts.loading.untrusted import MALFORMED, arrays_of, json_of
from contracts.loading.uris import resolve_uri
from contracts.regular_files import ARCHIVE_BYTES, TEXT_BYTES, read_regular
from policies.artefacts import load_artefact
from policies.certify.artifact_files import RunsAs, write_artefact
from policies.train.recipe import RecipeSpec, load_recipe, seed_folder

if TYPE_CHECKING:
    from policies.learned.choosing import InputLayout


def write_run(run: Path, out: Path, name: str, seed: int | None, recipe: str) -> Path:
    """Write NAME.onnx and NAME.yaml of the finished training folder ``run``; the manifest's path.

    seed: the one to ship, None for the best on validation. Raises DocumentError if ``run`` is not one of
    ``recipe`` or not finished.
    """
    training = read_training(run)
    file = resolve_uri(recipe, "selvage policy export")
    document = load_recipe(file)
    if document_sha256(document) != training["recipe_sha256"]:
        expected = f"a run of the recipe {recipe}, sha256 {document_sha256(document)}"
        hint = "name the recipe that it was trained by, as it was then, with --recipe"
        raise refusal(run, expected, f"one of sha256 {training['recipe_sha256']}", hint)
    runs = {row["seed"]: row for row in training["runs"]}
    shipped = max(runs, key=lambda key: runs[key]["score"]) if seed is None else seed
    if shipped not in runs:
        raise _refusal(run, f"one of the seeds {sorted(runs)}", str(shipped))
    content, recurrent = _network(seed_folder(run, shipped), document.spec, str(file))
    return write_artefact(
        out,
        name,
        content,
        document.spec.description,
        _manifest_training(training, shipped, document_sha256(document), document.spec, file),
        runs_as=RunsAs(recurrent=recurrent),
    )


def write_for_fleet(manifest: str, scenario: str, out: Path, name: str) -> Path:
    """Write NAME.onnx and NAME.yaml of the weights of the artefact ``manifest`` for the fleet of
    ``scenario``, without a certificate; the manifest's path. Raises DocumentError where its network reads one
    size alone.
    """
    from policies.learned.resized import resized
    from simulator.world.scenario import compile_scenario

    artefact = load_artefact(manifest, allow_uncertified=True)
    spec = artefact.manifest.spec
    if spec.configuration is not None:
        raise _refusal(artefact.file, "a network of `selvage train`", f"one of `{spec.configuration}`")
    file = resolve_uri(scenario, "selvage policy export --scenario")
    layout = compile_scenario(load_as(Scenario, file), str(file)).layout
    kernels, slices = len(layout.kernels), len(layout.slices)
    content = resized(artefact.content, kernels, slices, spec.onnx.uri)
    message = f"The weights of {artefact.manifest.metadata.name} ({spec.onnx.sha256}) for {slices} slices"
    return write_artefact(out, name, content, f"{message}. {spec.description}", spec.training)


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
        raise _refusal(file, "weights of `selvage train`", "arrays of other numbers than floats")
    try:
        return network_bytes(arrays, layout) if prefix else recurrent_bytes(arrays, layout)
    except MALFORMED as error:
        told = f"{type(error).__name__}: {error}"[:200]
        raise _refusal(file, "weights of `selvage train`", told) from None


def read_training(run: Path) -> dict[str, Any]:
    """Content of the training.json in ``run``; DocumentError where it cannot be read or is not finished."""
    try:
        content: dict[str, Any] = json_of(read_regular(run / "training.json", TEXT_BYTES))
        finished = all(row["finished"] for row in content["runs"])
    except (DocumentError, ValueError, KeyError, TypeError, RecursionError):
        raise _refusal(run, "training.json of `selvage train`", "none that can be read") from None
    if not finished:
        raise _refusal(run, "a finished training", "seeds that were interrupted")
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
        raise _refusal(file, "arrays of `selvage train`", f"{error}"[:200]) from None


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
    """``inner``, found in the document ``uri``, as an absolute URI."""
    if "://" in inner or inner.startswith("package:"):
        return inner
    return posixpath.normpath(f"{uri.rpartition('/')[0]}/{inner}")  # no URI of ours may contain ".."


def _refusal(place: Path, expected: str, actual: str) -> DocumentError:
    return refusal(place, expected, actual, "run `selvage train` first")
