"""Usual speed of a replica: its step times over the certified ones, observed while it was healthy.

Certified step times were measured on the machine of the profile, with no other load on it. On other machines,
or on shared ones, steps may take so much longer that a clause on the own clock would condemn every replica.
Such a replica can be compared with its own past (``ControllerSetup.own_clocks`` is ``usual``): its clock then
counts in multiples of its usual step time, and the capacity of a healthy kernel is that at its usual speed.
The clock is unknown, so neither good nor bad, until the usual step time is known, while it varies too much
between scrapes, and at loads that were never observed.

A replica that has always been slow is not detected this way; that needs step times certified on these
machines.
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
from controller.state import ControllerState, not_evidence_for_kernel

Floats = NDArray[np.float64]


class StepTimes(NamedTuple):
    """Step times as they are judged, and the memory of the usual ones."""

    ratio: Floats  # [B, R], measured over usual; NaN: unknown
    healthy: NDArray[np.bool_]  # [B, R], the replica is healthy; all False where there is no memory
    memory: PolicyState


def initial_usual(setup: ControllerSetup, batch: int) -> PolicyState:
    """Memory before the first tick; empty where clocks are not compared with their own past."""
    if setup.own_clocks != "usual" or setup.fleet.engine is None:
        return {}
    shape = batch, len(setup.layout.replicas), COLUMNS
    return {"clock": np.zeros(shape), "speed": np.zeros(shape)}


def held_step_times(state: ControllerState, telemetry: FleetTelemetry, setup: ControllerSetup) -> StepTimes:
    """Step times over the certified ones, or over the usual ones where configured, and the updated memory.

    Replicas in quarantine, replicas in alarm on any slice, and scrapes that are slow by what is known do not
    update the memory.
    """
    ratio = observed_step_times(state, telemetry, setup)
    if not state.usual:
        return StepTimes(ratio, np.zeros(state.quarantined.shape, dtype=np.bool_), state.usual)
    healthy = _healthy_replicas(state, telemetry)
    if not ratio.size:
        return StepTimes(ratio, healthy, state.usual)
    limit = float(setup.contract.threshold[clock_clauses(setup.contract)].min())
    clock, over_usual = np.array(state.usual["clock"]), np.empty_like(ratio)
    load = _tokens_per_s(telemetry)
    divide(over_usual, ratio, load, clock, limit)
    follow(clock, ratio, load, healthy)
    return StepTimes(over_usual, healthy, {**state.usual, "clock": clock})


def learn_usual(
    held: StepTimes, learned: Mapping[str, Any], fresh: NDArray[np.bool_]
) -> dict[str, PolicyState]:
    """Changes of the state: the memory, updated by the step times that capacity is ``learned`` from.

    learned: ``engine_speed`` of this tick, [B, R, 3], among others; fresh: bool [B, R], a scrape arrived.
    """
    if not held.memory:
        return {}
    speed = learned["engine_speed"]
    usual = np.array(held.memory["speed"])
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = speed[..., MEASURED_S] / speed[..., PREDICTED_S]
    follow(usual, ratio, np.ones_like(ratio), held.healthy & fresh)
    return {"usual": {**held.memory, "speed": usual}}


def usual_of_kernels(state: ControllerState, owner: NDArray[np.int64]) -> Floats:
    """float64 [B, K]: log of usual over certified step time of a kernel's median replica.

    A kernel of unknown speed gets the median of the known kernels, but is never taken as faster than
    certified: a machine that is slow for some kernels is slow for others. 0 where no kernel is known.
    """
    log_ratio = np.zeros(state.replica_rps.shape)
    if state.usual:
        of_kernels(log_ratio, state.usual["speed"], owner)
    return log_ratio


def usual_ratios(state: ControllerState) -> Floats:
    """float64 [B, R]: usual over certified step time of each replica; NaN: its clock is not judged."""
    ratios = np.full(state.quarantined.shape, np.nan)
    if state.usual:
        usual_ratio(ratios, state.usual["clock"])
    return ratios


def _tokens_per_s(telemetry: FleetTelemetry) -> Floats:
    """float64 [B, R]: tokens per second between two scrapes; unknown unless positive and finite.

    Slow servers generate no more than usual, so slowness never looks like a load that was not observed yet.
    """
    counted = telemetry.engine
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.ascontiguousarray(counted.inter_tokens / counted.span_s)


def _healthy_replicas(state: ControllerState, telemetry: FleetTelemetry) -> NDArray[np.bool_]:
    """bool [B, R]: ready, in rotation and not condemned on any slice."""
    excluded = state.replica_condemned.any(axis=(2, 3)) | not_evidence_for_kernel(state) | state.ejected
    return np.asarray((telemetry.replica_state == READY) & ~excluded)
