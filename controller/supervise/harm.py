"""Harm of a policy, online: a lower limit of what the home table would have served, less what was served.

The counterfactual cannot be observed, but it is bounded from below. For every slice with a certified home
kernel that breaks no hard clause, the bound is the share of its traffic that this kernel carries by the lower
limit of its estimated capacity, less the late answers that the contract tolerates. It is compared with the
actual result of the same block of time: answers in time from cells that break no hard clause, over all
requests that ended or were shed. The reading is the lower confidence limit of the mean difference over the
newest blocks in which a row was away from home. While every row is at home, there is no harm.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import CompiledContract
from contracts.scoring.switch_law import SWITCH_DISTANCE, half_l1
from contracts.telemetry import Source
from controller.cells import some_in
from controller.fleet import FleetSetup
from controller.options import ControllerSetup
from controller.ports import Observation, PolicyState
from controller.state import ControllerState
from controller.supervise.own_moves_records import Block

#: Blocks in the exponentially weighted mean: two minutes.
BLOCKS = 24.0
#: Least blocks for a reading.
LEAST_BLOCKS = 12.0
#: Quantile of Student's t at 23 degrees of freedom: one test in ten thousand is wrong.
QUANTILE = 4.4
#: Tolerated share of late answers without a clause on latencies.
_USUAL_LIMIT = 0.05
_LEAST_RPS = 1e-9


@lru_cache(maxsize=64)
def tolerated_late(contract: CompiledContract) -> NDArray[np.float64]:
    """float64 [S]: share of a slice's answers that may come late by the strictest clause on latencies."""
    timed = contract.source == Source.LATENCY
    limits = np.where(contract.applies[timed], contract.rate_limit[timed][:, None], np.inf)
    strictest = limits.min(axis=0, initial=np.inf)
    return np.where(np.isfinite(strictest), strictest, _USUAL_LIMIT)


def useful_loss(missing: NDArray[np.float64]) -> NDArray[np.float64]:
    """float64 [B]: lower limit of the share lost compared with the home table; 0 without evidence.

    missing: float64 [B, 3], as ``count_harm`` counts it.
    """
    n, total, squares = missing.T
    mean = total / np.maximum(n, 1.0)
    spread = np.sqrt(np.maximum(squares / np.maximum(n, 1.0) - mean * mean, 0.0))
    low = mean - QUANTILE * spread / np.sqrt(np.maximum(n, 1.0))
    return np.asarray(np.where(n >= LEAST_BLOCKS, np.maximum(low, 0.0), 0.0))


def count_harm(
    memory: PolicyState,
    block: Block,
    after: ControllerState,
    observation: Observation,
    setup: ControllerSetup,
) -> PolicyState:
    """The supervisor's memory with the block that ended, where one did.

    after: state with the table that was in force in the block, and with the learned capacities.
    """
    if setup.meta is None or not some_in(block.closed):
        return memory
    home = home_table(setup.fleet, len(observation.now_s))
    away = (half_l1(after.table, home) > SWITCH_DISTANCE).any(axis=1) & block.closed
    missing = _surely_served(after, observation, setup) - _served(block, after, observation)
    known = away & np.isfinite(missing)
    missing = np.where(known, missing, 0.0)
    # A block without ended requests is no evidence and replaces no other block.
    shows = block.closed & (known | ~away)
    kept = np.where(shows, 1.0 - 1.0 / BLOCKS, 1.0)[:, None]
    newest = np.stack([known.astype(np.float64), missing, missing * missing], axis=1)
    return {**memory, "missing": kept * np.asarray(memory["missing"], dtype=np.float64) + newest}


def home_table(fleet: FleetSetup, batch: int) -> NDArray[np.float64]:
    """float64 [B, S, K + 1], every slice entirely at home."""
    kernels, slices, _ = fleet.layout.shape
    table = np.zeros((batch, slices, kernels + 1))
    table[:, np.arange(slices), fleet.home] = 1.0
    return table


def _surely_served(
    after: ControllerState, observation: Observation, setup: ControllerSetup
) -> NDArray[np.float64]:
    """float64 [B]: lower limit of the share that the home table would serve in time on compliant cells."""
    home, slices = setup.fleet.home, np.arange(len(setup.fleet.home))
    offered_rps = after.offered_rps
    kernels = len(setup.layout.kernels)
    load_rps = np.stack([offered_rps[:, home == k].sum(axis=1) for k in range(kernels)], axis=1)
    carried = np.minimum(1.0, observation.ready * after.least_rps / np.maximum(load_rps, _LEAST_RPS))
    eligible = (observation.certified & ~observation.hard_violated)[:, home, slices]
    each = eligible * carried[:, home] * (1.0 - tolerated_late(setup.contract))
    return np.asarray((offered_rps * each).sum(axis=1) / np.maximum(offered_rps.sum(axis=1), _LEAST_RPS))


def _served(block: Block, after: ControllerState, observation: Observation) -> NDArray[np.float64]:
    """float64 [B]: share of ended or shed requests that compliant cells answered in time; NaN: no request."""
    good = (block.ended - block.bad) * ~observation.hard_violated.transpose(0, 2, 1)
    shed = (after.table[:, :, -1] * after.offered_rps).sum(axis=1) * block.lasted_s
    all_ended = block.ended.sum(axis=(1, 2)) + shed
    return np.where(all_ended > 0.0, good.sum(axis=(1, 2)) / np.maximum(all_ended, _LEAST_RPS), np.nan)
