"""Informed policy: it is given every fault at a stated time; a reference that is hard to beat.

Its notices are plain data, computed where the scenario is known (``scripts.e5.known_faults``): the kernel or
single replica that breaks the contract, on which slices, from when until when. It also knows the true
capacity of every kernel for this traffic, and leaves a tenth of it for bursts. Everything else is as for
other policies: the planner (the linear program, or the two-threshold rule), the sequential detector,
quarantine, shield and slew.

A single replica is ejected while its fault is known. A replica that still answers, though late or only most
requests, is ejected only while the others carry the load. A kernel that fails a share of its requests is left
only while another eligible kernel fails a smaller share; if such a kernel has to go on serving at home, it
takes no other slice's traffic as long as there is headroom elsewhere. Slices return when the policy knows
that the fault is over and home is certified.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import Level
from controller.ports import Observation, Policy, PolicyState, Proposal

Flags = NDArray[np.bool_]

#: Offered load over the capacity of the others, up to which a replica that still answers is ejected.
MOST_LOAD_RATIO = 0.95
#: Share of the steady-state model's capacity that is answered in time with uneven arrivals: the rate that
#: `selvage bench capacity` finds is a tenth lower. Without it, a home kernel was overfilled beside idle ones.
IN_TIME_RATIO = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Notices:
    """The faults of one scenario as the policy is given them, N entries."""

    from_at_s: NDArray[np.float64]  # [N], when the policy learns of it
    until_at_s: NDArray[np.float64]  # [N], when the policy is told that it has ended
    kernel: NDArray[np.int64]  # [N], the kernel that is unhealthy as a whole; -1: none
    replica: NDArray[np.int64]  # [N], the single replica that is unhealthy; -1: none
    slices: NDArray[np.bool_]  # [N, S], where the contract is broken
    replica_rps: NDArray[np.float64] | None = None
    """[M, K], true capacity of a healthy replica of each kernel, requests per second; None: not known."""
    rps_from_at_s: NDArray[np.float64] = field(default_factory=lambda: np.zeros(1))
    """[M], instant from which each row of ``replica_rps`` holds."""
    answers: NDArray[np.bool_] | None = None
    """[N], the unhealthy replica or kernel still answers, late or most requests; None: none does."""
    fail_ratio: NDArray[np.float64] | None = None
    """[N], share of attempts that fail, for faults that have no other effect; None: 0 everywhere."""
    began_at_s: NDArray[np.float64] | None = None
    """[N], true onset, for comparisons between failing kernels; None: ``from_at_s``."""

    def __post_init__(self) -> None:
        count = self.from_at_s.size
        sizes = (self.until_at_s.size, self.kernel.size, self.replica.size, self.slices.shape[0])
        if any(size != count for size in sizes):
            raise ValueError(f"notices: expected {count} entries everywhere, got {sizes}")
        if bool(((self.kernel >= 0) == (self.replica >= 0)).any()):
            raise ValueError("notices: expected each to name a kernel or a replica, got both or neither")
        if self.replica_rps is not None and len(self.replica_rps) != len(self.rps_from_at_s):
            raise ValueError(f"notices: expected {len(self.rps_from_at_s)} rows, got {len(self.replica_rps)}")


def no_notices(slices: int) -> Notices:
    """The notices of a scenario with ``slices`` slices and no fault."""
    no_entry = np.zeros(0, dtype=np.int64)
    return Notices(
        from_at_s=np.zeros(0),
        until_at_s=np.zeros(0),
        kernel=no_entry,
        replica=no_entry,
        slices=np.zeros((0, slices), dtype=np.bool_),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class InformedPolicy:
    """See the module. planner: the policy that makes the table from the known facts."""

    policy_id: str
    notices: Notices
    planner: Policy
    kernels: int
    slices: int

    def initial(self, batch: int) -> PolicyState:
        """The planner's memory."""
        return self.planner.initial(batch)

    def propose(self, observation: Observation, state: PolicyState) -> tuple[Proposal, PolicyState]:
        """Move away from kernels known to be unhealthy, and home when home is known to be healthy."""
        cells, ejected = self.left(observation)
        level = np.where(cells, int(Level.FALLBACK), observation.level)
        level = np.where(observation.certified, level, np.maximum(level, int(Level.GUARD)))
        informed = replace(
            self.with_capacity(observation), level=level, certified=observation.certified & ~cells
        )
        proposal, after = self.planner.propose(informed, state)
        return replace(proposal, ejected=ejected), after

    def with_capacity(self, observation: Observation) -> Observation:
        """``observation`` with the true capacity of the replicas in rotation, if known."""
        each_rps = self._each_rps(observation.now_s)
        if each_rps is None:
            return observation
        true_rps = IN_TIME_RATIO * observation.ready * each_rps
        return replace(observation, capacity_rps=true_rps, sure_rps=true_rps)

    def left(self, observation: Observation) -> tuple[Flags, Flags]:
        """What must be left: cells bool [B, K, S] and single replicas bool [B, R].

        Kernels that answer all the same are left only if the others carry the offered load; slices that
        are at home elsewhere leave them as soon as the others and the homes together do.
        """
        replicas, answers = observation.in_rotation.shape[1], self.notices.answers
        if answers is None:
            return self.known(
                observation.now_s, replicas, np.ones(self.notices.from_at_s.size, dtype=np.bool_)
            )
        broken, gone = self.known(observation.now_s, replicas, ~answers)
        poor, late = self.known(observation.now_s, replicas, answers & ~self._fails)
        worse_cells, worse = self._failing_more(broken, gone, observation)
        poor, late = poor | worse_cells, late | worse
        at_home = np.arange(self.kernels)[:, None] == observation.home
        others = np.asarray(~(broken | poor).any(axis=2))
        alone = self._carry(others, observation)
        with_homes = self._carry(others | (at_home.any(axis=1) & ~broken.any(axis=2)), observation)
        cells = broken | (poor & (alone[:, None, None] | (with_homes[:, None, None] & ~at_home)))
        return cells, gone | self._spared(late & ~gone, gone, observation)

    def _carry(self, serving: Flags, observation: Observation) -> Flags:
        """bool [B]: the ``serving`` kernels, bool [B, K], carry the offered load with some reserve."""
        carried_rps = (self.with_capacity(observation).planned_rps * serving).sum(axis=1)
        return np.asarray(MOST_LOAD_RATIO * carried_rps >= observation.offered_rps.sum(axis=1))

    @property
    def _fails(self) -> Flags:
        """bool [N]: a share of the attempts fails, without any other effect."""
        fail_ratio = self.notices.fail_ratio
        return (
            np.zeros(self.notices.from_at_s.size, dtype=np.bool_) if fail_ratio is None else fail_ratio > 0.0
        )

    def _failing_more(self, broken: Flags, gone: Flags, observation: Observation) -> tuple[Flags, Flags]:
        """Of those that fail a share of their requests: cells bool [B, K, S] of kernels that fail more than
        another serving kernel, and replicas bool [B, R] that fail more than a peer.

        The ``broken`` [B, K, S] kernels and the ``gone`` [B, R] replicas do not serve.
        """
        owner = observation.replica_kernel
        notices = self.notices
        serving = observation.in_rotation & ~gone
        known, slices = self._fail_ratio(observation.now_s, owner, notices.from_at_s)
        true, _ = self._fail_ratio(
            observation.now_s, owner, notices.from_at_s if notices.began_at_s is None else notices.began_at_s
        )
        each, really = (_least_of_kernels(np.where(serving, of, np.inf), owner) for of in (known, true))
        least = np.where(broken.all(axis=2), np.inf, really).min(axis=1, keepdims=True)
        cells = (np.isfinite(each) & (each > least))[:, :, None] & slices[:, None, :]
        return cells, np.asarray((known > 0.0) & (known > really[:, owner]))

    def _fail_ratio(
        self, now_s: NDArray[np.float64], owner: NDArray[np.int64], from_at_s: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], Flags]:
        """Share of attempts that each replica fails, float64 [B, R], by notices from ``from_at_s`` [N] on;
        and bool [B, S], the slices on which a replica thereby breaks the contract.
        """
        notices, ratio = self.notices, np.zeros((len(now_s), len(owner)))
        slices = np.zeros((len(now_s), self.slices), dtype=np.bool_)
        if notices.fail_ratio is None:
            return ratio, slices
        active = (now_s[:, None] >= from_at_s) & (now_s[:, None] < notices.until_at_s)
        for index in np.flatnonzero(self._fails):
            whole = notices.kernel[index] >= 0
            struck = (
                owner == notices.kernel[index] if whole else np.arange(len(owner)) == notices.replica[index]
            )
            ratio = np.maximum(ratio, active[:, index, None] * struck * notices.fail_ratio[index])
            slices |= active[:, index, None] & notices.slices[index]
        return ratio, slices

    def _spared(self, asked: Flags, gone: Flags, observation: Observation) -> Flags:
        """bool [B, R]: those of the ``asked`` replicas [B, R] that can be spared, taken in replica order."""
        each_rps, found = self._each_rps(observation.now_s), np.zeros_like(asked)
        if each_rps is None:
            return asked
        of_rps = each_rps[:, observation.replica_kernel] * (
            (observation.in_rotation | asked) & ~observation.quarantined & ~gone
        )
        offered_rps, rest_rps = observation.offered_rps.sum(axis=1), of_rps.sum(axis=1)
        for b, r in np.argwhere(asked):
            found[b, r] = MOST_LOAD_RATIO * (rest_rps[b] - of_rps[b, r]) >= offered_rps[b]
            rest_rps[b] -= of_rps[b, r] * found[b, r]
        return found

    def _each_rps(self, now_s: NDArray[np.float64]) -> NDArray[np.float64] | None:
        """float64 [B, K], capacity of a healthy replica at ``now_s`` [B]."""
        known = self.notices.replica_rps
        if known is None:
            return None
        row = np.searchsorted(self.notices.rps_from_at_s, now_s, side="right") - 1
        return known[np.maximum(row, 0)]

    def known(self, now_s: NDArray[np.float64], replicas: int, of: Flags) -> tuple[Flags, Flags]:
        """Known unhealthy parts at ``now_s`` [B], by the notices ``of`` bool [N]: cells [B, K, S] and single
        replicas bool [B, R].
        """
        notices = self.notices
        active = (now_s[:, None] >= notices.from_at_s) & (now_s[:, None] < notices.until_at_s) & of
        cells = np.zeros((len(now_s), self.kernels, self.slices), dtype=np.bool_)
        ejected = np.zeros((len(now_s), replicas), dtype=np.bool_)
        for index in range(notices.from_at_s.size):
            if notices.kernel[index] >= 0:
                cells[:, notices.kernel[index]] |= active[:, index, None] & notices.slices[index]
            else:
                ejected[:, notices.replica[index]] |= active[:, index]
        return cells, ejected


def _least_of_kernels(values: NDArray[np.float64], owner: NDArray[np.int64]) -> NDArray[np.float64]:
    """float64 [B, K], the least of ``values`` [B, R] of each kernel; inf without a replica."""
    kernels = range(int(owner.max()) + 1)
    return np.stack([values[:, owner == k].min(axis=1, initial=np.inf) for k in kernels], axis=1)
