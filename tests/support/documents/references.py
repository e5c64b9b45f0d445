"""Problems of a document's references, as its reader reports them."""

from __future__ import annotations

from contracts.documents import Document
from contracts.errors import Problem
from contracts.loading.references import reference_breaches
from contracts.loading.yaml_positions import dotted, parse


def reference_problems(document: Document, text: str, file: str) -> list[Problem]:
    """Problems of the references of ``document``, read from ``text`` in ``file``; empty if there is none."""
    written = parse(text, file)
    return [
        Problem(file, written.line_of(b.path), dotted(b.path), b.expected, b.actual, b.next_step)
        for b in reference_breaches(document, file)
    ]
