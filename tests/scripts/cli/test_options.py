"""Commands that take their options as a record."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from scripts.cli.main import app
from scripts.cli.options import options


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A required argument, an option with its own name, and a flag."""

    place: Annotated[str, typer.Argument(help="Where.")]
    count: Annotated[int, typer.Option("--many", min=1, help="How many.")] = 2
    as_json: Annotated[bool, typer.Option("--json")] = False


def _run(*words: str) -> tuple[int, str]:
    """Exit code and output of a command that prints its record."""
    app = typer.Typer()

    @app.command()
    @options(Asked)
    def show(asked: Asked) -> None:
        """Show the record."""
        typer.echo(repr(asked))

    done = CliRunner().invoke(app, list(words))
    return done.exit_code, done.output


def test_every_field_is_a_parameter_with_its_default() -> None:
    """Arguments, options and flags reach the function in one record; missing ones have their default."""
    assert _run("here") == (0, f"{Asked(place='here')!r}\n")
    assert _run("there", "--many", "3", "--json") == (0, f"{Asked(place='there', count=3, as_json=True)!r}\n")


def test_what_the_annotations_forbid_is_refused() -> None:
    """A missing argument and a value out of range are usage errors, as of any other command."""
    assert _run()[0] == 2
    assert _run("here", "--many", "0")[0] == 2


def test_help_is_the_functions_own() -> None:
    """The help shows the function's docstring and the fields' help."""
    code, text = _run("--help")
    assert code == 0
    assert "Show the record." in text
    assert "How many." in text


@pytest.mark.parametrize("name", ["a b", "../mine", "a/b", "UPPER", "", "-a", "x" * 64])
@pytest.mark.parametrize(
    "words",
    [
        ("policy", "export", "run", "--out", "out"),
        ("policy", "route", "artefact.yaml", "scenario.yaml", "--out", "out/route.yaml"),
        ("offline", "train", "logs", "--out", "out"),
    ],
)
def test_a_name_that_no_document_may_have_is_refused_before_any_work(
    words: tuple[str, ...], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blanks, capitals and paths in ``--name`` are a usage error, and nothing is read or written."""
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, [*words, "--name", name], env={"COLUMNS": "200"})
    assert done.exit_code == 2
    assert "a name of small letters" in done.output
    assert not list(tmp_path.iterdir())


def test_a_tilde_is_the_home_where_no_shell_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``--out=~/x`` and a quoted ``'~/x'`` are in the home, as text and as path; there is no folder ``~``."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    words = ["contract", "init", "--slice", "sql:ttft_ms=2000", "--slice", "default", "--out=~/made.yaml"]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert CliRunner().invoke(app, ["contract", "validate", "~/made.yaml"]).exit_code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["made.yaml"]
