"""What is usual of a replica: its step times over the certified ones, as it showed them while all was well.

Certified step times are those of the machine that measured the profile, with nobody beside. Where servers run
on other machines, or share one, each takes so many times as long that a clause on its own clock would condemn
them all. Its own past is what such a server can be held against (``ControllerSetup.own_clocks`` is
``usual``): a clock counts in multiples of what it usually shows, and a kernel carries well what it carries at
its usual speed. Until that is known, where it differs too much from scrape to scrape to be told from noise,
and at loads that it has not seen, the clock is unknown, so neither bad nor good.

Who has always been slow is not found so: that needs step times certified on these machines.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.telemetry import FleetTelemetry
from controller.detect.clauses import clock_clauses
from controller.options import ControllerSetup
from controller.perceive.capacity_pass import MEASURED_S, PREDICTED_S
from controller.perceive.reception import READY
from controller.perceive.step_time import observed_step_times
from controller.perceive.usual_speed_pass import COLUMNS, divide, follow, of_kernels, usual_ratio
from controller.ports import PolicyState
from controller.state import ControllerState, speaks_for_nobody

Floats = NDArray[np.float64]


class StepTimes(NamedTuple):
    """Step times as they are judged, and what is remembered of the usual ones."""

    ratio: Floats  # [B, R], measured over usual; NaN: unknown
    teaches: NDArray[np.bool_]  # [B, R], the replica is well; nobody where nothing is remembered
    memory: PolicyState


def initial_usual(setup: ControllerSetup, batch: int) -> PolicyState:
    """Nothing known; empty where clocks are not held against their own past."""
    if setup.own_clocks != "usual" or setup.fleet.engine is None:
        return {}
    shape = batch, len(setup.layout.replicas), COLUMNS
    return {"clock": np.zeros(shape), "speed": np.zeros(shape)}


def held_step_times(state: ControllerState, telemetry: FleetTelemetry, setup: ControllerSetup) -> StepTimes:
    """Step times over the certified ones, held against what is usual where that is asked, and learned from.

    Replicas in quarantine, those in alarm on any slice and those that are slow by what is known of them teach
    nothing.
    """
    ratio = observed_step_times(state, telemetry, setup)
    if not state.usual:
        return StepTimes(ratio, np.zeros(state.quarantined.shape, dtype=np.bool_), state.usual)
    teaches = _teaches(state, telemetry)
    if not ratio.size:
        return StepTimes(ratio, teaches, state.usual)
    limit = float(setup.contract.threshold[clock_clauses(setup.contract)].min())
    clock, found = np.array(state.usual["clock"]), np.empty_like(ratio)
    load = _tokens_per_s(telemetry)
    divide(found, ratio, load, clock, limit)
    follow(clock, ratio, load, teaches)
    return StepTimes(found, teaches, {**state.usual, "clock": clock})


def learn_usual(
    held: StepTimes, learned: Mapping[str, Any], fresh: NDArray[np.bool_]
) -> dict[str, PolicyState]:
    """What of the state changes: the memory with how long steps took by what capacity is ``learned`` from.

    learned: the ``engine_speed`` of now, [B, R, 3], among others; fresh: bool [B, R], a scrape arrived.
    """
    if not held.memory:
        return {}
    speed = learned["engine_speed"]
    usual = np.array(held.memory["speed"])
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = speed[..., MEASURED_S] / speed[..., PREDICTED_S]
    follow(usual, ratio, np.ones_like(ratio), held.teaches & fresh)
    return {"usual": {**held.memory, "speed": usual}}


def usual_of_kernels(state: ControllerState, owner: NDArray[np.int64]) -> Floats:
    """float64 [B, K]: log of usual over certified step time of a kernel's middle replica.

    A kernel that has not told is taken to be as slow as the middle one of those that have, and never faster
    than certified: one machine that is slow for some is slow for others. 0 where nobody has told.
    """
    found = np.zeros(state.replica_rps.shape)
    if state.usual:
        of_kernels(found, state.usual["speed"], owner)
    return found


def usual_ratios(state: ControllerState) -> Floats:
    """float64 [B, R]: usual over certified step time of each replica; NaN: its clock is not judged."""
    found = np.full(state.quarantined.shape, np.nan)
    if state.usual:
        usual_ratio(found, state.usual["clock"])
    return found


def _tokens_per_s(telemetry: FleetTelemetry) -> Floats:
    """float64 [B, R]: tokens between two scrapes; not positive and finite: unknown. Slow servers give no more
    than usual, so a load that nobody has seen yet is no slowness.
    """
    counted = telemetry.engine
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.ascontiguousarray(counted.inter_tokens / counted.span_s)


def _teaches(state: ControllerState, telemetry: FleetTelemetry) -> NDArray[np.bool_]:
    ill = state.replica_condemned.any(axis=(2, 3)) | speaks_for_nobody(state) | state.ejected
    return np.asarray((telemetry.replica_state == READY) & ~ill)
