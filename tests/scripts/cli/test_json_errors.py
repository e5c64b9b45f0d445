"""With ``--json`` every error is one JSON object on standard output, of one shape, for every command."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from contracts.assess.gate import GateOutcome
from contracts.loading.shipped import SERVING_POOL
from scripts.cli.main import COMMANDS, app, command_of, error_json


def commands_of(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Every command at or below ``command`` that accepts ``--json``."""
    for name, below in getattr(command, "commands", {}).items():
        yield from commands_of(below, (*words, name))
    if any("--json" in parameter.opts for parameter in command.params):
        yield words


WITH_JSON = sorted(
    words
    for name, (modules, _) in COMMANDS.items()
    for words in commands_of(command_of(name, modules), (name,))
)


def told(*words: str) -> dict[str, Any]:
    """The command's standard output: one object, whose shape is checked here."""
    done = CliRunner().invoke(app, list(words))
    found: dict[str, Any] = json.loads(done.stdout)
    assert set(found) == {"outcome", "exit_code", "error", "problems"}
    assert (done.exit_code, found["exit_code"], found["outcome"]) == (2, 2, GateOutcome.ERROR)
    assert found["error"]
    assert done.stderr
    return found


@pytest.mark.parametrize("words", WITH_JSON, ids=" ".join)
def test_words_that_fit_no_command_are_told_as_json(words: tuple[str, ...]) -> None:
    """An unknown option, of every command that has ``--json``."""
    assert "--no-such-option" in told(*words, "--json", "--no-such-option")["error"]


@pytest.mark.parametrize(
    "words",
    [
        ("contract", "evaluate", "none.yaml", "none.npz"),
        ("contract", "evaluate", SERVING_POOL, "none.npz"),
        ("contract", "propose", "none.yaml"),
        ("contract", "bounds", "none.yaml"),
        ("contract", "register", "show", "1", "--file", "none.jsonl"),
        ("simulate", "none.yaml"),
        ("explain", "none.yaml"),
        ("replay", "none.jsonl"),
        ("e5", "--suite", "none.yaml", "--out", "out"),
        ("policy", "certify", "nobody", "--out", "out/c.json"),
        ("drill", "run", "none.yaml", "--target", "sim"),
        ("bench", "nothing"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_what_is_refused_is_told_as_json(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing document, or an unknown name: each reason separately, with the text of standard error."""
    monkeypatch.chdir(tmp_path)
    found = told(*words, "--json")
    assert found["problems"]
    assert all(problem["next_step"] and problem["expected"] for problem in found["problems"])


def test_without_json_standard_output_stays_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message is on standard error alone."""
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["simulate", "none.yaml"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")


def test_a_failed_judgement_is_no_error() -> None:
    """Exit code 1 comes with the gate's outcome."""
    assert json.loads(error_json("refused", 1))["outcome"] == GateOutcome.FAILED
