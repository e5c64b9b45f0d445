"""Circuit-breaker policy: the built-in behaviour of gateways, modelled on Envoy's outlier detection.

A replica with ``consecutive_failures`` failed answers in a row is ejected from its kernel's cluster at
once, while the share of ejected hosts is below ``max_ejection_ratio`` (the first one is always allowed). A
sweep every ``interval_s`` returns replicas that have been out for ``base_ejection_s`` times their number of
ejections (at most ``max_ejection_s``), and reduces that number by one for replicas that are in. If fewer
than ``panic_ratio`` of a cluster's hosts are left, all of them get traffic again (panic).

It counts HTTP failures and nothing else: a server with wrong answers and status 200 counts as healthy.
Source: Envoy documentation, "Outlier detection" and "Panic threshold".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.jit import borrowed, compiled
from controller.ports import Observation, PolicyState, Proposal
from policies.rules.fixed import home_table


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerPolicy:
    """Home table; single replicas are ejected for consecutive failures."""

    policy_id: str
    replicas: int
    consecutive_failures: int = 5
    interval_s: float = 10.0
    base_ejection_s: float = 30.0
    max_ejection_s: float = 300.0
    max_ejection_ratio: float = 0.1
    panic_ratio: float = 0.5

    def initial(self, batch: int) -> PolicyState:
        """No replica ejected. ``discounted``: failures of the current run that were already counted."""
        shape = (batch, self.replicas)
        return {
            "ejected": np.zeros(shape, dtype=np.bool_),
            "ejected_at_s": np.zeros(shape),
            "ejections": np.zeros(shape, dtype=np.int64),
            "discounted": np.zeros(shape, dtype=np.int64),
            "swept_at_s": np.full(batch, -np.inf),
        }

    def propose(self, observation: Observation, state: PolicyState) -> tuple[Proposal, PolicyState]:
        """The home table, and the replicas that are ejected now."""
        hosts = _Hosts(
            ejected=np.array(state["ejected"], dtype=np.bool_),
            ejected_at_s=np.array(state["ejected_at_s"], dtype=np.float64),
            ejections=np.array(state["ejections"], dtype=np.int64),
            discounted=self._discounted(observation, state),
        )
        swept_at_s = np.asarray(state["swept_at_s"], dtype=np.float64)
        sweep = observation.now_s - swept_at_s >= self.interval_s
        present = observation.in_rotation | hosts.ejected
        failed, longest_s = observation.consecutive_failed, self.max_ejection_s
        _sweep(hosts, sweep, observation.now_s, failed, self.base_ejection_s, longest_s)
        out = (failed - hosts.discounted >= self.consecutive_failures) & ~hosts.ejected
        _eject(
            hosts,
            out,
            observation.now_s,
            failed,
            observation.replica_kernel,
            present,
            self.max_ejection_ratio,
        )
        memory: PolicyState = {
            **hosts._asdict(),
            "swept_at_s": np.where(sweep, observation.now_s, swept_at_s),
        }
        balanced = hosts.ejected & ~self._panic(observation, hosts.ejected, present)
        return Proposal(table=home_table(observation), ejected=balanced), memory

    @staticmethod
    def _discounted(observation: Observation, state: PolicyState) -> NDArray[np.int64]:
        """int64 [B, R]: failures of the current run that were already counted; a new run starts at 0."""
        discounted = np.array(state["discounted"], dtype=np.int64)
        discounted[observation.consecutive_failed < discounted] = 0
        return discounted

    def _panic(
        self, observation: Observation, ejected: NDArray[np.bool_], present: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """bool [B, R]: the replica's cluster has too few hosts left to eject any of them."""
        panic = np.zeros(ejected.shape, dtype=np.bool_)
        for kernel in range(len(observation.role_known_good)):
            mine = observation.replica_kernel == kernel
            left = (present & ~ejected)[:, mine].sum(axis=1)
            panic[:, mine] = (left < self.panic_ratio * present[:, mine].sum(axis=1))[:, None]
        return panic


class _Hosts(NamedTuple):
    """State of every replica; changed in place."""

    ejected: NDArray[np.bool_]  #: [B, R]
    ejected_at_s: NDArray[np.float64]  #: [B, R]
    ejections: NDArray[np.int64]  #: [B, R], so far, less the forgiven ones
    discounted: NDArray[np.int64]  #: [B, R], failures of the current run that were already counted


@compiled
def _sweep(hosts, sweep, now_s, failed, base_s, most_s):
    """Return replicas whose ejection time is over; forgive one ejection of each replica that is in."""
    hosts = borrowed(hosts)
    for b in range(len(sweep)):
        if not sweep[b]:
            continue
        for r in range(failed.shape[1]):
            if not hosts.ejected[b, r]:
                hosts.ejections[b, r] = max(hosts.ejections[b, r] - 1, 0)
            elif now_s[b] - hosts.ejected_at_s[b, r] >= min(base_s * hosts.ejections[b, r], most_s):
                hosts.ejected[b, r] = False
                hosts.discounted[b, r] = failed[b, r]


@compiled
def _eject(hosts, out, now_s, failed, owner, present, most_ratio):
    """Eject while the cluster's ejected share is below the cap; a refused host starts a new run."""
    hosts = borrowed(hosts)
    for b in range(out.shape[0]):
        for r in range(out.shape[1]):
            if not out[b, r]:
                continue
            hosts.discounted[b, r] = failed[b, r]
            many, away = 0, 0
            for other in range(len(owner)):
                if owner[other] == owner[r] and present[b, other]:
                    many += 1
                    away += hosts.ejected[b, other]
            if away < most_ratio * many:
                hosts.ejected[b, r] = True
                hosts.ejected_at_s[b, r] = now_s[b]
                hosts.ejections[b, r] += 1
