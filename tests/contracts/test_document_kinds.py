"""Kinds are found by name and imported when used, and none is forgotten."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from contracts import documents
from contracts.documents import KIND_NAMES, KINDS, Document, kind_called
from contracts.rules import _RULES, _rules_of
from tests.support.paths import ROOT

FOLDER = ROOT / "contracts" / "documents"


def test_every_kind_has_a_name_and_rules() -> None:
    """Names, models and rules are the same set, by every way of listing them."""
    found = {name for file in FOLDER.glob("*.py") for name in kinds_in(file)}
    assert set(KIND_NAMES) == found == set(_RULES)
    assert tuple(kind.__name__ for kind in KINDS) == KIND_NAMES
    assert all(kind_called(name).model_fields["kind"].default == name for name in KIND_NAMES)
    assert all(callable(_rules_of(kind)) for kind in KINDS)


def kinds_in(file: Path) -> list[str]:
    """Classes of the module that are a ``Document``."""
    tree = ast.parse(file.read_text())
    return [
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and any(isinstance(base, ast.Name) and base.id == "Document" for base in node.bases)
    ]


def test_every_public_name_exists() -> None:
    """``__all__`` is sorted and each name resolves; another one is an AttributeError."""
    assert all(getattr(documents, name) is not None for name in documents.__all__)
    with pytest.raises(AttributeError, match="no attribute 'KernelContracts'"):
        documents.KernelContracts  # noqa: B018


def test_a_kind_of_another_package_with_the_same_name_has_no_rules() -> None:
    """Rules are found by the model, not by its name."""

    class Suite(Document):
        """A kind of another package."""

    assert _rules_of(Suite) is None
