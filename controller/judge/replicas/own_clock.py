"""Attribution of slow engine steps: to the replica, to its zone or to its kernel.

A replica's own clock (``clauses.own_clock``: its step times) depends on no peer, so every replica is judged
by itself. The set of slow replicas then shows where the fault lies. A replica *shows* its clock while it
serves. It is *proven* slow while it is in alarm, and *slow* as soon as its own estimate lies beyond the
limit. The rules apply in this order:

1. *Zone*, where the pool declares zones. A zone is at fault if every replica in it that shows a clock is
   slow, these belong to at least two kernels, at least one of them is proven, and more than half of the
   replicas elsewhere are not slow. Its slow replicas are ejected; its kernels are not condemned. While
   replicas of at least two kernels are proven, all other ready replicas of the zone are ejected as well if
   their kernel has weight, because they would receive the traffic of the ejected ones next.
2. *Kernel*: another replica outside such zones is slow, and at least half of the peers there are, as on every
   clause (``departures``).
3. *Replica*: everything else.

A kernel has no clock of its own, and the mean over its replicas is slow when only a few of them are. So it is
condemned only while its replicas are evidence against it: by rule 2, or because the ejection cap keeps a slow
replica in rotation.
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

#: Least kernels with slow replicas before their zone is at fault; with only one it may be a slow build.
LEAST_KERNELS = 2


class OwnClocks(NamedTuple):
    """State of the replicas' own clocks; all bool [B, R]."""

    shown: Flags  # [B, R], has step times to judge
    slow: Flags  # [B, R], its estimate is beyond the limit
    proven: Flags  # [B, R], in alarm


def healthy_clocks(case: Case) -> Flags:
    """bool [B, R]: shows a clock, and is not slow."""
    places = clock_clauses(case.setup.contract)
    if not places.size:
        return np.zeros(case.ready.shape, dtype=np.bool_)
    clocks = _clocks(case.verdicts.replicas.alarm[..., places], places, case)
    return np.asarray(clocks.shown & ~clocks.slow)


def attribute(alarms: Alarms | None, case: Case) -> tuple[Alarms | None, Flags | None]:
    """``alarms`` with clauses on own clocks attributed by the rules of this module, and drained replicas.

    The latter, bool [B, R], are ejected with their zone, without evidence of their own. None: no replica.
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
    """int64 [R]: index of each replica's zone; -1: unknown zone."""
    names = sorted(set(zones) - {""})
    declared = zones or ("",) * replicas
    return np.array([names.index(zone) if zone else -1 for zone in declared], dtype=np.int64)


def _clocks(severe: Flags, places: NDArray[np.int64], case: Case) -> OwnClocks:
    """State of own clocks; ``severe``: bool [B, R, S, clauses on own clocks], alarms that move traffic."""
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
        fast_elsewhere = 2 * (elsewhere & clocks.slow).sum(axis=1) < elsewhere.sum(axis=1)
        several = _kernels_of(clocks.slow & inside, case) >= LEAST_KERNELS
        at_fault = all_slow & fast_elsewhere & several & (clocks.proven & inside).any(axis=1)
        faulty |= at_fault[:, None] & inside
    return faulty


def of_serving_kernels(case: Case) -> Flags:
    """bool [B, R]: its kernel has weight on some slice."""
    return np.asarray((case.estimate.state.table[:, :, :-1] > 0.0).any(axis=1))[:, case.owner]


def _kernels_of(flagged: Flags, case: Case) -> NDArray[np.int64]:
    """int64 [B]: number of kernels with a replica that is ``flagged`` bool [B, R]."""
    return np.asarray((kernel_count(flagged, case.owner, case.kernels) > 0).sum(axis=1))


def _with_kernel(clocks: OwnClocks, faulty: Flags, case: Case) -> Flags:
    """bool [B, R]: proven slow, and at least one and half of its peers outside of slow zones are slow."""
    outside = clocks.shown & ~faulty
    shown = kernel_count(outside, case.owner, case.kernels)[:, case.owner]
    against = kernel_count(outside & clocks.slow, case.owner, case.kernels)[:, case.owner]
    most = (2 * (against - 1) >= shown - 1) & (against > 1)
    return np.asarray(clocks.proven & ~faulty & most)


def _drained(clocks: OwnClocks, faulty: Flags, zones: NDArray[np.int64], case: Case) -> Flags | None:
    """bool [B, R]: ejected because its zone is slow, without evidence of its own; None: no replica."""
    drained, weighted = np.zeros(faulty.shape, dtype=np.bool_), of_serving_kernels(case)
    for zone in np.unique(zones[faulty.any(axis=0)]):
        inside = (zones == zone) & faulty
        proven = _kernels_of(clocks.proven & inside, case) >= LEAST_KERNELS
        drained |= inside & proven[:, None] & case.ready & ~clocks.proven & weighted
    return drained if some_in(drained) else None
