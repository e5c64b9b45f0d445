"""What an answer loses where it breaks the contract, in answers: the contract's own weights.

Health counts how far clauses lie beyond their limits, ``sum_j omega_j phi_j``, and from
``fallback_threshold`` on the contract gives a kernel up. So the same sum over that threshold is the loss of
an answer: at 1 it is worth no more than none. A hard clause is not weighed.

What fails is no answer, and what does not is a whole one: by a clause on failures nothing more is lost than
the share of the attempts that fail, however far that lies beyond the limit. Likewise by all clauses on
latency together no more than the largest share that is late, and a late answer is worth a little more than
none: where everything is late on the way, nobody is helped by being turned away. A slow clock is the same
loss: who computes slowly answers late at worst, and how many are late the clauses on latency say.
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

#: What a late answer loses.
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

    alarm, excess: [B, K, S, C]; down: bool [B, K]; before: float64 [B, K, S], what this gave a tick ago. At
    least 1 where a hard clause is violated and where the kernel is down. A clause that is condemned still,
    and of which nothing says now how far it is broken, is broken as far as when that was last known, or as
    far as can be: a cell that gets better is no worse a place than before.
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
    never = standing.hard_violated | down[:, :, None]
    return np.asarray(np.where(never, np.maximum(loss, WHOLE), loss))


def lost_of(excess: NDArray[np.float64], contract: CompiledContract) -> NDArray[np.float64]:
    """float64 [N], loss of N answers whose clauses in alarm lie ``excess`` [N, C] beyond their limits."""
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
    """The clauses of a contract by what their excess is a share of."""

    limit: NDArray[np.float64]  # [C], of a share or a mean
    unit: NDArray[np.float64]  # [C], what excess is counted in: the limit, or 1 where that is 0
    late: NDArray[np.int64]  # [n], places of those on latency that limit a share
    timed: NDArray[np.int64]  # [n], of these, then of those on own clocks


@lru_cache(maxsize=64)
def _kinds(contract: CompiledContract) -> _Kinds:
    limit = np.where(contract.is_rate, contract.rate_limit, contract.threshold)
    late = np.flatnonzero((contract.source == Source.LATENCY) & contract.is_rate)
    timed = np.concatenate([late, clock_clauses(contract)])
    return _Kinds(limit, np.where(limit > 0.0, limit, 1.0), late, timed)


def _share(phi: NDArray[np.float64], kinds: _Kinds) -> NDArray[np.float64]:
    """float64 [N, C], share of the observations beyond a limit; of failures, of the attempts."""
    broken = np.minimum(kinds.limit + phi * kinds.unit, WHOLE)
    return np.asarray(np.where(phi > 0.0, broken, 0.0))
