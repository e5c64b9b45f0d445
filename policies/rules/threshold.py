"""The two-threshold rule: the kernel of a slice follows from the level of its home kernel.

normal: at home; guard: a stated share moves to the best other compliant kernel; fallback (or no replica at
home in rotation): everything moves to the known-good kernel or, if that is not certified, to the best
certified one. Only the observation is used. ``ThresholdPolicy`` acts on it at once, without memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import Level
from contracts.jit import borrowed, compiled
from controller.encoding.observe_pass import LEAST_CAPACITY_RPS
from controller.ports import Observation, PolicyState, Proposal
from policies.rules.capacity import Headroom, capacity_memory, fit_capacity

# Plain integers, because compiled code cannot use the enumeration, and comparing with one is slower.
_NORMAL, _FALLBACK = int(Level.NORMAL), int(Level.FALLBACK)
#: Weight of size beside health in the order of failover targets.
_SIZE_WEIGHT = 1e-6


def compliant(observation: Observation) -> NDArray[np.bool_]:
    """bool [B, K, S]: in rotation, certified and at level normal."""
    eligible = observation.certified & (observation.level == _NORMAL) & ~observation.hard_violated
    return np.asarray(eligible & (observation.ready > 0)[:, :, None])


def preference(observation: Observation, *, by_health: bool) -> NDArray[np.float64]:
    """float64 [B, S, K], order of failover targets, lowest first; inf: not compliant.

    The larger kernel first, counted with all its replicas, so that one replica more or less changes
    nothing. ``by_health`` puts health before size; a policy without memory must not do that, because an
    alarm that only informs (L1) would move its traffic.
    """
    batch, kernels, slices = observation.health.shape
    rank, plain = np.empty((batch, slices, kernels)), np.ascontiguousarray
    known = _Known(
        planned_rps=plain(observation.planned_rps),
        ready=plain(observation.ready),
        health=plain(observation.health),
        level=plain(observation.level),
        certified=plain(observation.certified),
        hard_violated=plain(observation.hard_violated),
    )
    _rank(rank, tuple(known), observation.replica_kernel, by_health)
    return rank


def failover_order(observation: Observation) -> NDArray[np.float64]:
    """As ``preference`` by health, plus the certified loss: of kernels without an alarm the nearest to the
    reference comes first, then the larger.
    """
    rank = preference(observation, by_health=True)
    return rank if observation.certified_loss is None else rank + observation.certified_loss.T


def two_threshold_table(
    observation: Observation, level: NDArray[np.int64], guard_share: float, shed_when_uncertified: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """``(wanted, rank)``: table float64 [B, S, K + 1] by the rule, and the order of failover targets [B, S,
    K].

    level: int64 [B, S], level to act on for each slice's home kernel.
    """
    rank = preference(observation, by_health=False)
    wanted = np.zeros(observation.table.shape)
    known_good = int(np.argmax(observation.role_known_good))
    _two_threshold(
        wanted,
        rank,
        level,
        observation.home,
        observation.ready,
        known_good,
        guard_share,
        shed_when_uncertified,
    )
    return wanted, rank


def home_level(observation: Observation) -> NDArray[np.int64]:
    """int64 [B, S]: level of each slice's home kernel; fallback if it has no replica in rotation."""
    level = np.empty((len(observation.level), len(observation.home)), dtype=np.int64)
    _level_at_home(
        level,
        np.ascontiguousarray(observation.level),
        np.ascontiguousarray(observation.ready),
        observation.home,
    )
    return level


class _Known(NamedTuple):
    """The quantities that determine the order of failover targets."""

    planned_rps: NDArray[np.float64]  #: [B, K], of the replicas in rotation
    ready: NDArray[np.int64]  #: [B, K]
    health: NDArray[np.float64]  #: [B, K, S]
    level: NDArray[np.int64]  #: [B, K, S]
    certified: NDArray[np.bool_]  #: [B, K, S]
    hard_violated: NDArray[np.bool_]  #: [B, K, S]


@compiled
def _rank(rank, known, owner, by_health):
    """Fill in ``preference`` [B, S, K]; compliant as in ``compliant``."""
    known = borrowed(_Known(*known))
    fleets, slices, kernels = rank.shape
    replicas, whole_rps = np.zeros(kernels), np.zeros(kernels)
    for k in owner:
        replicas[k] += 1.0
    for b in range(fleets):
        largest_rps = -np.inf
        for k in range(kernels):
            whole_rps[k] = known.planned_rps[b, k] / max(known.ready[b, k], 1) * replicas[k]
            largest_rps = max(largest_rps, whole_rps[k])
        for k in range(kernels):
            size = whole_rps[k] / max(largest_rps, LEAST_CAPACITY_RPS)
            for s in range(slices):
                complies = known.ready[b, k] > 0 and known.level[b, k, s] == _NORMAL
                complies = complies and known.certified[b, k, s] and not known.hard_violated[b, k, s]
                # The second term stays below any relevant difference of health.
                score = (known.health[b, k, s] if by_health else 0.0) - _SIZE_WEIGHT * size
                rank[b, s, k] = score if complies else np.inf


@compiled
def _level_at_home(shown, level, ready, home):
    """Fill in ``home_level`` [B, S] from ``level`` [B, K, S] and ``ready`` [B, K]."""
    for b in range(shown.shape[0]):
        for s in range(shown.shape[1]):
            shown[b, s] = level[b, home[s], s] if ready[b, home[s]] > 0 else _FALLBACK


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdPolicy:
    """Normal: home. Guard: ``guard_share`` to the best other compliant kernel. Fallback: to known-good.

    By default guard moves the whole slice: traffic that stays on a kernel that breaks a clause keeps the
    slice outside its contract, and probes, not traffic, show when the kernel is healthy again.

    kernels, slices: sizes of the fleet; priority: int64 [S], the highest is served first when capacity is
    short.
    """

    policy_id: str
    kernels: int
    slices: int
    priority: NDArray[np.int64]  # [S], the highest is served first when capacity is short
    shed_when_uncertified: bool
    guard_share: float = 1.0
    headroom: Headroom = field(default_factory=Headroom)

    def initial(self, batch: int) -> PolicyState:
        """Only the memory of the capacity plan."""
        return capacity_memory(batch, self.slices, self.kernels)

    def propose(self, observation: Observation, state: PolicyState) -> tuple[Proposal, PolicyState]:
        """The rule's table, within capacity."""
        wanted, rank = two_threshold_table(
            observation, home_level(observation), self.guard_share, self.shed_when_uncertified
        )
        return fit_capacity(wanted, rank, observation, state, self.priority, self.headroom)
