"""Every exception that Selvage raises on purpose, in one tree.

::

    SelvageError
    ├── DocumentError        a YAML document, sample file or trace is not usable (exit code 2)
    ├── MissingPartError     an optional part (vLLM, torch, Envoy) is not installed (exit code 2)
    ├── MeasurementError     a measurement ran but cannot be trusted (canary, identity, restore; exit code 2)
    ├── LostWorkerError      a process of ours was killed (exit code 2)
    ├── PluginError          an entry point cannot be loaded, or does not bring what it names (exit code 2)
    └── StateError           stored controller state does not fit this version or layout

Messages say where, what was expected, what was found, and the next step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

#: Keys and list places that lead from the top of a document to a value.
KeyPath = tuple[str | int, ...]


def printable(text: str) -> str:
    """``text`` with every character that could steer a terminal written as its escape."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


class SelvageError(Exception):
    """Root of all errors that Selvage raises on purpose.

    judgement: True for errors that are a negative verdict rather than a fault of the input (exit code 1, not
    2).
    """

    judgement: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a document."""

    file: str
    line: int  # from 1; 0: the file as a whole
    path: str  # dotted, "" for the whole
    expected: str
    actual: str
    next_step: str  # what to do about it

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        dotted = f" {self.path}" if self.path else ""
        return printable(f"{place}{dotted}: expected {self.expected}, got {self.actual}; {self.next_step}")


class DocumentError(SelvageError):
    """A document was refused; ``problems`` lists each reason."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in problems))


def refusal(
    place: object, expected: str, actual: str, next_step: str, *, path: str = "", line: int = 0
) -> DocumentError:
    """A ``DocumentError`` with one problem.

    place: the file, or in its stead a command, an option or a server; path: dotted path within the document;
    line: from 1, 0 for the file as a whole.
    """
    return DocumentError([Problem(str(place), line, path, expected, actual, next_step)])


class MissingPartError(SelvageError):
    """An optional part is not installed; the message names the command that provides it."""


class MeasurementError(SelvageError):
    """A measurement ran, but its own checks failed, so its result cannot be trusted."""


class BrokenAnswerError(MeasurementError):
    """A server answered a measurement with an error, or with values that no healthy server gives."""


class LostWorkerError(SelvageError):
    """A process that shared the work was killed from outside, most likely for memory."""


class PluginError(SelvageError):
    """A plug-in is broken; the message names its entry point and distribution."""


class StateError(SelvageError):
    """Serialised state does not match the running version or fleet layout."""
