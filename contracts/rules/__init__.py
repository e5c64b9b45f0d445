"""Validation rules across fields of a document; each breach names the path and the remedy.

The rules of a kind are imported when a document of that kind is validated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from contracts.documents import KIND_NAMES, Document, kind_called
from contracts.rules.breach import Breach, prefixed

__all__ = ["Breach", "breaches"]


#: Rules by kind, each on the document's spec: module of this package and function.
_RULES = {
    "KernelContract": ("contract", "contract_breaches"),
    "KernelPool": ("pool", "pool_breaches"),
    "KernelProfile": ("profile", "profile_breaches"),
    "Scenario": ("scenario", "scenario_breaches"),
    "MetaContract": ("policy", "meta_breaches"),
    "PolicyArtifact": ("policy", "artifact_breaches"),
    "FaultDrill": ("scenario", "drill_breaches"),
    "RoutePolicy": ("policy", "route_breaches"),
    "Suite": ("policy", "suite_breaches"),
    "KernelPromotion": ("promotion", "promotion_breaches"),
}


def breaches(document: Document) -> list[Breach]:
    """All broken rules of ``document``; empty for a valid document."""
    rules = _rules_of(type(document))
    return [] if rules is None else list(prefixed(("spec",), rules(getattr(document, "spec"))))  # noqa: B009


def _rules_of(kind: type[Document]) -> Callable[[Any], Iterator[Breach]] | None:
    """Rules of ``kind``; None for a kind that another package defines."""
    if kind.__name__ not in KIND_NAMES or kind_called(kind.__name__) is not kind:
        return None
    module, name = _RULES[kind.__name__]
    found: Callable[[Any], Iterator[Breach]] = getattr(import_module(f"{__name__}.{module}"), name)
    return found
