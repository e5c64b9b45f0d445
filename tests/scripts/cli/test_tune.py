"""``selvage tune``: one result, however many processes, and however often it was stopped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from contracts.loading.shipped import SHIPPED_RECIPE
from contracts.loading.uris import resolve_uri
from policies.supervised import meta_sha256
from policies.train.recipe import load_recipe
from scripts.cli.main import app
from scripts.train import pieces
from scripts.train.validation import Row
from tests.support.documents.documents_written import write_yaml
from tests.support.documents.own_meta import write_own_meta

pytestmark = [pytest.mark.slow, pytest.mark.needs("rl")]


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """The shipped recipe with four short validation episodes."""
    document = load_recipe(resolve_uri(SHIPPED_RECIPE, "tests")).model_dump(
        mode="json", by_alias=True, exclude_none=True
    )
    document["spec"]["validation"] |= {"episodes": 4, "horizon_s": 60.0}
    return write_yaml(tmp_path / "recipe.yaml", document)


def tuned(recipe: Path, out: Path, *more: str) -> bytes:
    """The result of three trials of four fleets for a minute."""
    words = ["tune", "threshold", "--steps", "720", "--fleets", "4", "--horizon-s", "60", *more]
    done = CliRunner().invoke(app, [*words, "--recipe", str(recipe), "--out", str(out)])
    assert done.exit_code == 0, done.output
    return out.read_bytes()


def test_processes_and_interruptions_change_no_byte(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """One process, two, and a run that was stopped after two trials write equal bytes."""
    whole = tuned(recipe, tmp_path / "one.json")
    assert tuned(recipe, tmp_path / "two.json", "--jobs", "2") == whole
    assert not list(tmp_path.glob("*-parts"))
    ran: list[str] = []
    run_piece = pieces.run_piece

    def stopped(piece: pieces.Piece) -> list[Row]:
        if len(ran) == 2:
            raise KeyboardInterrupt
        ran.append(piece.configuration)
        return run_piece(piece)

    words = ["tune", "threshold", "--steps", "720", "--fleets", "4", "--horizon-s", "60"]
    words += ["--recipe", str(recipe), "--out", str(tmp_path / "three.json")]
    with monkeypatch.context() as patch:
        patch.setattr(pieces, "run_piece", stopped)
        ended = CliRunner().invoke(app, words)
    assert ended.exit_code == 130
    assert "kept in" in ended.output
    assert "Traceback" not in ended.output + "".join(capfd.readouterr())
    assert "(2 files); the same command goes on from it" in ended.output
    assert len(list((tmp_path / "three-parts").iterdir())) == 2
    with monkeypatch.context() as patch:
        again: list[str] = []

        def counted(piece: pieces.Piece) -> list[Row]:
            again.append(piece.configuration)
            return run_piece(piece)

        patch.setattr(pieces, "run_piece", counted)
        assert tuned(recipe, tmp_path / "three.json") == whole
    assert not set(again[:1]) & set(ran)


def test_trials_are_kept_by_the_meta_contract_that_is_named(recipe: Path, tmp_path: Path) -> None:
    """Smaller moves change every trial's score, and the result pins the meta-contract."""
    meta = write_own_meta(tmp_path)
    bare = json.loads(tuned(recipe, tmp_path / "bare.json"))
    kept = json.loads(tuned(recipe, tmp_path / "kept.json", "--meta", str(meta)))
    assert (bare["meta_contract_sha256"], kept["meta_contract_sha256"]) == (None, meta_sha256(str(meta)))
    assert f"--meta {meta}" in kept["command"]
    assert [one["objective"] for one in kept["trials"]] != [one["objective"] for one in bare["trials"]]


def test_what_is_no_meta_contract_is_refused_before_the_search(tmp_path: Path) -> None:
    """Exit code 2, and no folder of results."""
    words = ["tune", "threshold", "--meta", "none.yaml", "--out", str(tmp_path / "out" / "one.json")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2
    assert "none.yaml" in done.output
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("words", [("tune", "threshold"), ("policy", "certify", "hysteresis")])
def test_a_folder_in_place_of_the_result_is_refused_before_the_search(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    """An unusable path is refused before the hours of search."""
    done = CliRunner().invoke(app, [*words, "--out", str(tmp_path)])
    assert done.exit_code == 2
    assert f"{tmp_path}: expected a writable file, got Is a directory" in done.output


@pytest.mark.needs("ray")
def test_a_local_ray_changes_no_byte(recipe: Path, tmp_path: Path) -> None:
    """Pieces on a Ray cluster give the bytes of one process, and leave no parts behind."""
    whole = tuned(recipe, tmp_path / "one.json")
    assert tuned(recipe, tmp_path / "ray.json", "--jobs", "2", "--backend", "ray") == whole
    assert not list(tmp_path.glob("*-parts"))
