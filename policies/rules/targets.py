"""Where a slice should be served, by the level of its home kernel: the two-threshold rule.

normal: at home; guard: a stated share moves to the best other compliant kernel; fallback (or no replica
at home in rotation): everything moves to the known-good kernel, or, where that is not certified, to the
best certified one. Only what the observation says is used.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import Level
from contracts.jit import compiled
from controller.ports import Observation

#: Against division by zero where no kernel has capacity.
_LEAST = 1e-9
#: Weight of size beside health in the order of failover targets.
_SIZE_WEIGHT = 1e-6


def compliant(seen: Observation) -> NDArray[np.bool_]:
    """bool [B, K, S]: in rotation, certified and at level normal."""
    eligible = seen.certified & (seen.level == Level.NORMAL) & ~seen.hard_violated
    return np.asarray(eligible & (seen.ready > 0)[:, :, None])


def preference(seen: Observation, *, by_health: bool) -> NDArray[np.float64]:
    """float64 [B, S, K], order of failover targets, lowest first; inf: not compliant.

    The larger kernel first, counted with all its replicas, so that one replica more or less turns nothing
    round. ``by_health`` puts health before size; a policy without memory must not do that, because an
    alarm that only informs (L1) would move its traffic.
    """
    replicas = np.bincount(seen.replica_kernel, minlength=seen.ready.shape[1])
    whole_rps = seen.planned_rps / np.maximum(seen.ready, 1) * replicas
    size = whole_rps / np.maximum(whole_rps.max(axis=1, keepdims=True), _LEAST)
    # The second term stays below any difference of health worth acting on.
    score = (seen.health if by_health else 0.0) - _SIZE_WEIGHT * size[:, :, None]
    return np.where(compliant(seen), score, np.inf).transpose(0, 2, 1)


def failover_order(seen: Observation) -> NDArray[np.float64]:
    """As ``preference`` by health, to which the certified loss is added: of kernels without an alarm the one
    nearest to the reference comes first, then the larger.
    """
    rank = preference(seen, by_health=True)
    return rank if seen.certified_loss is None else rank + seen.certified_loss.T


def two_threshold_table(
    seen: Observation, level: NDArray[np.int64], guard_share: float, shed_when_uncertified: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """``(wanted, rank)``: table float64 [B, S, K + 1] by the rule, and the order of failover targets [B, S,
    K].

    level: int64 [B, S], level to act on for each slice's home kernel.
    """
    rank = preference(seen, by_health=False)
    wanted = np.zeros(seen.table.shape)
    known_good = int(np.argmax(seen.role_known_good))
    _two_threshold(wanted, rank, level, seen.home, seen.ready, known_good, guard_share, shed_when_uncertified)
    return wanted, rank


def home_level(seen: Observation) -> NDArray[np.int64]:
    """int64 [B, S]: level of each slice's home kernel; fallback where it has no replica in rotation."""
    slices = np.arange(len(seen.home))
    level = seen.level[:, seen.home, slices]
    return np.where(seen.ready[:, seen.home] > 0, level, int(Level.FALLBACK))


@compiled
def _two_threshold(wanted, rank, level, home, ready, known_good, guard_share, shed):
    fleets, slices, kernels = rank.shape
    for b in range(fleets):
        for s in range(slices):
            here = home[s]
            if level[b, s] == 0:
                wanted[b, s, here] = 1.0
                continue
            best = -1
            for k in range(kernels):
                if (
                    k != here
                    and np.isfinite(rank[b, s, k])
                    and (best < 0 or rank[b, s, k] < rank[b, s, best])
                ):
                    best = k
            if level[b, s] == 1:
                share = guard_share if best >= 0 else 0.0
                wanted[b, s, here] = 1.0 - share
                if best >= 0:
                    wanted[b, s, best] += share
                continue
            if np.isfinite(rank[b, s, known_good]):
                best = known_good
            if best < 0 and not shed:
                best = known_good if ready[b, known_good] > 0 else here
            wanted[b, s, best if best >= 0 else kernels] = 1.0
