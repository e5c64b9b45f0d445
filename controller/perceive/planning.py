"""What moves are planned against: load and capacity that stand still until they are known to have changed.

A smoothed rate wobbles, and where a fleet is full every wobble would move traffic: weight goes out and comes
back for no reason. So a rate that is planned against is *held*. It gives way in two cases:

- the fast estimate (``offered_rps``) is further away than chance takes it: a surge, seen within seconds;
- the mean since the last change, over at most ``steady_s``, is: a drift, or the rest of a surge.

Chance is that of counts whose variance is ``spread`` times their mean (1: Poisson; bursts are wider), which
is learned beside. What a kernel carries is held in the same way, within shares that a fleet does not notice.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.telemetry import FleetTelemetry
from controller.options import ControllerOptions, ControllerSetup, PlanningOptions
from controller.perceive.planning_pass import Held, PlanningPace, Seen, hold
from controller.ports import PolicyState
from controller.state import ControllerState


class Estimates(NamedTuple):
    """What a tick estimates of load and capacity, of B fleets."""

    passed_s: NDArray[np.float64]  #: [B], since the tick before, > 0
    offered_rps: NDArray[np.float64]  #: [B, S], smoothed
    replica_rps: NDArray[np.float64]  #: [B, K], what one replica carries
    least_rps: NDArray[np.float64]  #: [B, K], lower limit of the same


def initial_planning(told_rps: NDArray[np.float64], slices: int) -> PolicyState:
    """Nothing offered yet; capacities float64 [B, K] as told."""
    batch, kernels = told_rps.shape
    held = Held(
        offered_rps=np.zeros((batch, slices)),
        replica_rps=told_rps.copy(),
        least_rps=told_rps.copy(),
        held_s=np.zeros((batch, slices)),
        spread=np.ones((batch, slices)),
        mean_rps=np.concatenate([np.zeros((batch, slices)), told_rps, told_rps], axis=1),
        mean_s=np.zeros((batch, slices + 2 * kernels)),
    )
    return held._asdict()


def hold_load(
    before: ControllerState, estimates: Estimates, telemetry: FleetTelemetry, setup: ControllerSetup
) -> PolicyState:
    """The loads and capacities that this tick plans against, from those ``before`` and its ``estimates``."""
    copies: dict[str, Any] = {name: array.copy() for name, array in before.planning.items()}
    held = Held(**copies)
    seen = Seen(
        offered=np.ascontiguousarray(telemetry.offered),
        before_rps=before.offered_rps,
        fast_rps=estimates.offered_rps,
        replica_rps=estimates.replica_rps,
        least_rps=estimates.least_rps,
        passed_s=estimates.passed_s,
        known_s=np.asarray(before.ticks * setup.fleet.tick_s, dtype=np.float64),
    )
    hold(tuple(held), tuple(seen), _pace(setup.options))
    return held._asdict()


@lru_cache(maxsize=64)
def _pace(options: ControllerOptions) -> tuple[float, ...]:
    """The settings as the pass reads them: a ``PlanningPace``, plain."""
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
