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
    phi = np.clip(excess, 0.0, MOST_EXCESS)
    each = phi * contract.weight / contract.fallback_threshold
    share = _share(phi, contract)
    failing, late = failing_clauses(contract), _lateness(contract)
    each[:, failing] = np.minimum(each[:, failing], share[:, failing])
    slow = clock_clauses(contract)
    late_ratio = share[:, late].max(axis=1, initial=0.0)
    unknown = (phi[:, slow] > 0.0).any(axis=1) & (late_ratio == 0.0)
    timed = np.concatenate([late, slow])
    by_late = np.minimum(each[:, timed].sum(axis=1), _LATE * np.where(unknown, WHOLE, late_ratio))
    return np.asarray(np.delete(each, timed, axis=1).sum(axis=1) + by_late)


def _share(phi: NDArray[np.float64], contract: CompiledContract) -> NDArray[np.float64]:
    """float64 [N, C], share of the observations beyond a limit; of failures, of the attempts."""
    limit = np.where(contract.is_rate, contract.rate_limit, contract.threshold)
    broken = np.minimum(limit + phi * np.where(limit > 0.0, limit, 1.0), WHOLE)
    return np.asarray(np.where(phi > 0.0, broken, 0.0))


def _lateness(contract: CompiledContract) -> NDArray[np.int64]:
    """Places of the clauses on latency that limit a share."""
    return np.flatnonzero((contract.source == Source.LATENCY) & contract.is_rate)
