"""Load and capacity for planning: held constant until they have changed significantly.

A smoothed rate fluctuates. In a full fleet every fluctuation would move traffic out and back without need. So
the rate used for planning is *held*. It is replaced in two cases:

- the fast estimate (``offered_rps``) differs by more than chance explains: a surge, detected within seconds;
- the mean since the last change, over at most ``steady_s``, does: a drift, or the rest of a surge.

It is also replaced by a mean over four times the time that is behind it, up to the time in which the rate is
known to a twentieth. Where few requests come that takes longer than ``steady_s``, and a rate that a burst
made too high would be held for ever: it is off by less than chance explains in so short a time.

Chance is modelled by counts whose variance is ``spread`` times their mean (1: Poisson; more for bursts). The
spread is estimated along with the rate. Capacities are held in the same way, within relative bands that are
too small to matter for a fleet.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.telemetry import FleetTelemetry
from controller.options import ControllerOptions, ControllerSetup, PlanningOptions
from controller.perceive.planning_pass import Held, LoadObservation, PlanningPace, hold
from controller.ports import PolicyState
from controller.state import ControllerState


class Estimates(NamedTuple):
    """Estimates of load and capacity in one tick, of B fleets."""

    passed_s: NDArray[np.float64]  #: [B], since the last tick, > 0
    offered_rps: NDArray[np.float64]  #: [B, S], smoothed
    replica_rps: NDArray[np.float64]  #: [B, K], capacity of one replica
    least_rps: NDArray[np.float64]  #: [B, K], lower limit of that capacity


def initial_planning(declared_rps: NDArray[np.float64], slices: int) -> PolicyState:
    """Before the first tick: nothing is offered, and capacities are ``declared_rps``, float64 [B, K]."""
    batch, kernels = declared_rps.shape
    held = Held(
        offered_rps=np.zeros((batch, slices)),
        replica_rps=declared_rps.copy(),
        least_rps=declared_rps.copy(),
        held_s=np.zeros((batch, slices)),
        spread=np.ones((batch, slices)),
        mean_rps=np.concatenate([np.zeros((batch, slices)), declared_rps, declared_rps], axis=1),
        mean_s=np.zeros((batch, slices + 2 * kernels)),
        long_rps=np.zeros((batch, slices)),
        long_s=np.zeros((batch, slices)),
    )
    return held._asdict()


def hold_load(
    before: ControllerState, estimates: Estimates, telemetry: FleetTelemetry, setup: ControllerSetup
) -> PolicyState:
    """Held loads and capacities of this tick, from those ``before`` and its ``estimates``."""
    copies: dict[str, Any] = {name: array.copy() for name, array in before.planning.items()}
    held = Held(**copies)
    observed = LoadObservation(
        offered=np.ascontiguousarray(telemetry.offered),
        before_rps=before.offered_rps,
        fast_rps=estimates.offered_rps,
        replica_rps=estimates.replica_rps,
        least_rps=estimates.least_rps,
        passed_s=estimates.passed_s,
        known_s=np.asarray(before.ticks * setup.fleet.tick_s, dtype=np.float64),
    )
    hold(tuple(held), tuple(observed), _pace(setup.options))
    return held._asdict()


@lru_cache(maxsize=64)
def _pace(options: ControllerOptions) -> tuple[float, ...]:
    """The settings as the compiled pass reads them: a ``PlanningPace`` as a plain tuple."""
    planning: PlanningOptions = options.planning
    pace = PlanningPace(
        smoothing_s=options.smoothing_s,
        steady_s=planning.steady_s,
        spread_s=planning.spread_s,
        surge_sigmas=planning.surge_sigmas,
        drift_sigmas=planning.drift_sigmas,
        worse_sigmas=planning.worse_sigmas,
    )
    return tuple(pace)
