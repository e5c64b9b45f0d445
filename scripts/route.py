"""A ``RoutePolicy`` document on the command line: load it for a scenario, and drive a fleet as it says."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contracts.documents import KernelPool, RoutePolicy, Scenario
from contracts.errors import DocumentError, Problem
from contracts.loader import load_as
from contracts.telemetry import FleetTelemetry
from contracts.uris import resolve_uri
from controller.ports import RoutingPlan
from controller.setup import ControllerSetup
from policies.route import route_setup
from simulator.drive import ControllerDriver
from simulator.world import CompiledScenario


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A document and the set-up that it asks for."""

    document: RoutePolicy
    setup: ControllerSetup

    @property
    def observes(self) -> bool:
        """Whether decisions are taken and not carried out."""
        return self.document.spec.mode == "observe"


def load_route(uri: str, scenario_uri: str, scenario: CompiledScenario) -> Route:
    """The RoutePolicy ``uri`` for ``scenario``, which was compiled from the document ``scenario_uri``.

    Raises DocumentError where it is none, or names another pool, contract or tick than the scenario's.
    """
    file = resolve_uri(uri, "selvage")
    document = load_as(RoutePolicy, file)
    pool = _pool_name(scenario_uri)
    if pool is not None and pool != document.spec.pool:
        next_step = "name the pool that the scenario runs"
        raise DocumentError([Problem(str(file), 0, "spec.pool", pool, document.spec.pool, next_step)])
    return Route(document=document, setup=route_setup(document, str(file), scenario.setup))


def _pool_name(scenario_uri: str) -> str | None:
    """Name of the scenario's pool; None where the pool stands in the scenario itself, without a name."""
    file = resolve_uri(scenario_uri, "selvage")
    uri = load_as(Scenario, file).spec.pool_uri
    return None if uri is None else load_as(KernelPool, resolve_uri(uri, file)).metadata.name


class ObservingDriver(ControllerDriver):
    """Decides as a controller does, and carries nothing out: the first plan stays in force.

    Like a demoted policy it goes on as if its decisions were executed.
    """

    def begin(self, batch: int) -> RoutingPlan:
        """The plan that stays in force."""
        self._first = super().begin(batch)
        return self._first

    def step(self, telemetry: FleetTelemetry) -> RoutingPlan:
        """One control tick, watched and logged; the first plan again."""
        super().step(telemetry)
        return self._first

    @property
    def capacity_move(self) -> NDArray[np.bool_]:
        """Bool [B]: nothing moves."""
        return np.zeros_like(super().capacity_move)
