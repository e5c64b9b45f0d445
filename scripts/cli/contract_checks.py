"""What ``selvage contract validate`` finds out about one file; it says nothing and writes nothing."""

from __future__ import annotations

from dataclasses import dataclass

from contracts.documents import KINDS, Document, Scenario, Suite
from contracts.errors import DocumentError, Problem
from contracts.loading.loader import cautions, load_as, load_text, read_text
from contracts.loading.notes import Note, notes
from contracts.loading.references import reference_problems
from contracts.loading.uris import resolve_uri


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What came of one file; ``document`` is None where it was refused."""

    file: str
    document: Document | None
    problems: tuple[Problem, ...]
    cautions: tuple[Problem, ...]
    notes: tuple[Note, ...]
    broken_at_rest: tuple[str, ...] = ()


def check(file: str, *, references: bool = True) -> Checked:
    """Load ``file`` (a path or a ``package:`` name) and keep what there is to say about it."""
    try:
        text = read_text(resolve_uri(file, "selvage"))
        document = load_text(text, file, every_kind())
        broken = [*reference_problems(document, text, file), *_unread(document, file)] if references else []
        if broken:
            raise DocumentError(broken)
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
    """What home kernels of a scenario, or of a suite's scenarios, break with nothing injected."""
    place = resolve_uri(file, "selvage")
    if isinstance(document, Scenario):
        return _told(document, str(place))
    if not isinstance(document, Suite):
        return []
    spec = document.spec
    bases = dict.fromkeys(row.uri or row.base or spec.base for row in spec.scenarios)
    files = [resolve_uri(uri, place) for uri in bases if uri is not None]
    told = [line for each in files for line in _told(load_as(Scenario, each), str(each))]
    return list(dict.fromkeys(told))


def _told(scenario: Scenario, file: str) -> list[str]:
    """One line for each clause; nothing of a fleet that cannot be put together, which running it tells."""
    from simulator.world.at_rest import CONSEQUENCE, broken_at_rest

    try:
        return [f"{each}; {CONSEQUENCE}" for each in broken_at_rest(scenario.spec, file)]
    except DocumentError:
        return []


def every_kind() -> tuple[type[Document], ...]:
    """Every kind that a file may hold: those of a cluster, and recipes of training runs."""
    from policies.train.recipe import TrainingRecipe

    return (*KINDS, TrainingRecipe)


def _unread(document: Document, file: str) -> list[Problem]:
    """Scenarios that a recipe trains on and that cannot be loaded."""
    from policies.train.recipe import TrainingRecipe

    found: list[Problem] = []
    for uri in document.spec.episodes.scenarios if isinstance(document, TrainingRecipe) else ():
        try:
            load_as(Scenario, resolve_uri(uri, resolve_uri(file, "selvage")))
        except DocumentError as error:
            found += error.problems
    return found
