"""What is wrong with what a document refers to, as its reader says it."""

from __future__ import annotations

from contracts.documents import Document
from contracts.errors import Problem
from contracts.loading.references import reference_breaches
from contracts.loading.yaml_positions import dotted, parse


def reference_problems(document: Document, text: str, file: str) -> list[Problem]:
    """Problems with what ``document``, read from ``text`` in ``file``, refers to; none if all is well."""
    written = parse(text, file)
    return [
        Problem(file, written.line_of(b.path), dotted(b.path), b.expected, b.actual, b.next_step)
        for b in reference_breaches(document, file)
    ]
