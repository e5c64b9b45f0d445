"""``selvage contract init``: a commented contract that validates, with the requested hard clauses."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from contracts.documents import KernelContract
from contracts.loading.loader import cautions, load_text
from contracts.loading.template import (
    OBJECTIVES,
    PROMISE_NAMES,
    TemplateAnswers,
    TemplateSlice,
    contract_text,
)
from scripts.cli import init as init_module
from scripts.cli.main import app

SLICES = ("support", "sql", "no")


def run(*words: str | Path, text: str | None = None) -> Result:
    """``selvage contract init words``."""
    return CliRunner().invoke(app, ["contract", "init", *map(str, words)], input=text)


objectives = st.dictionaries(st.sampled_from(OBJECTIVES), st.sampled_from((80.0, 2000.0, 15000.0)))


@settings(max_examples=20)
@given(
    st.lists(objectives, min_size=1, max_size=3),
    st.sets(st.tuples(st.sampled_from(PROMISE_NAMES), st.sampled_from(("", *SLICES[:1])))),
    st.sampled_from(("full_vocab", "top_k")),
)
def test_every_answer_makes_a_valid_contract(
    slos: list[dict[str, float]], hard: set[tuple[str, str]], estimator: str
) -> None:
    """Any valid answers give a document that loads, and exactly the named promises are hard."""
    slices = tuple(TemplateSlice(name=n, objectives=o) for n, o in zip(SLICES, slos, strict=False))
    answers = TemplateAnswers(name="made", slices=slices, hard=tuple(sorted(hard)), estimator=estimator)
    text = contract_text(answers)
    document = load_text(text, "made.yaml")
    assert isinstance(document, KernelContract)
    assert cautions(text, "made.yaml") == []
    for name, metric in (("kl", "kl_mean"), ("fingerprint", "fingerprint_match")):
        bound = {
            place: clause.budget == 0.0
            for clause in document.spec.clauses
            if clause.metric == metric
            for place in clause.slices or [one.name for one in slices]
        }
        assert bound == {one.name: answers.is_hard(name, one.name) for one in slices}


def test_flags_write_a_commented_file_once(tmp_path: Path) -> None:
    """The file has comments and the requested slices, and is not overwritten unless told."""
    out = tmp_path / "mine.yaml"
    words = (
        "--name",
        "mine",
        "--slice",
        "support:ttft_ms=2000,default",
        "--slice",
        "sql",
        "--hard",
        "kl/sql",
    )
    assert run(*words, "--out", out).exit_code == 0
    text = out.read_text()
    assert text.count("#") > 5
    made = load_text(text, str(out))
    assert isinstance(made, KernelContract)
    assert [one.name for one in made.spec.slices if one.default] == ["support"]
    hard = {clause.id: clause.slices for clause in made.spec.clauses if clause.budget == 0.0}
    assert hard == {"N-kl-mean-hard": ("sql",)}
    assert run(*words, "--out", out).exit_code == 2
    assert run(*words, "--out", out, "--force").exit_code == 0
    assert CliRunner().invoke(app, ["contract", "validate", str(out)]).exit_code == 0


def test_questions_are_asked_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers and flags give the same contract; without a terminal it is bad input."""
    assert run().exit_code == 2
    monkeypatch.setattr(init_module, "can_ask", lambda: True)
    answers = iter(["support, sql", "support", 2000.0, 0.0, 0.0, 0.0, 0.0, 0.0, "kl/sql"])
    monkeypatch.setattr(typer, "prompt", lambda *_, **__: next(answers))
    asked = run("--name", "mine")
    monkeypatch.undo()
    flags = run(
        "--name", "mine", "--slice", "support:ttft_ms=2000,default", "--slice", "sql", "--hard", "kl/sql"
    )
    assert asked.stdout == flags.stdout


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("--slice", "support:speed=3"), "--slice"),
        (("--slice", "support:ttft_ms=fast"), "--slice"),
        (("--slice", "support:ttft_ms=-1"), "--slice"),
        (("--slice", "support:ttft_ms=nan"), "--slice"),
        (("--slice", "support:ttft_ms=900,latency_ms=800"), "--slice"),
        (("--slice", "a b"), "--slice 'a b'"),
        (("--slice", "support", "--slice", "support"), "--slice support"),
        (("--slice", "a:default", "--slice", "b:default"), "--slice"),
        (("--slice", "support", "--name", "Not Mine"), "--name"),
        (("--slice", "support", "--hard", "speed"), "--hard"),
        (("--slice", "support", "--hard", "kl/sql"), "--hard"),
        (("--slice", "support", "--hard", "ttft_ms"), "--hard"),
        (("--slice", "support:ttft_ms=9", "--slice", "sql", "--hard", "ttft_ms/sql"), "--hard"),
        (("--slice", "support", "--estimator", "sampled"), "--estimator"),
    ],
)
def test_what_makes_no_contract_is_refused_at_its_option(words: tuple[str, ...], option: str) -> None:
    """Bad names, slices, promises and estimators exit 2 with one line that names the option, and no line
    number of a file.
    """
    result = run(*words, "--out", "never.yaml")
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: selvage contract init {option}: expected")
    assert result.stderr.count("\n") == 1
    assert not Path("never.yaml").exists()
