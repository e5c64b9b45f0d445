"""Reward and cost of a tick from telemetry alone, for decision logs without ground truth.

The formula of ``contracts.scoring.reward``, with measured values in place of the true ones. With W the table
in force, f_k the failed share of kernel k's attempts, l_ks the share of answers over the strictest latency
clause, d_ks the mean total variation of the probes judged last, and q_s the slice's share of the offered
requests:

    reward = sum_s q_s sum_k W_sk (1 - f_k)(1 - l_ks)(1 - d_ks) - w_move * moved      in [-w_move, 1]
    cost_c = sum_sk n_s W_sk (exceed_cks - rho_c), n_s requests offered in the tick

``cost`` is the largest over the soft clauses. An unmeasured clause counts as kept. Both lag behind the
truth by the age of the evidence, and d_ks also counts the drift of a healthy kernel.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import CompiledContract
from contracts.scoring.reward import RewardWeights, soft_clauses
from contracts.scoring.switch_law import half_l1
from contracts.telemetry import Source
from controller.decision import Decision
from controller.detect.sums import COUNT, OVER, TOTAL
from controller.options import ControllerSetup

Floats = NDArray[np.float64]

#: As in the environment.
MOVE_WEIGHT = RewardWeights().move
#: Probe metric that measures quality, by any estimator.
_QUALITY_METRIC = "tv_mean"


def observed_reward(acted: Decision, seen: Decision, setup: ControllerSetup) -> Floats:
    """Reward float64 [B] of the table of ``acted``, from the telemetry of ``seen``, one tick later."""
    weight, arrived = acted.table[:, :, :-1], seen.observation
    kept = 1.0 - _failed(seen)[:, None, :]
    kept = kept * (1.0 - _late(seen, setup.contract)) * (1.0 - _drift(seen, setup))
    offered = arrived.offered_rps
    share = offered / np.maximum(offered.sum(axis=1, keepdims=True), 1e-9)
    moved = half_l1(acted.table, acted.observation.table).mean(axis=1)
    return np.asarray((share[:, :, None] * weight * kept).sum(axis=(1, 2)) - MOVE_WEIGHT * moved)


def observed_cost(acted: Decision, seen: Decision, setup: ControllerSetup) -> Floats:
    """Cost float64 [B]: the largest over soft clauses of excess requests over the budget."""
    contract = setup.contract
    soft = soft_clauses(contract)
    if not bool(soft.any()):
        return np.zeros(len(seen.held))
    requests = seen.observation.offered_rps[:, :, None] * setup.fleet.tick_s * acted.table[:, :, :-1]
    beyond = exceeding(seen, contract).transpose(0, 2, 1, 3) - contract.budget
    costs = (requests[..., None] * np.where(contract.applies.T[None, :, None, :], beyond, 0.0)).sum(
        axis=(1, 2)
    )
    return np.asarray(costs[:, soft].max(axis=1))


def exceeding(seen: Decision, contract: CompiledContract) -> Floats:
    """Share of observations beyond each clause, float64 [B, K, S, C]; mean clauses: 0 or 1; unmeasured: 0."""
    count, over = seen.judged[..., COUNT], seen.judged[..., OVER]
    mean = seen.judged[..., TOTAL] / np.maximum(count, 1.0)
    broken = contract.sense * mean > contract.sense * contract.threshold
    share = np.where(contract.is_rate, over / np.maximum(count, 1.0), broken)
    return np.where(count >= 1.0, share, 0.0)


def _failed(seen: Decision) -> Floats:
    """Failed share float64 [B, K]: mean over the kernel's replicas in rotation."""
    observed = seen.observation
    kernels = observed.ready.shape[1]
    mine = observed.replica_kernel[:, None] == np.arange(kernels)
    turning = observed.in_rotation.astype(np.float64)
    total = (turning * observed.failed_ratio) @ mine
    return np.asarray(total / np.maximum(turning @ mine, 1.0))


def _late(seen: Decision, contract: CompiledContract) -> Floats:
    """Share float64 [B, S, K] beyond the latency clause that most answers miss."""
    timed = contract.source == int(Source.LATENCY)
    if not bool(timed.any()):
        return np.zeros(())
    late = np.where(contract.applies.T[None, None], exceeding(seen, contract), 0.0)[..., timed]
    return np.asarray(late.max(axis=-1).transpose(0, 2, 1))


def _drift(seen: Decision, setup: ControllerSetup) -> Floats:
    """Mean total variation float64 [B, S, K] of the probes judged last, 0 if no clause measures it."""
    contract, metrics = setup.contract, setup.layout.probe_metrics
    mean = (contract.source == int(Source.PROBE)) & ~contract.is_rate
    chosen = [c for c in np.flatnonzero(mean) if _base(metrics[contract.column[c]]) == _QUALITY_METRIC]
    if not chosen:
        return np.zeros(())
    sums = seen.judged[:, :, :, chosen[0]]
    return np.asarray((sums[..., TOTAL] / np.maximum(sums[..., COUNT], 1.0)).transpose(0, 2, 1))


def _base(metric: str) -> str:
    return metric.partition("@")[0]
