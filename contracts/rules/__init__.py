"""Rules that join several fields of a document; each breach names the path and the remedy."""

from __future__ import annotations

from collections.abc import Iterator

from contracts.documents import (
    Document,
    FaultDrill,
    KernelContract,
    KernelPool,
    KernelProfile,
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
from contracts.rules.route import route_breaches
from contracts.rules.scenario import scenario_breaches

__all__ = ["Breach", "breaches"]


def breaches(document: Document) -> list[Breach]:
    """All broken rules of ``document``; none for a valid one."""
    return list(under(("spec",), _of_spec(document)))


def _of_spec(document: Document) -> Iterator[Breach]:
    match document:
        case KernelContract(spec=spec):
            yield from contract_breaches(spec)
        case KernelPool(spec=spec):
            yield from pool_breaches(spec)
        case KernelProfile(spec=spec):
            yield from profile_breaches(spec)
        case Scenario(spec=spec):
            yield from scenario_breaches(spec)
        case MetaContract(spec=spec):
            yield from meta_breaches(spec)
        case PolicyArtifact(spec=spec):
            yield from artifact_breaches(spec)
        case FaultDrill(spec=spec):
            yield from drill_breaches(spec)
        case RoutePolicy(spec=spec):
            yield from route_breaches(spec)
        case Suite(spec=spec):
            yield from suite_breaches(spec)
        case _:
            pass
