"""Rules that join several fields of a document; each breach names the path and the remedy."""

from __future__ import annotations

from dataclasses import dataclass

from contracts.documents import Document
from contracts.yaml_positions import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Breach:
    """One broken rule at ``path``."""

    path: Path
    expected: str
    actual: str
    next_step: str


def breaches(document: Document) -> list[Breach]:
    """All broken rules of ``document``, none for a sound one."""
    return []
