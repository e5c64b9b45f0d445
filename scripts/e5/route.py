"""A ``RoutePolicy`` document on the command line: load it for a scenario, and drive a fleet under it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from contracts.documents import KernelPool, RoutePolicy, Scenario
from contracts.errors import refusal
from contracts.loading.loader import load_as
from contracts.loading.uris import resolve_uri
from contracts.scoring.episode import EpisodeRecord
from contracts.telemetry import FleetTelemetry
from controller.decision import Decision
from controller.options import ControllerSetup
from controller.ports import RoutingPlan
from controller.state import ControllerState
from policies.route import CoverageGaps, bound_sha256, coverage_gaps, route_setup, uncertified
from simulator.drive import ControllerDriver
from simulator.world.compiled_scenario import CompiledScenario
from simulator.world.traffic import declared_load_ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteSetup:
    """A RoutePolicy document and its controller set-up.

    uncertified: why it cannot be enforced; it can still be observed.
    """

    document: RoutePolicy
    setup: ControllerSetup
    uncertified: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()
    """Why a fallback drives instead; empty if the certificates cover this fleet."""
    unknown: tuple[str, ...] = ()
    """Facts that were not compared with the certificates."""

    bound: dict[str, str | None] = field(default_factory=dict)
    """Hashes of documents that it refers to without pinning them: its meta-contract, the certificate of the
    meta-contract's baseline (None: there is none)."""

    @property
    def observes(self) -> bool:
        """Whether decisions are taken and not carried out."""
        return self.document.spec.mode == "observe"

    def driver(
        self,
        name: str = "",
        watch: Callable[[Decision], None] | None = None,
        log: Callable[[ControllerState, ControllerState, Decision], None] | None = None,
    ) -> ControllerDriver:
        """The driver in the document's mode; arguments as those of ``ControllerDriver``."""
        kind = ObservingDriver if self.observes else ControllerDriver
        return kind(self.setup, name=name, watch=watch, log=log)


def load_route(uri: str, scenario_uri: str, scenario: CompiledScenario) -> RouteSetup:
    """The RoutePolicy ``uri`` for ``scenario``, which was compiled from the document ``scenario_uri``.

    Raises DocumentError if it is not valid, or names another pool, contract or tick than the scenario's.
    """
    file = resolve_uri(scenario_uri, "selvage")
    route = read_route(uri, scenario)
    refuse_other_pool(route.document, uri, load_as(Scenario, file), str(file))
    return route


def read_route(uri: str, scenario: CompiledScenario) -> RouteSetup:
    """``load_route`` for a scenario whose pool is known to be the document's."""
    file = resolve_uri(uri, "selvage")
    document = load_as(RoutePolicy, file)
    fleet, load_ratio = scenario.setup, declared_load_ratio(scenario)
    setup = route_setup(document, str(file), fleet, load_ratio)
    enforced = document.spec.mode == "enforce"
    found = coverage_gaps(document, str(file), fleet, load_ratio) if enforced else CoverageGaps()
    return RouteSetup(
        document=document,
        setup=setup,
        uncertified=uncertified(document, str(file)),
        gaps=found.lines(document),
        unknown=found.unknown,
        bound=bound_sha256(document, str(file)),
    )


def refuse_other_pool(document: RoutePolicy, uri: str, scenario: Scenario, scenario_file: str) -> None:
    """DocumentError if the RoutePolicy ``document`` at ``uri`` names another pool than ``scenario`` runs.

    A pool defined in the scenario itself has no name, and fits.
    """
    named = scenario.spec.pool_uri
    pool = None if named is None else load_as(KernelPool, resolve_uri(named, scenario_file)).metadata.name
    if pool is not None and pool != document.spec.pool:
        next_step = "name the pool that the scenario runs"
        raise refusal(uri, pool, document.spec.pool, next_step, path="spec.pool")


class ObservingDriver(ControllerDriver):
    """Decides as a controller does, and executes nothing: the first plan stays in force.

    Like a demoted policy it continues as if its decisions were executed.
    """

    def begin(self, batch: int) -> RoutingPlan:
        """The first plan, which stays in force."""
        self._first = super().begin(batch)
        self._decided = [_copied(self._first)]
        return self._first

    def step(self, telemetry: FleetTelemetry) -> RoutingPlan:
        """One control tick, watched and logged; the first plan again."""
        self._decided.append(_copied(super().step(telemetry)))
        return self._first

    @property
    def capacity_move(self) -> NDArray[np.bool_]:
        """Bool [B]: nothing moves."""
        return np.zeros_like(super().capacity_move)

    def decided(self, record: EpisodeRecord, fleet: int) -> EpisodeRecord:
        """``record`` of ``fleet`` with the decided tables and rotations instead of those in force.

        The fate of requests is unchanged, so only facts about decisions may be read from it: their time, and
        the kernels that they took traffic from.
        """
        rows = self._decided[: len(record.table)]
        table = np.stack([plan.table[fleet] for plan in rows]).astype(record.table.dtype)
        rotation = np.stack([plan.in_rotation[fleet] for plan in rows])
        return replace(record, table=table, in_rotation=record.in_rotation & rotation)


def _copied(plan: RoutingPlan) -> RoutingPlan:
    """``plan`` with copied arrays: the controller continues to write into its own."""
    return RoutingPlan(
        table=plan.table.copy(), in_rotation=plan.in_rotation.copy(), version=plan.version.copy()
    )
