"""Hysteresis policy: fail over at once, return slowly.

Failover: like the two-threshold rule, at the tick that sees the level. Return: only when the home kernel is
at level normal and re-certified on the slice, ``dwell_s`` after it was last unhealthy (doubled with each
relapse, at most eight times), and then half-open: ``first_ratio`` of the slice first, ``step_ratio`` more
every ``step_s`` while the home kernel stays healthy; at once if no other kernel complied either. At most one
slice of a kernel begins to return in ``readmit_every_s``. The failover target is kept while it complies, so
that the choice between two equal kernels does not change at random.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.jit import borrowed, compiled
from controller.ports import Observation, PolicyState, Proposal
from policies.rules.capacity import Headroom, capacity_memory, fit_capacity
from policies.rules.threshold import home_level, preference

#: Largest number of relapses that double the dwell.
DOUBLED_DWELLS = 3
#: After this many dwell times at home, a slice's relapses are forgotten.
FORGIVEN_DWELLS = 10.0


class ReturnPace(NamedTuple):
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
    priority: NDArray[np.int64]  # [S], the highest is served first when capacity is short
    shed_when_uncertified: bool
    pace: ReturnPace = field(default_factory=ReturnPace)
    headroom: Headroom = field(default_factory=Headroom)

    def initial(self, batch: int) -> PolicyState:
        """Every slice fully at home.

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

    def propose(self, observation: Observation, state: PolicyState) -> tuple[Proposal, PolicyState]:
        """The table of the state machines, within capacity."""
        memory = {name: array.copy() for name, array in state.items()}
        rank, wanted = preference(observation, by_health=True), np.zeros(observation.table.shape)
        slices, home = (
            _slices_of(memory),
            _Home(home_level(observation), observation.certified, observation.home, observation.ready),
        )
        _return_slowly(slices, home, observation.now_s, self.pace)
        _place(
            wanted,
            slices,
            home,
            rank,
            int(np.argmax(observation.role_known_good)),
            self.shed_when_uncertified,
        )
        return fit_capacity(wanted, rank, observation, memory, self.priority, self.headroom)


class _Slices(NamedTuple):
    """The state machines, as described in ``HysteresisPolicy.initial``; changed in place."""

    home_share: NDArray[np.float64]  #: [B, S]
    left_at_s: NDArray[np.float64]  #: [B, S]
    stepped_at_s: NDArray[np.float64]  #: [B, S]
    relapses: NDArray[np.int64]  #: [B, S]
    failover: NDArray[np.int64]  #: [B, S]
    readmitted_at_s: NDArray[np.float64]  #: [B, K]


class _Home(NamedTuple):
    """Observed state of home kernels."""

    level: NDArray[np.int64]  #: [B, S]
    certified: NDArray[np.bool_]  #: [B, K, S]
    kernel: NDArray[np.int64]  #: [S]
    ready: NDArray[np.int64]  #: [B, K]


def _slices_of(memory: dict[str, Any]) -> _Slices:
    return _Slices(**{name: memory[name] for name in _Slices._fields})


@compiled
def _return_slowly(slices, home, now_s, pace):
    """One step of every slice's state machine."""
    slices, home = borrowed(slices), borrowed(home)
    for b in range(home.level.shape[0]):
        for s in range(home.level.shape[1]):
            _step(slices, home, now_s[b], pace, b, s)


@compiled(inline="always")
def _step(slices, home, now_s, pace, b, s):
    """One step of a slice's state machine. If no kernel complied, the slice never left."""
    here, level, share = home.kernel[s], home.level[b, s], slices.home_share[b, s]
    target = 1.0 if level == 0 else (1.0 - pace.guard_share if level == 1 else 0.0)
    if target < share:
        since_s = now_s - slices.stepped_at_s[b, s]
        slices.relapses[b, s] = _relapses(slices.relapses[b, s], since_s, pace.dwell_s)
        slices.home_share[b, s], slices.left_at_s[b, s] = target, now_s
        return
    if share < 1.0 and level > 0:
        slices.left_at_s[b, s] = now_s
    dwell_s = pace.dwell_s * 2.0 ** slices.relapses[b, s]
    eligible = level == 0 and home.certified[b, here, s]
    if eligible and slices.failover[b, s] < 0:
        slices.home_share[b, s] = 1.0
        return
    if share >= 1.0 or not eligible or now_s - slices.left_at_s[b, s] < dwell_s:
        return
    first = slices.stepped_at_s[b, s] <= slices.left_at_s[b, s]
    waited_s = now_s - (slices.readmitted_at_s[b, here] if first else slices.stepped_at_s[b, s])
    if waited_s < (pace.readmit_every_s if first else pace.step_s):
        return
    slices.home_share[b, s] = min(1.0, share + (pace.first_ratio if first else pace.step_ratio))
    slices.stepped_at_s[b, s] = now_s
    if first:
        slices.readmitted_at_s[b, here] = now_s


@compiled
def _relapses(before, since_step_s, dwell_s):
    """One more if the slice returned recently, else 0."""
    return min(before + 1, DOUBLED_DWELLS) if since_step_s < FORGIVEN_DWELLS * dwell_s else 0


@compiled
def _place(wanted, slices, home, rank, known_good, shed):
    """Home share at home, the rest on a compliant failover target; at level fallback on the known-good
    kernel.
    """
    slices, home = borrowed(slices), borrowed(home)
    for b in range(rank.shape[0]):
        for s in range(rank.shape[1]):
            here, share = home.kernel[s], slices.home_share[b, s]
            if share >= 1.0:
                slices.failover[b, s] = -1
                wanted[b, s, here] = 1.0
                continue
            best = slices.failover[b, s]
            if best < 0 or not np.isfinite(rank[b, s, best]) or best == here:
                best = _best(rank[b, s], here)
                if home.level[b, s] == 2 and np.isfinite(rank[b, s, known_good]) and known_good != here:
                    best = known_good
            slices.failover[b, s] = best
            if best >= 0:
                wanted[b, s, here] = share
                wanted[b, s, best] += 1.0 - share
            elif share > 0.0:
                wanted[b, s, here] = 1.0
            elif shed:
                wanted[b, s, rank.shape[2]] = 1.0
            else:
                wanted[b, s, known_good if home.ready[b, known_good] > 0 else here] = 1.0


@compiled
def _best(rank, here):
    """Best compliant kernel other than ``here``, or -1."""
    best = -1
    for k in range(len(rank)):
        if k != here and np.isfinite(rank[k]) and (best < 0 or rank[k] < rank[best]):
            best = k
    return best
