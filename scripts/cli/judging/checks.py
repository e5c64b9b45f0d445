"""Checks of ``selvage contract validate`` on one file; prints nothing and writes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from contracts.documents import KINDS, Document, RoutePolicy, Scenario, Suite
from contracts.errors import DocumentError, KeyPath, Problem
from contracts.loading.loader import cautions, load_as, load_text, read_text
from contracts.loading.notes import Note, notes
from contracts.loading.references import first_problem_breach, reference_breaches
from contracts.loading.uris import resolve_uri
from contracts.rules import Breach


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """Result of checking one file; ``document`` is None if it was refused."""

    file: str
    document: Document | None
    problems: tuple[Problem, ...]
    cautions: tuple[Problem, ...]
    notes: tuple[Note, ...]
    broken_at_rest: tuple[str, ...] = ()


def check(file: str, *, references: bool = True) -> Checked:
    """Load ``file`` (a path or a ``package:`` name) and collect the findings about it."""
    try:
        text = read_text(resolve_uri(file, "selvage"))
        document = load_text(text, file, every_kind(), partial(_more, file=file, references=references))
    except DocumentError as error:
        return Checked(file=file, document=None, problems=error.problems, cautions=(), notes=())
    return Checked(
        file=file,
        document=document,
        problems=(),
        cautions=tuple(cautions(text, file)),
        notes=tuple(notes(document, text, file)),
        broken_at_rest=tuple(_broken_at_rest(document, file)) if references else (),
    )


def _broken_at_rest(document: Document, file: str) -> list[str]:
    """Clauses that home kernels of a scenario, or of a suite's scenarios, break without a fault."""
    place = resolve_uri(file, "selvage")
    if isinstance(document, Scenario):
        return _broken_at_rest_lines(document, str(place))
    if not isinstance(document, Suite):
        return []
    spec = document.spec
    bases = dict.fromkeys(row.uri or row.base or spec.base for row in spec.scenarios)
    files = [resolve_uri(uri, place) for uri in bases if uri is not None]
    told = [line for each in files for line in _broken_at_rest_lines(load_as(Scenario, each), str(each))]
    return list(dict.fromkeys(told))


def _broken_at_rest_lines(scenario: Scenario, file: str) -> list[str]:
    """One line for each clause; none for a fleet that cannot be built, which running it reports."""
    from simulator.world.at_rest import CONSEQUENCE, broken_at_rest

    try:
        return [f"{each}; {CONSEQUENCE}" for each in broken_at_rest(scenario.spec, file)]
    except DocumentError:
        return []


def every_kind() -> tuple[type[Document], ...]:
    """Every kind that a file may hold: those of a cluster, and recipes of training runs."""
    from policies.train.recipe import TrainingRecipe

    return (*KINDS, TrainingRecipe)


def _more(document: Document, file: str, *, references: bool) -> Iterator[Breach]:
    """Unknown names of policies and, with ``references``, problems in referenced documents."""
    yield from _unknown_policies(document)
    if references:
        yield from reference_breaches(document, file)
        yield from _unread(document, file)


def _unread(document: Document, file: str) -> Iterator[Breach]:
    """Scenarios that a recipe trains on and that cannot be loaded."""
    from policies.train.recipe import TrainingRecipe

    uris = document.spec.episodes.scenarios if isinstance(document, TrainingRecipe) else ()
    for index, uri in enumerate(uris):
        try:
            load_as(Scenario, resolve_uri(uri, resolve_uri(file, "selvage")))
        except DocumentError as error:
            yield from first_problem_breach(error, ("spec", "episodes", "scenarios", index))


def _unknown_policies(document: Document) -> Iterator[Breach]:
    """Policies, by their text form, that no registry has or that do not accept these settings."""
    named = list(_policies_of(document))
    if not named:
        return
    from policies import registry  # noqa: F401 - it registers ours
    from policies.kinds import chosen_settings
    from scripts.e5.configurations import TUNED

    for path, text in named:
        try:
            if text != TUNED:
                chosen_settings(text.partition("@")[0], {})
        except ValueError as error:
            hint = "correct the spelling, or install what brings it"
            yield Breach(path=path, expected="a policy", actual=f"{text!r}: {error}", next_step=hint)


def _policies_of(document: Document) -> Iterator[tuple[KeyPath, str]]:
    """Every place of ``document`` that names a policy, and the name."""
    from policies.train.recipe import TrainingRecipe

    if isinstance(document, RoutePolicy):
        yield ("spec", "policy"), document.spec.policy
    if isinstance(document, TrainingRecipe):
        yield ("spec", "episodes", "detector"), document.spec.episodes.detector
        yield ("spec", "behaviour_cloning", "teacher"), document.spec.behaviour_cloning.teacher
    several: tuple[str, ...] = ()
    key = "policies"
    if isinstance(document, Suite):
        several = document.spec.policies
    elif isinstance(document, TrainingRecipe):
        several, key = document.spec.baselines, "baselines"
    for index, name in enumerate(several):
        yield ("spec", key, index), name
