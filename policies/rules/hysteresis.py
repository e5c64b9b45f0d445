"""Hysteresis: away at once, back slowly.

Away: like the two-threshold rule, at the tick that sees the level. Back: only when the home kernel is at
level normal and re-certified on the slice, ``dwell_s`` after it was last unhealthy (doubled with each
relapse, at most eight times), and then half-open: ``first_ratio`` of the slice first, ``step_ratio`` more
every ``step_s`` while the home kernel stays clean. At most one slice of a kernel begins to return in
``readmit_every_s``. The failover target is kept while it complies, so that the best of two equals does not
change with the weather.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from contracts.jit import compiled
from controller.ports import Observation, PolicyState, Proposal
from policies.rules.capacity import Headroom, capacity_memory, fit_capacity
from policies.rules.targets import home_level, preference

#: Relapses that still double the dwell.
MOST_DOUBLINGS = 3
#: A slice that stayed at home for so many dwell times has no relapse behind it.
FORGIVEN_DWELLS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How slowly a slice returns: times in seconds, shares of the slice's traffic."""

    guard_share: float = 1.0
    dwell_s: float = 120.0
    first_ratio: float = 0.1
    step_ratio: float = 0.3
    step_s: float = 30.0
    readmit_every_s: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HysteresisPolicy:
    """Threshold with dwell, half-open return and rate-limited re-admission; see the module."""

    policy_id: str
    kernels: int
    slices: int
    priority: NDArray[np.int64]
    shed_when_uncertified: bool
    pace: Pace = field(default_factory=Pace)
    headroom: Headroom = field(default_factory=Headroom)

    def initial(self, batch: int) -> PolicyState:
        """Every slice whole at home.

        home_share: float64 [B, S]; left_at_s: float64 [B, S], when home was last unhealthy; stepped_at_s:
        float64 [B, S], last step back; relapses: int64 [B, S]; failover: int64 [B, S] (-1: none);
        readmitted_at_s: float64 [B, K], last begin of a return.
        """
        shape = (batch, self.slices)
        return {
            **capacity_memory(batch, self.slices, self.kernels),
            "home_share": np.ones(shape),
            "left_at_s": np.full(shape, -np.inf),
            "stepped_at_s": np.full(shape, -np.inf),
            "relapses": np.zeros(shape, dtype=np.int64),
            "failover": np.full(shape, -1, dtype=np.int64),
            "readmitted_at_s": np.full((batch, self.kernels), -np.inf),
        }

    def propose(self, seen: Observation, state: PolicyState) -> tuple[Proposal, PolicyState]:
        """The table of the state machines, as far as capacity goes."""
        memory = {name: array.copy() for name, array in state.items()}
        level = home_level(seen)
        rank, wanted = preference(seen, by_health=True), np.zeros(seen.table.shape)
        pace = self.pace
        _return_slowly(
            memory["home_share"],
            memory["left_at_s"],
            memory["stepped_at_s"],
            memory["relapses"],
            memory["readmitted_at_s"],
            level,
            seen.certified,
            seen.home,
            seen.now_s,
            pace.guard_share,
            pace.dwell_s,
            pace.first_ratio,
            pace.step_ratio,
            pace.step_s,
            pace.readmit_every_s,
        )
        _place(
            wanted,
            memory["failover"],
            memory["home_share"],
            rank,
            level,
            seen.home,
            seen.ready,
            int(np.argmax(seen.role_known_good)),
            self.shed_when_uncertified,
        )
        return fit_capacity(wanted, rank, seen, memory, self.priority, self.headroom)


@compiled
def _return_slowly(
    home_share,
    left_at_s,
    stepped_at_s,
    relapses,
    readmitted_at_s,
    level,
    certified,
    home,
    now_s,
    guard_share,
    dwell_s,
    first_ratio,
    step_ratio,
    step_s,
    readmit_every_s,
):
    """One step of every slice's state machine."""
    for b in range(level.shape[0]):
        for s in range(level.shape[1]):
            here, dwell = home[s], dwell_s * 2.0 ** relapses[b, s]
            target = 1.0 if level[b, s] == 0 else (1.0 - guard_share if level[b, s] == 1 else 0.0)
            if target < home_share[b, s]:
                relapses[b, s] = _relapses(relapses[b, s], now_s[b] - stepped_at_s[b, s], dwell_s)
                home_share[b, s], left_at_s[b, s] = target, now_s[b]
                continue
            if home_share[b, s] < 1.0 and level[b, s] > 0:
                left_at_s[b, s] = now_s[b]
            eligible = level[b, s] == 0 and certified[b, here, s]
            if home_share[b, s] >= 1.0 or not eligible or now_s[b] - left_at_s[b, s] < dwell:
                continue
            first = stepped_at_s[b, s] <= left_at_s[b, s]
            waited = now_s[b] - (readmitted_at_s[b, here] if first else stepped_at_s[b, s])
            if waited < (readmit_every_s if first else step_s):
                continue
            home_share[b, s] = min(1.0, home_share[b, s] + (first_ratio if first else step_ratio))
            stepped_at_s[b, s] = now_s[b]
            if first:
                readmitted_at_s[b, here] = now_s[b]


@compiled
def _relapses(before, since_step_s, dwell_s):
    """One more if the slice came back lately, else a fresh start."""
    return min(before + 1, MOST_DOUBLINGS) if since_step_s < FORGIVEN_DWELLS * dwell_s else 0


@compiled
def _place(wanted, failover, home_share, rank, level, home, ready, known_good, shed):
    """Home share at home, the rest with a failover target that complies; at level fallback the
    known-good one.
    """
    fleets, slices, kernels = rank.shape
    for b in range(fleets):
        for s in range(slices):
            here, share = home[s], home_share[b, s]
            if share >= 1.0:
                failover[b, s] = -1
                wanted[b, s, here] = 1.0
                continue
            best = failover[b, s]
            if best < 0 or not np.isfinite(rank[b, s, best]) or best == here:
                best = _best(rank[b, s], here)
                if level[b, s] == 2 and np.isfinite(rank[b, s, known_good]) and known_good != here:
                    best = known_good
            failover[b, s] = best
            if best >= 0:
                wanted[b, s, here] = share
                wanted[b, s, best] += 1.0 - share
            elif share > 0.0:
                wanted[b, s, here] = 1.0
            elif shed:
                wanted[b, s, kernels] = 1.0
            else:
                wanted[b, s, known_good if ready[b, known_good] > 0 else here] = 1.0


@compiled
def _best(rank, here):
    """Best compliant kernel other than ``here``, or -1."""
    best = -1
    for k in range(len(rank)):
        if k != here and np.isfinite(rank[k]) and (best < 0 or rank[k] < rank[best]):
            best = k
    return best
