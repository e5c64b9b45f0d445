"""Informed: told of every fault at a stated time; the reference that no policy without that can beat by much.

What it is told is plain data, computed where the scenario is known (``scripts.e5.known_faults``): which
kernel, or which single replica, breaks the contract on which slices, from when until when it knows.
It also knows what every kernel truly carries of this traffic, and leaves a tenth of that for bursts.
Everything else is as for the others: the planner (the linear program, or the two-threshold rule), the
sequential detector, quarantine, shield and slew.
A single replica is ejected while its fault is known; one that answers all the same, late or most requests,
only while the others carry what is offered; and a kernel that fails a share of its requests only while
another that could serve fails a smaller one. Where such a kernel has to go on at home, it takes no other
slice's traffic as long as there is room elsewhere. It returns when it knows that the fault is over and home
is certified.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import Level
from controller.ports import Observation, Policy, PolicyState, Proposal

Flags = NDArray[np.bool_]

#: Offered load over what the others carry, up to which one that answers all the same is ejected.
MOST_LOAD_RATIO = 0.95
#: Of what the steady-state model carries, what is answered in time where arrivals are uneven: the rate that
#: `selvage bench capacity` finds is a tenth lower. Planned without it, a home was filled beside idle kernels.
IN_TIME_RATIO = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Notices:
    """What is known of one scenario, N entries."""

    from_at_s: NDArray[np.float64]  # [N], when it is known
    until_at_s: NDArray[np.float64]  # [N], until when it is so
    kernel: NDArray[np.int64]  # [N], the kernel that is unhealthy as a whole; -1: none
    replica: NDArray[np.int64]  # [N], the single replica that is; -1: none
    slices: NDArray[np.bool_]  # [N, S], where the contract is broken
    replica_rps: NDArray[np.float64] | None = None
    """[M, K], what a healthy replica of each kernel truly carries; None: nobody says."""
    rps_from_at_s: NDArray[np.float64] = field(default_factory=lambda: np.zeros(1))
    """[M], from when on each row of ``replica_rps`` is so."""
    answers: NDArray[np.bool_] | None = None
    """[N], who is unhealthy answers all the same, late or most requests; None: nobody does."""
    fail_ratio: NDArray[np.float64] | None = None
    """[N], share of its attempts that fails, of faults that are nothing else; None: 0 everywhere."""
    began_at_s: NDArray[np.float64] | None = None
    """[N], when it began, known to whoever is compared; None: when it is known."""

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
    """Nothing is known, because nothing happens."""
    nobody = np.zeros(0, dtype=np.int64)
    return Notices(
        from_at_s=np.zeros(0),
        until_at_s=np.zeros(0),
        kernel=nobody,
        replica=nobody,
        slices=np.zeros((0, slices), dtype=np.bool_),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class InformedPolicy:
    """See the module. planner: the policy that makes the table from what is known."""

    policy_id: str
    notices: Notices
    planner: Policy
    kernels: int
    slices: int

    def initial(self, batch: int) -> PolicyState:
        """The planner's."""
        return self.planner.initial(batch)

    def propose(self, seen: Observation, state: PolicyState) -> tuple[Proposal, PolicyState]:
        """Away from what is known to be ill, home when it is known to be well."""
        cells, ejected = self.left(seen)
        level = np.where(cells, int(Level.FALLBACK), seen.level)
        level = np.where(seen.certified, level, np.maximum(level, int(Level.GUARD)))
        told = replace(self.with_capacity(seen), level=level, certified=seen.certified & ~cells)
        proposal, after = self.planner.propose(told, state)
        return replace(proposal, ejected=ejected), after

    def with_capacity(self, seen: Observation) -> Observation:
        """``seen`` with what it knows of the capacity of the replicas in rotation."""
        each_rps = self._each_rps(seen.now_s)
        if each_rps is None:
            return seen
        true_rps = IN_TIME_RATIO * seen.ready * each_rps
        return replace(seen, capacity_rps=true_rps, sure_rps=true_rps)

    def left(self, seen: Observation) -> tuple[Flags, Flags]:
        """What is to be left: cells bool [B, K, S] and single replicas bool [B, R].

        Kernels that answer all the same are left only where the others carry what is offered; slices that
        are at home elsewhere leave them as soon as the others and the homes do.
        """
        replicas, answers = seen.in_rotation.shape[1], self.notices.answers
        if answers is None:
            return self.known(seen.now_s, replicas, np.ones(self.notices.from_at_s.size, dtype=np.bool_))
        broken, gone = self.known(seen.now_s, replicas, ~answers)
        poor, late = self.known(seen.now_s, replicas, answers & ~self._fails)
        worse_cells, worse = self._failing_more(broken, gone, seen)
        poor, late = poor | worse_cells, late | worse
        at_home = np.arange(self.kernels)[:, None] == seen.home
        others = np.asarray(~(broken | poor).any(axis=2))
        alone = self._carry(others, seen)
        with_homes = self._carry(others | (at_home.any(axis=1) & ~broken.any(axis=2)), seen)
        cells = broken | (poor & (alone[:, None, None] | (with_homes[:, None, None] & ~at_home)))
        return cells, gone | self._spared(late & ~gone, gone, seen)

    def _carry(self, serving: Flags, seen: Observation) -> Flags:
        """bool [B]: the ``serving`` kernels, bool [B, K], carry what is offered with a little to spare."""
        carried_rps = (self.with_capacity(seen).planned_rps * serving).sum(axis=1)
        return np.asarray(MOST_LOAD_RATIO * carried_rps >= seen.offered_rps.sum(axis=1))

    @property
    def _fails(self) -> Flags:
        """bool [N]: a share of the attempts fails, and nothing else."""
        told = self.notices.fail_ratio
        return np.zeros(self.notices.from_at_s.size, dtype=np.bool_) if told is None else told > 0.0

    def _failing_more(self, broken: Flags, gone: Flags, seen: Observation) -> tuple[Flags, Flags]:
        """Of those that fail a share of their requests: kernels, cells bool [B, K, S], that fail more than
        another one that serves, and replicas, bool [B, R], that fail more than a peer.

        Neither ``broken`` [B, K, S] kernels nor ``gone`` [B, R] replicas serve.
        """
        owner = seen.replica_kernel
        told = self.notices
        serving = seen.in_rotation & ~gone
        known, slices = self._fail_ratio(seen.now_s, owner, told.from_at_s)
        true, _ = self._fail_ratio(
            seen.now_s, owner, told.from_at_s if told.began_at_s is None else told.began_at_s
        )
        each, really = (_least_of_kernels(np.where(serving, of, np.inf), owner) for of in (known, true))
        least = np.where(broken.all(axis=2), np.inf, really).min(axis=1, keepdims=True)
        cells = (np.isfinite(each) & (each > least))[:, :, None] & slices[:, None, :]
        return cells, np.asarray((known > 0.0) & (known > really[:, owner]))

    def _fail_ratio(
        self, now_s: NDArray[np.float64], owner: NDArray[np.int64], from_at_s: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], Flags]:
        """Share of its attempts that each replica fails, float64 [B, R], by notices ``from_at_s`` [N] on, and
        slices, bool [B, S], where somebody breaks the contract by that.
        """
        told, ratio = self.notices, np.zeros((len(now_s), len(owner)))
        slices = np.zeros((len(now_s), self.slices), dtype=np.bool_)
        if told.fail_ratio is None:
            return ratio, slices
        active = (now_s[:, None] >= from_at_s) & (now_s[:, None] < told.until_at_s)
        for index in np.flatnonzero(self._fails):
            whole = told.kernel[index] >= 0
            struck = owner == told.kernel[index] if whole else np.arange(len(owner)) == told.replica[index]
            ratio = np.maximum(ratio, active[:, index, None] * struck * told.fail_ratio[index])
            slices |= active[:, index, None] & told.slices[index]
        return ratio, slices

    def _spared(self, asked: Flags, gone: Flags, seen: Observation) -> Flags:
        """Of the ``asked`` bool [B, R], in replica order, whom the others can do without."""
        each_rps, found = self._each_rps(seen.now_s), np.zeros_like(asked)
        if each_rps is None:
            return asked
        of_rps = each_rps[:, seen.replica_kernel] * ((seen.in_rotation | asked) & ~seen.quarantined & ~gone)
        offered_rps, rest_rps = seen.offered_rps.sum(axis=1), of_rps.sum(axis=1)
        for b, r in np.argwhere(asked):
            found[b, r] = MOST_LOAD_RATIO * (rest_rps[b] - of_rps[b, r]) >= offered_rps[b]
            rest_rps[b] -= of_rps[b, r] * found[b, r]
        return found

    def _each_rps(self, now_s: NDArray[np.float64]) -> NDArray[np.float64] | None:
        """float64 [B, K], what a healthy replica carries at ``now_s`` [B]."""
        known = self.notices.replica_rps
        if known is None:
            return None
        row = np.searchsorted(self.notices.rps_from_at_s, now_s, side="right") - 1
        return known[np.maximum(row, 0)]

    def known(self, now_s: NDArray[np.float64], replicas: int, of: Flags) -> tuple[Flags, Flags]:
        """What ``of`` bool [N] the notices is known to be ill at ``now_s`` [B]: cells bool [B, K, S] and
        single replicas bool [B, R].
        """
        told = self.notices
        active = (now_s[:, None] >= told.from_at_s) & (now_s[:, None] < told.until_at_s) & of
        cells = np.zeros((len(now_s), self.kernels, self.slices), dtype=np.bool_)
        ejected = np.zeros((len(now_s), replicas), dtype=np.bool_)
        for index in range(told.from_at_s.size):
            if told.kernel[index] >= 0:
                cells[:, told.kernel[index]] |= active[:, index, None] & told.slices[index]
            else:
                ejected[:, told.replica[index]] |= active[:, index]
        return cells, ejected


def _least_of_kernels(values: NDArray[np.float64], owner: NDArray[np.int64]) -> NDArray[np.float64]:
    """float64 [B, K], the least of ``values`` [B, R] of each kernel; inf without a replica."""
    kernels = range(int(owner.max()) + 1)
    return np.stack([values[:, owner == k].min(axis=1, initial=np.inf) for k in kernels], axis=1)
