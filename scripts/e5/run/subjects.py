"""Subjects of an experiment: hashes, pools, and warnings that precede any result."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from contracts.documents import KernelPool
from contracts.loading.files import sha256_of
from contracts.loading.loader import load_as
from contracts.loading.uris import resolve_uri
from policies.registry import configuration_sha256
from scripts.e5.configurations import Configuration
from scripts.e5.route import read_route
from scripts.e5.run.jobs import compiled
from scripts.e5.suite import SuiteEntry
from simulator.world.at_rest import BrokenAtRest
from simulator.world.compiled_scenario import CompiledScenario

Configurations = tuple[Configuration, ...]


def broken_at_rest(scenarios: dict[str, CompiledScenario]) -> list[dict[str, Any]]:
    """Clauses that home kernels break without a fault, and in which scenarios."""
    found: dict[BrokenAtRest, list[str]] = {}
    for name, scenario in scenarios.items():
        for broken in scenario.at_rest:
            found.setdefault(broken, []).append(name)
    return [asdict(broken) | {"text": str(broken), "scenarios": names} for broken, names in found.items()]


def observed_without_certificate(
    configurations: Configurations, entries: tuple[SuiteEntry, ...]
) -> tuple[str, ...]:
    """Why the RoutePolicy among the configurations may only observe; empty if there is none."""
    routes = [one.route for one in configurations if one.route]
    return tuple(r for uri in routes for r in read_route(uri, compiled(entries[0])).uncertified)


def pool_name(entry: SuiteEntry) -> str:
    """Name of the scenario's pool; the scenario's own if the pool is defined in it."""
    document = entry.scenario()
    if document.spec.pool_uri is None:
        return f"in {document.metadata.name}"
    return load_as(KernelPool, resolve_uri(document.spec.pool_uri, entry.file)).metadata.name


def policy_hashes(every: Configurations) -> dict[str, str]:
    """Settings and files of every configuration; of a document there is ``route_sha256``."""
    return {one.name: configuration_sha256(one.spec) for one in every if not one.route}


def uncovered(configurations: Configurations, entries: tuple[SuiteEntry, ...]) -> list[str]:
    """Why a fallback drove instead of the document's policy, on any scenario, and facts not compared."""
    routes = {one.route for one in configurations if one.route}
    worlds = [compiled(entry) for entry in entries] if routes else []
    found = [read_route(uri, world) for uri in routes for world in worlds]
    return sorted({told for route in found for told in (*route.gaps, *route.unknown)})


def route_sha256(configurations: Configurations) -> str | None:
    """Hash of the RoutePolicy among the configurations; None if there is none."""
    routes = [one.route for one in configurations if one.route]
    return sha256_of(resolve_uri(routes[0], "selvage e5")) if routes else None


def route_bound(configurations: Configurations, entries: tuple[SuiteEntry, ...]) -> dict[str, str | None]:
    """Documents that the RoutePolicy among the configurations uses but does not pin; see ``Route.bound``."""
    routes = [one.route for one in configurations if one.route]
    return read_route(routes[0], compiled(entries[0])).bound if routes else {}


def scenario_facts(entry: SuiteEntry, scenario: CompiledScenario) -> dict[str, Any]:
    """Facts that identify a scenario."""
    return {
        "name": entry.name,
        "group": entry.group,
        "description": entry.description,
        "sha256": scenario.sha256,
        "pool_sha256": scenario.pool_sha256,
        "trace_sha256": scenario.trace_sha256,
        "contract_sha256": scenario.contract.sha256,
        "profile_sha256": list(scenario.profile_sha256),
    }
