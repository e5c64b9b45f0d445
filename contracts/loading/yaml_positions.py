"""YAML text to plain values with the line of every node; hostile constructs are refused by name.

Works on the event stream, so that an alias bomb is never expanded and depth is checked before anything
is built. Refused: aliases and anchors, tags, duplicate keys, keys that are not text, several documents,
NaN and infinity, more than ``MAX_BYTES`` bytes, more than ``MAX_DEPTH`` levels, invalid UTF-8.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import yaml
from yaml.reader import Reader, ReaderError

from contracts.errors import DocumentError, KeyPath, Problem, refusal
from contracts.loading.scalars import AMBIGUOUS_WORDS, read_scalar
from contracts.regular_files import text_of

MAX_BYTES = 256 * 1024
MAX_DEPTH = 24

# libyaml where PyYAML was built with it: 20 times faster on a long profile, same events.
_NOT_YAML = Reader.NON_PRINTABLE
_Loader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionedYaml:
    """A parsed text."""

    file: str
    value: object  # mappings as dicts, sequences as tuples
    lines: dict[KeyPath, int]  # where each path starts, from 1
    ambiguous: tuple[KeyPath, ...]  # plain words such as N or on: text here, a boolean to kubectl
    problems: tuple[Problem, ...] = ()  # what is refused and could be read past

    def line_of(self, path: KeyPath) -> int:
        """Line of ``path``, or of its nearest ancestor that was written down."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def dotted(path: KeyPath) -> str:
    """``("spec", "clauses", 2, "id")`` as ``spec.clauses[2].id``."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def decode(raw: bytes, file: str) -> str:
    """``raw`` as text; refuses what is too large or not UTF-8."""
    if len(raw) > MAX_BYTES:
        raise DocumentError([_too_large(file, "more")])
    return text_of(raw, file, "is this the right file? save it as UTF-8")


def parse(text: str, file: str) -> PositionedYaml:
    """The one document in ``text``; raises ``DocumentError`` for anything else."""
    found = read_past(text, file)
    if found.problems:
        raise DocumentError(list(found.problems))
    return found


def read_past(text: str, file: str) -> PositionedYaml:
    """As ``parse``, but errors that leave the rest readable are collected in ``problems``.

    The first of duplicate keys counts, anchors and tags are ignored, and a number that is not finite is None.
    The caller has to refuse the document if there are problems.
    """
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError:
        raise refusal(file, "Unicode text", "a lone surrogate", "save the file as UTF-8", line=1) from None
    if size > MAX_BYTES:
        raise DocumentError([_too_large(file, f"{size} bytes")])
    try:
        return _Builder(text, file).document()
    except yaml.YAMLError as error:
        raise DocumentError([_syntax_problem(error, text, file)]) from None


def _too_large(file: str, found: str) -> Problem:
    hint = "move samples into a file of their own and refer to it by URI and sha256"
    return Problem(file, 0, "", f"at most {MAX_BYTES} bytes", found, hint)


def _syntax_problem(error: yaml.YAMLError, text: str, file: str) -> Problem:
    if isinstance(error, ReaderError):
        return _strange_character(text, file)
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    found = getattr(error, "problem", None) or getattr(error, "reason", None) or "unreadable text"
    line = mark.line + 1 if mark is not None else 1
    hint = "check indentation, quotes and brackets here"
    # YAML counts more kinds of line ends than "\n": a later line may not exist.
    row = "".join(text.split("\n")[line - 1 : line])
    if mark is not None and row.startswith("\t", mark.column):
        found, hint = "a tab where a key or value begins", "indent by spaces"
    return Problem(file, line, "", "YAML", str(found), hint)


def _strange_character(text: str, file: str) -> Problem:
    """The first character that YAML has not; its readers say the place in units of their own."""
    found = _NOT_YAML.search(text)
    line = text.count("\n", 0, found.start()) + 1 if found else 1
    message = f"the control character {found.group()!r}" if found else "unreadable text"
    return Problem(file, line, "", "YAML", message, "remove it, or save the file as plain text once more")


def _line(event: yaml.Event) -> int:
    mark = event.start_mark
    return 1 if mark is None else mark.line + 1


class _Builder:
    """Turns one text's events into values. One use only."""

    def __init__(self, text: str, file: str) -> None:
        self._events: Iterator[yaml.Event] = iter(yaml.parse(text, Loader=_Loader))
        self._file = file
        self._lines: dict[KeyPath, int] = {}
        self._ambiguous: list[KeyPath] = []
        self._problems: list[Problem] = []

    def document(self) -> PositionedYaml:
        """The value of the only document."""
        next(self._events)  # stream start
        first = next(self._events)
        if isinstance(first, yaml.StreamEndEvent):
            raise self._refuse(first, (), "one YAML document", "an empty file", "write apiVersion, kind, ...")
        value = self._node(next(self._events), ())
        next(self._events)  # document end
        after = next(self._events)
        if not isinstance(after, yaml.StreamEndEvent):
            raise self._refuse(after, (), "one document", "a second document", "split the file at ---")
        return PositionedYaml(
            file=self._file,
            value=value,
            lines=self._lines,
            ambiguous=tuple(self._ambiguous),
            problems=tuple(self._problems),
        )

    def _node(self, event: yaml.Event, path: KeyPath) -> object:
        self._check(event, path)
        self._lines.setdefault(path, _line(event))
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(path)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(path)
        assert isinstance(event, yaml.ScalarEvent)
        return self._scalar(event, path)

    def _check(self, event: yaml.Event, path: KeyPath) -> None:
        anchor, tag = getattr(event, "anchor", None), getattr(event, "tag", None)
        if isinstance(event, yaml.AliasEvent):
            hint = "write the value out in full"
            raise self._refuse(event, path, "a plain value", f"the alias *{anchor}", hint)
        if anchor is not None:
            self._read_past(event, path, "no anchors", f"the anchor &{anchor}", "remove it")
        if tag is not None:
            self._read_past(event, path, "no tags", f"the tag {tag}", "remove it; quote text")
        if len(path) > MAX_DEPTH:
            hint = "flatten the document"
            raise self._refuse(event, path, f"at most {MAX_DEPTH} levels", "deeper nesting", hint)

    def _mapping(self, path: KeyPath) -> dict[str, object]:
        found: dict[str, object] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            self._check(event, path)
            if not isinstance(event, yaml.ScalarEvent):
                raise self._refuse(event, path, "a text key", "a mapping or list as key", "use a name")
            key = event.value
            here = (*path, key)
            if key in found:
                actual = f"a second {key!r} (first on line {self._lines[here]})"
                self._read_past(event, here, "each key once", actual, "remove one of the two")
            self._lines.setdefault(here, _line(event))
            found.setdefault(key, self._node(next(self._events), here))
        return found

    def _sequence(self, path: KeyPath) -> tuple[object, ...]:
        found: list[object] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            found.append(self._node(event, (*path, len(found))))
        return tuple(found)

    def _scalar(self, event: yaml.ScalarEvent, path: KeyPath) -> object:
        if not event.style and event.value in AMBIGUOUS_WORDS:
            self._ambiguous.append(path)
        value = read_scalar(event.value) if not event.style else event.value
        if isinstance(value, float) and not math.isfinite(value):
            hint = "write a number, or leave it out"
            self._read_past(event, path, "a finite number", event.value, hint)
            return None
        return value

    def _read_past(
        self, event: yaml.Event, path: KeyPath, expected: str, actual: str, next_step: str
    ) -> None:
        self._problems.append(self._problem(event, path, expected, actual, next_step))

    def _refuse(
        self, event: yaml.Event, path: KeyPath, expected: str, actual: str, next_step: str
    ) -> DocumentError:
        return DocumentError([*self._problems, self._problem(event, path, expected, actual, next_step)])

    def _problem(
        self, event: yaml.Event, path: KeyPath, expected: str, actual: str, next_step: str
    ) -> Problem:
        return Problem(self._file, _line(event), dotted(path), expected, actual, next_step)
