"""Whose fault a slow clock is: the replica's, its zone's or its kernel's.

A replica's own clock (``clauses.own_clock``) depends on no peer, so every replica is judged by itself, and
who is slow says where the fault lies. A replica *shows* its clock while it serves; it is *proven* slow in
alarm, and *slow* as soon as its own evidence leans that way. In this order:

1. *zone*, where the pool declares zones: whoever shows a clock in it is slow, replicas of two kernels at
   least, one of them proven, and of those elsewhere more than half are not slow. Its slow replicas go and its
   kernels stay. When replicas of two kernels are proven, whoever else is in it goes as well where its kernel
   has weight, and stays away as long as that holds: what leaves the others is moved there next.
2. *kernel*: of its replicas outside such zones another one is slow, and at least half of the others, as with
   every clause (``departures``).
3. *replica*: everything else.

A kernel has no clock of its own, and the mean over its replicas is slow when a few of them are: it is
condemned while its replicas say so, by 2 or because the ejection cap keeps a slow one in rotation, and no
longer.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.cells import kernel_count, some_at, some_in, some_within
from controller.detect.clauses import clock_clauses
from controller.detect.sums import COUNT, excess_of_sums
from controller.judge.replicas.departures import Case, Flags
from controller.judge.replicas.departures_pass import Alarms

#: Kernels of which replicas must be slow before their zone is: one alone is told from a slow build by peers.
LEAST_KERNELS = 2


class OwnClocks(NamedTuple):
    """What the replicas show of their own clocks; all bool [B, R]."""

    shown: Flags  # [B, R], shows a clock
    slow: Flags  # [B, R], beyond its limit
    proven: Flags  # [B, R], the evidence says so


def healthy_clocks(case: Case) -> Flags:
    """bool [B, R]: shows a clock, and is not slow."""
    places = clock_clauses(case.setup.contract)
    if not places.size:
        return np.zeros(case.ready.shape, dtype=np.bool_)
    clocks = _clocks(case.verdicts.replicas.alarm[..., places], places, case)
    return np.asarray(clocks.shown & ~clocks.slow)


def attribute(alarms: Alarms | None, case: Case) -> tuple[Alarms | None, Flags | None]:
    """``alarms`` as the module says on clauses of own clocks, and bool [B, R]: who goes with its zone.

    None: there is nothing to attribute.
    """
    places = clock_clauses(case.setup.contract)
    if alarms is None or not places.size or not some_at(alarms.severe, places):
        return alarms, None
    clocks = _clocks(alarms.severe[..., places], places, case)
    zones = zones_of(case.setup.layout.zones, len(case.owner))
    faulty = slow_zones(clocks, zones, case)
    together = _with_kernel(clocks, faulty, case)
    mine = alarms.severe[..., places] & case.ready[:, :, None, None]
    departs, stays = alarms.departs.copy(), alarms.together.copy()
    departs[..., places] = mine & ~together[:, :, None, None]
    stays[..., places] = mine & together[:, :, None, None]
    return alarms._replace(departs=departs, together=stays), _drained(clocks, faulty, zones, case)


@lru_cache(maxsize=64)
def zones_of(zones: tuple[str, ...], replicas: int) -> NDArray[np.int64]:
    """int64 [R]: number of each replica's zone; -1: of none that is known."""
    names = sorted(set(zones) - {""})
    known = zones or ("",) * replicas
    return np.array([names.index(one) if one else -1 for one in known], dtype=np.int64)


def _clocks(severe: Flags, places: NDArray[np.int64], case: Case) -> OwnClocks:
    """``severe``: bool [B, R, S, clauses on own clocks], alarms that move traffic."""
    verdicts, contract = case.verdicts.replicas, case.setup.contract
    leans = excess_of_sums(verdicts.judged, contract) > 0.0 if verdicts.against is None else verdicts.against
    proven = some_within(severe, 2) & case.ready
    counted = some_within(verdicts.judged[..., places, COUNT] > 0.0, 2)
    shown = (counted & case.ready) | proven
    return OwnClocks(shown, proven | (shown & some_within(leans[..., places], 2)), proven)


def slow_zones(clocks: OwnClocks, zones: NDArray[np.int64], case: Case) -> Flags:
    """bool [B, R]: the replica's zone is at fault."""
    faulty = np.zeros(clocks.slow.shape, dtype=np.bool_)
    for zone in range(int(zones.max(initial=-1)) + 1):
        inside = zones == zone
        all_slow = ~(clocks.shown & ~clocks.slow & inside).any(axis=1)
        elsewhere = clocks.shown & ~inside
        well_elsewhere = 2 * (elsewhere & clocks.slow).sum(axis=1) < elsewhere.sum(axis=1)
        several = _kernels_of(clocks.slow & inside, case) >= LEAST_KERNELS
        found = all_slow & well_elsewhere & several & (clocks.proven & inside).any(axis=1)
        faulty |= found[:, None] & inside
    return faulty


def of_weighted(case: Case) -> Flags:
    """bool [B, R]: its kernel has weight on some slice."""
    return np.asarray((case.estimate.state.table[:, :, :-1] > 0.0).any(axis=1))[:, case.owner]


def _kernels_of(flagged: Flags, case: Case) -> NDArray[np.int64]:
    """int64 [B]: kernels with a replica that is ``flagged`` bool [B, R]."""
    return np.asarray((kernel_count(flagged, case.owner, case.kernels) > 0).sum(axis=1))


def _with_kernel(clocks: OwnClocks, faulty: Flags, case: Case) -> Flags:
    """bool [B, R]: proven slow, and so are at least half of its peers outside of slow zones, one at least."""
    seen = clocks.shown & ~faulty
    shown = kernel_count(seen, case.owner, case.kernels)[:, case.owner]
    against = kernel_count(seen & clocks.slow, case.owner, case.kernels)[:, case.owner]
    most = (2 * (against - 1) >= shown - 1) & (against > 1)
    return np.asarray(clocks.proven & ~faulty & most)


def _drained(clocks: OwnClocks, faulty: Flags, zones: NDArray[np.int64], case: Case) -> Flags | None:
    """bool [B, R]: goes because its zone is slow, without a proof of its own; None: nobody."""
    drained, weighted = np.zeros(faulty.shape, dtype=np.bool_), of_weighted(case)
    for zone in np.unique(zones[faulty.any(axis=0)]):
        inside = (zones == zone) & faulty
        proven = _kernels_of(clocks.proven & inside, case) >= LEAST_KERNELS
        drained |= inside & proven[:, None] & case.ready & ~clocks.proven & weighted
    return drained if some_in(drained) else None
