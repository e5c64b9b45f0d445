"""Rules that join several fields of a document; each breach names the path and the remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from contracts.documents import (
    Document,
    FaultDrill,
    KernelContract,
    KernelPool,
    KernelProfile,
    KernelPromotion,
    MetaContract,
    PolicyArtifact,
    RoutePolicy,
    Scenario,
    Suite,
)
from contracts.rules.breach import Breach, under
from contracts.rules.contract import contract_breaches
from contracts.rules.drill import drill_breaches
from contracts.rules.policy import artifact_breaches, meta_breaches, suite_breaches
from contracts.rules.pool import pool_breaches, profile_breaches
from contracts.rules.promotion import promotion_breaches
from contracts.rules.route import route_breaches
from contracts.rules.scenario import scenario_breaches

__all__ = ["Breach", "breaches"]


#: Rules by kind, each on the document's spec.
_RULES: dict[type[Document], Callable[[Any], Iterator[Breach]]] = {
    KernelContract: contract_breaches,
    KernelPool: pool_breaches,
    KernelProfile: profile_breaches,
    Scenario: scenario_breaches,
    MetaContract: meta_breaches,
    PolicyArtifact: artifact_breaches,
    FaultDrill: drill_breaches,
    RoutePolicy: route_breaches,
    Suite: suite_breaches,
    KernelPromotion: promotion_breaches,
}


def breaches(document: Document) -> list[Breach]:
    """All broken rules of ``document``; none for a valid one."""
    rules = _RULES.get(type(document))
    return [] if rules is None else list(under(("spec",), rules(getattr(document, "spec"))))  # noqa: B009
