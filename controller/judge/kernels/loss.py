"""Loss of value of an answer that breaks the contract, in answers, by the contract's own weights.

Health sums how far clauses lie beyond their limits, ``sum_j omega_j phi_j``. From ``fallback_threshold`` on
the contract gives a kernel up. So the loss of an answer is that sum divided by the threshold: at 1, an answer
is worth no more than none. A hard clause is not weighed.

A failed attempt is no answer, and any other attempt is a whole one. So a clause on failures loses at most the
share of the attempts that fail, however far that share lies beyond the limit. All clauses on latency together
lose at most the largest late share. A late answer is worth a little more than none: where every answer is
late, shedding helps no user. A slow clock is part of the same loss: a slow replica answers late at worst, and
the clauses on latency say how many answers are late.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import CompiledContract
from contracts.compiled.health import MOST_EXCESS
from contracts.telemetry import Source
from controller.cells import some_within
from controller.detect.clauses import clock_clauses, failing_clauses, moves_traffic
from controller.judge.kernels.judge_pass import KernelStanding
from controller.shield.lesser_evil import WHOLE

Flags = NDArray[np.bool_]

#: Loss of a late answer, in answers.
_LATE = 0.9


def answer_loss(
    alarm: Flags,
    excess: NDArray[np.float64],
    standing: KernelStanding,
    down: Flags,
    before: NDArray[np.float64],
    contract: CompiledContract,
) -> NDArray[np.float64] | None:
    """float64 [B, K, S] >= 0, loss by the soft clauses in alarm; None where every cell is certified.

    alarm, excess: [B, K, S, C]; down: bool [B, K]; before: float64 [B, K, S], the result of the last tick.
    The loss is at least 1 where a hard clause is violated or the kernel is down. A condemned clause that is
    not in alarm now has no present excess. It keeps the last known loss, or has the loss ``WHOLE`` where none
    is known: an improving cell is no worse a target than before.
    """
    if bool(standing.certified.all()):
        return None
    loss = np.zeros(standing.certified.shape)
    at = np.nonzero(some_within(alarm | standing.condemned))  # few: elsewhere nothing is lost
    counted = alarm[at] & contract.applies.T[at[2]]
    silent = (standing.condemned[at] & ~alarm[at] & moves_traffic(contract)).any(axis=1)
    known = np.where(before[at] > 0.0, before[at], WHOLE)
    lost = lost_of(np.where(counted, excess[at], 0.0), contract)
    loss[at] = np.where(silent, np.maximum(lost, known), lost)
    excluded = standing.hard_violated | down[:, :, None]
    return np.asarray(np.where(excluded, np.maximum(loss, WHOLE), loss))


def lost_of(excess: NDArray[np.float64], contract: CompiledContract) -> NDArray[np.float64]:
    """float64 [N], loss of an answer in each of N cells; ``excess`` [N, C] of their clauses in alarm."""
    phi, kinds = np.clip(excess, 0.0, MOST_EXCESS), _kinds(contract)
    each = phi * contract.weight / contract.fallback_threshold
    share = _share(phi, kinds)
    failing = failing_clauses(contract)
    each[:, failing] = np.minimum(each[:, failing], share[:, failing])
    late_ratio = share[:, kinds.late].max(axis=1, initial=0.0)
    unknown = (phi[:, clock_clauses(contract)] > 0.0).any(axis=1) & (late_ratio == 0.0)
    by_late = np.minimum(each[:, kinds.timed].sum(axis=1), _LATE * np.where(unknown, WHOLE, late_ratio))
    return np.asarray(np.delete(each, kinds.timed, axis=1).sum(axis=1) + by_late)


class _Kinds(NamedTuple):
    """Limits of the clauses of a contract, and places of the clauses on time."""

    limit: NDArray[np.float64]  # [C], limit of the share or of the mean
    unit: NDArray[np.float64]  # [C], unit of the excess: the limit, or 1 where that is 0
    late: NDArray[np.int64]  # [n], places of clauses on latency that limit a share
    timed: NDArray[np.int64]  # [n], the same places, followed by those of clauses on own clocks


@lru_cache(maxsize=64)
def _kinds(contract: CompiledContract) -> _Kinds:
    limit = np.where(contract.is_rate, contract.rate_limit, contract.threshold)
    late = np.flatnonzero((contract.source == Source.LATENCY) & contract.is_rate)
    timed = np.concatenate([late, clock_clauses(contract)])
    return _Kinds(limit, np.where(limit > 0.0, limit, 1.0), late, timed)


def _share(phi: NDArray[np.float64], kinds: _Kinds) -> NDArray[np.float64]:
    """float64 [N, C], share of observations beyond a threshold; on failures, share of failed attempts."""
    broken = np.minimum(kinds.limit + phi * kinds.unit, WHOLE)
    return np.asarray(np.where(phi > 0.0, broken, 0.0))
