"""``selvage contract init``: write a commented contract from flags, or from answers on a terminal."""

from __future__ import annotations

import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from contracts.errors import DocumentError, Problem, refusal
from contracts.loading.loader import load_text
from contracts.loading.template import (
    OBJECTIVES,
    PROMISE_NAMES,
    TemplateAnswers,
    TemplateSlice,
    contract_text,
    parse_hard,
    parse_slice,
)
from scripts.output import refuse_to_replace, write_whole

_COMMAND = "selvage contract init"
#: Path of a slice in the generated document.
_OF_SLICE = re.compile(r"spec\.slices\[(\d+)\]")
Estimators = ("full_vocab", "top_k")


def register(app: typer.Typer) -> None:
    """Add the command to the ``contract`` group."""
    app.command()(init)


def init(
    name: Annotated[str, typer.Option(help="Name of the contract.")] = "serving",
    slices: Annotated[
        list[str] | None,
        typer.Option(
            "--slice", help="NAME[:ttft_ms=2000,latency_ms=15000,inter_token_ms=80,default]; repeatable."
        ),
    ] = None,
    hard: Annotated[
        list[str] | None,
        typer.Option(help=f"PROMISE or PROMISE/SLICE, of {', '.join(PROMISE_NAMES)}; repeatable."),
    ] = None,
    estimator: Annotated[
        str, typer.Option(help="full_vocab, or top_k where only an endpoint is measured.")
    ] = "full_vocab",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File to write; default: stdout.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
) -> None:
    """Write a commented contract: slices, their objectives, and which promises are hard.

    Without --slice the questions are asked on the terminal. Without --hard fingerprints alone are hard.
    """
    if estimator not in Estimators:
        raise _refusal("--estimator", " or ".join(Estimators), repr(estimator))
    if not force:
        refuse_to_replace(out, _COMMAND)
    given = tuple(parse_slice(text) for text in slices or ()) or _asked_slices()
    wanted = _asked_hard() if not slices and hard is None else hard
    answers = TemplateAnswers(
        name=name,
        slices=given,
        estimator=estimator,
        hard=tuple(parse_hard(text, given) for text in (["fingerprint"] if wanted is None else wanted)),
    )
    text = contract_text(answers)
    _check(text, answers)
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_whole(out, text)
        typer.echo(f"next: selvage contract validate {shlex.quote(str(out))}", err=True)


def _check(text: str, answers: TemplateAnswers) -> None:
    """DocumentError that names options, because there is no file yet, unless ``text`` is a contract."""
    try:
        load_text(text, _COMMAND)
    except DocumentError as error:
        own = [one for one in error.problems if not one.path.startswith("spec.clauses")]
        told = own or error.problems  # clauses are made of the slices, and repeat their problems
        raise DocumentError([_of_option(one, answers) for one in told]) from None


def _of_option(problem: Problem, answers: TemplateAnswers) -> Problem:
    """``problem`` at the option that caused it."""
    found = _OF_SLICE.match(problem.path)
    path = "--slice"
    if problem.path == "metadata.name":
        path = "--name"
    elif found is not None:
        path = f"--slice {shlex.quote(answers.slices[int(found[1])].name)}"
    return replace(problem, line=0, path=path)


def can_ask() -> bool:
    """Whether a person can be asked at the terminal."""
    return sys.stdin.isatty()


def _asked_slices() -> tuple[TemplateSlice, ...]:
    """Slices as typed at the terminal; DocumentError without one."""
    if not can_ask():
        raise _refusal("--slice", "one or more slices, or a terminal to ask on", "neither")
    names = [part.strip() for part in typer.prompt("slices, comma-separated").split(",") if part.strip()]
    default = typer.prompt("which takes requests without a known header", default=names[-1])
    found = []
    for name in names:
        told = {key: typer.prompt(f"{name}: {key}, 0 for none", default=0.0) for key in OBJECTIVES}
        objectives = {key: value for key, value in told.items() if value > 0.0}
        found.append(TemplateSlice(name=name, objectives=objectives, default=name == default))
    return tuple(found)


def _asked_hard() -> list[str]:
    """Hard promises as typed at the terminal."""
    told = typer.prompt(
        f"hard promises of {', '.join(PROMISE_NAMES)} (or PROMISE/SLICE)", default="fingerprint"
    )
    return [part.strip() for part in told.split(",") if part.strip()]


def _refusal(path: str, expected: str, actual: str) -> DocumentError:
    example = "e.g. --slice support:ttft_ms=2000,default --slice sql --hard kl/sql"
    return refusal(_COMMAND, expected, actual, example, path=path)
