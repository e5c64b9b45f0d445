"""Loading and writing documents: YAML text to frozen models and back, and the canonical hash.

Bad input raises ``DocumentError`` and nothing else; its problems say file:line, dotted path, expected, actual
and the next step. ``load_text(dump_text(x), ...) == x``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import ValidationError

from contracts.documents import API_VERSION, KIND_NAMES, Document, kind_called
from contracts.errors import DocumentError, Problem, refusal
from contracts.loading.explain_errors import problems_from
from contracts.loading.files import canonical_text
from contracts.loading.scalars import needs_quotes
from contracts.loading.valid_part import Rules, breaches_of_valid_part
from contracts.loading.yaml_positions import PositionedYaml, decode, dotted, parse, read_past
from contracts.regular_files import open_regular
from contracts.rules import Breach, breaches

DocumentT = TypeVar("DocumentT", bound=Document)
Kinds = Sequence[type[Document]]


def read_text(path: Path | str) -> str:
    """Text of the file at ``path``; DocumentError for a folder, a missing, too large or binary file."""
    target = Path(path)
    try:
        if target.is_dir():
            raise _one(str(path), "a YAML file", "a folder", "name one file in it")
        with open_regular(target) as stream:
            return decode(stream.read(2**20), str(path))
    except OSError as error:
        reason = error.strerror or str(error)
        raise _one(str(path), "a readable file", reason, "check the path and its rights") from None


def load_document(path: Path | str) -> Document:
    """The document in the file at ``path``, of the kind that it states; DocumentError with every problem."""
    return load_text(read_text(path), str(path))


def load_as(kind: type[DocumentT], path: Path | str) -> DocumentT:
    """The document at ``path``; DocumentError unless it is a valid ``kind``."""
    document = load_document(path)
    if isinstance(document, kind):
        return document
    wanted = kind.model_fields["kind"].default
    raise _one(str(path), f"kind {wanted}", f"kind {document.kind}", f"give the path of a {wanted}")


def load_text(text: str, file: str, kinds: Kinds | None = None, also: Rules | None = None) -> Document:
    """The document in ``text``, of one of ``kinds`` (None: any kind of this project).

    file: its origin, for messages; also: further rules, for example about documents that it refers to. Raises
    DocumentError with every problem in the order of the text, breaches of rules across fields included.
    """
    written = read_past(text, file)
    try:
        model, head = _model_of(written, kinds)
    except DocumentError as error:
        raise DocumentError(_in_order(written.problems, error.problems)) from None
    known = (*written.problems, *head)
    try:
        document = model.model_validate(written.value)
    except ValidationError as error:
        broken = _broken(breaches_of_valid_part(model, written.value, also), written)
        found = [*problems_from(error, model, written), *broken]
        raise DocumentError(_in_order(known, found)) from None
    rules = [*breaches(document), *(() if also is None else also(document))]
    if known or rules:
        raise DocumentError(_in_order(known, _broken(rules, written)))
    return document


def _in_order(known: Iterable[Problem], others: Iterable[Problem]) -> list[Problem]:
    """``known`` and those of ``others`` at other paths, sorted by line and path."""
    known = list(known)
    places = {problem.path for problem in known}
    found = [*known, *(problem for problem in others if problem.path not in places)]
    return sorted(found, key=lambda problem: (problem.line, problem.path))


def _broken(found: Iterable[Breach], written: PositionedYaml) -> list[Problem]:
    """Breaches of rules as problems with their lines."""
    return [
        Problem(written.file, written.line_of(b.path), dotted(b.path), b.expected, b.actual, b.next_step)
        for b in found
    ]


def cautions(text: str, file: str) -> list[Problem]:
    """Places of a valid document that kubectl would read differently; ``dump_text`` writes none."""
    written = parse(text, file)
    return [
        Problem(
            file=file,
            line=written.line_of(path),
            path=dotted(path),
            expected="quotes",
            actual="a plain word that kubectl reads as a boolean",
            next_step="put it in quotes before applying the document to a cluster",
        )
        for path in written.ambiguous
    ]


def dump_text(document: Document) -> str:
    """``document`` as YAML that this loader and kubectl read alike; default values are written out."""
    plain = document.model_dump(mode="json", by_alias=True, exclude_none=True)
    text: str = yaml.dump(plain, Dumper=_Dumper, sort_keys=False, width=100)
    return text


def canonical_json(document: Document) -> str:
    """The canonical JSON of ``document``: sorted keys, default values written out, absent fields left out.

    The metadata has only the name, because a cluster adds the rest.
    """
    plain = document.model_dump(mode="json", by_alias=True, exclude_none=True)
    return canonical_text(plain | {"metadata": {"name": document.metadata.name}})


def document_sha256(document: Document) -> str:
    """Hex sha256 of the canonical form: the same for every spelling of the same document."""
    return hashlib.sha256(canonical_json(document).encode()).hexdigest()


def _one(file: str, expected: str, actual: str, next_step: str) -> DocumentError:
    return refusal(file, expected, actual, next_step)


def _model_of(written: PositionedYaml, kinds: Kinds | None) -> tuple[type[Document], list[Problem]]:
    """The kind that the document says it is, and what is wrong with its head besides; DocumentError for none
    of ``kinds`` (None: of ours).
    """
    value, by_kind = written.value, {kind.model_fields["kind"].default: kind for kind in kinds or ()}
    names = KIND_NAMES if kinds is None else tuple(by_kind)
    if not isinstance(value, dict):
        expected = "a mapping with apiVersion, kind, metadata and spec"
        actual = "a list" if isinstance(value, tuple) else "a single value"
        line, hint = written.line_of(()), "start the file with apiVersion: and kind:"
        raise refusal(written.file, expected, actual, hint, line=line)
    found = [
        _strange(written, key, allowed)
        for key, allowed in (("apiVersion", (API_VERSION,)), ("kind", names))
        if not isinstance(value.get(key), str) or value[key] not in allowed
    ]
    if any(problem.path == "kind" for problem in found):
        raise DocumentError(found)
    return by_kind[value["kind"]] if kinds is not None else kind_called(value["kind"]), found


def _strange(written: PositionedYaml, key: str, allowed: tuple[str, ...]) -> Problem:
    """The problem with ``key`` in the head of a document that is of no kind of this project."""
    assert isinstance(written.value, dict)  # the caller looked
    actual = repr(written.value[key])[:80] if key in written.value else "nothing"
    hint = f"write {key}: {allowed[0]}" if len(allowed) == 1 else "name one of these kinds"
    return Problem(written.file, written.line_of((key,)), key, " or ".join(allowed), actual, hint)


class _Dumper(yaml.SafeDumper):
    """Quotes every text that a reader could take for something else; never writes an alias."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - PyYAML's signature
        """Write repeated values out in full."""
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = '"' if needs_quotes(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)
