"""Which replicas stand apart from their kernel, and which speak for all of it.

A replica *departs* where it is in alarm on a clause and most of its peers with evidence on that clause are
inside the limit, or where the pool of its kernel is beyond the limit with it and not without it. Replicas
that are in alarm *together* say something of the build and condemn the kernel instead; but not on traffic,
where what a replica shows is of no slice and the kernel has counts of its own.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import CompiledContract
from contracts.telemetry import FleetTelemetry
from controller.cells import kernel_count, pool
from controller.detect.clauses import (
    applies,
    from_traffic,
    moves_traffic,
    replica_places,
    zero_tolerance,
)
from controller.detect.detector import AlarmState, PooledAlarms
from controller.detect.significance import beyond_limit
from controller.detect.sums import COUNT, Sums, excess_of_sums
from controller.detect.tick import DetectorOutputs
from controller.judge.departures_pass import (
    Alarms,
    Limits,
    Witnesses,
    compare,
    explain_departures,
    stay_with_kernel,
)
from controller.options import ControllerSetup
from controller.perceive.estimate import Estimate
from controller.state import ControllerState

Flags = NDArray[np.bool_]

#: Stands for flags [B, R, S, C] that nobody gives: without a fleet.
NO_FLAGS: Flags = np.zeros((0, 0, 0, 0), dtype=np.bool_)


class Case(NamedTuple):
    """What a tick is judged by."""

    estimate: Estimate
    telemetry: FleetTelemetry
    verdicts: DetectorOutputs
    ready: Flags  # [B, R], says discovery
    setup: ControllerSetup

    @property
    def kernels(self) -> int:
        """Kernels of the pool."""
        return len(self.setup.layout.kernels)

    @property
    def owner(self) -> NDArray[np.int64]:
        """int64 [R], kernel of each replica."""
        return self.setup.layout.replica_kernel


def stand_apart(severe: Flags, case: Case) -> Alarms:
    """Who departs and who stays together; ``severe`` bool [B, R, S, C], alarms that move traffic.

    Detectors that judge observations as they come hear one replica before another when all are unhealthy:
    on a clause that the whole kernel is condemned for, on whatever slice, no replica stands apart.
    """
    alarms = against_peers(severe, case)
    if case.verdicts.kernels is not None:
        explain_departures(alarms.departs, alarms.together, case.estimate.state.condemned, case.owner)
    return alarms


def against_peers(severe: Flags, case: Case) -> Alarms:
    """Who is in alarm against most peers, and who with most of them.

    A peer speaks against the kernel as soon as its own estimate lies beyond the limit: that it is not
    in alarm yet may only mean that it has shown less.
    """
    plain, verdicts = np.ascontiguousarray, case.verdicts.replicas
    alarms = Alarms(severe=plain(severe), departs=np.zeros_like(severe), together=np.zeros_like(severe))
    witnesses = Witnesses(
        judged=plain(verdicts.judged),
        window=plain(case.estimate.state.window),
        against=NO_FLAGS if verdicts.against is None else plain(verdicts.against),
        ready=plain(case.ready),
    )
    compare(alarms, witnesses, _limits(case.setup.contract), case.owner, case.kernels)
    return alarms


@lru_cache(maxsize=64)
def _limits(contract: CompiledContract) -> Limits:
    return Limits(
        zero=zero_tolerance(contract),
        is_rate=contract.is_rate,
        rate_limit=contract.rate_limit,
        threshold=contract.threshold,
        sense=contract.sense,
    )


def with_culprits(alarms: Alarms | None, severe: Flags, culprits: Flags) -> Alarms:
    """``alarms`` in which the ``culprits`` bool [B, R, S, C] depart as well."""
    if alarms is None:
        return Alarms(severe=severe, departs=culprits, together=np.zeros_like(severe))
    return alarms._replace(departs=alarms.departs | culprits)


def culprits_of(case: Case) -> Flags | None:
    """Bool [B, R, S, C]: the one replica without which the pool of its kernel is not beyond the limit.

    A pool sees more observations than a replica and raises an alarm earlier; when it is beyond a limit
    because of one member, that member is to go and not the kernel. Several such members, or none, leave it
    with the kernel. None: nobody anywhere.
    """
    if case.verdicts.kernels is None:
        return _by_closed_windows(case)
    return _by_recent_sums(case, case.verdicts.kernels)


def _by_closed_windows(case: Case) -> Flags | None:
    """Judged by the windows that close now."""
    state, closed, contract = case.estimate.state, case.estimate.closed, case.setup.contract
    if not bool(closed.any()):
        return None
    counted = case.ready & ~state.quarantined
    pooled = pool(state.window, counted, case.owner, case.kernels)
    enough = (pooled[..., COUNT] >= contract.min_samples) & closed[:, None, None, None]
    beyond, _ = beyond_limit(pooled, enough & applies(contract) & moves_traffic(contract), contract)
    if not bool(beyond.any()):
        return None
    return _guilty(state.window, counted, beyond, case)


def of_kernels(found: Flags, contract: CompiledContract) -> Flags:
    """``found`` bool [B, K, S, C], of pooled evidence of replicas, on the slices that it says something of.

    What replicas show of traffic is of all their requests: it holds on whatever slice.
    """
    return np.where(from_traffic(contract), _anywhere(found, contract), found)


def _of_replicas(found: Flags, contract: CompiledContract) -> Flags:
    """``found`` bool [B, K, S, C], of kernels, where the evidence of their replicas is booked."""
    somewhere = found.any(axis=2, keepdims=True) & replica_places(contract)
    return np.where(from_traffic(contract), somewhere, found)


def _anywhere(found: Flags, contract: CompiledContract) -> Flags:
    """bool [B, K, 1, C]: found where evidence of replicas is booked."""
    return np.asarray((found & replica_places(contract)).any(axis=2, keepdims=True))


def _by_recent_sums(case: Case, pooled: PooledAlarms) -> Flags | None:
    """The same at the tick of a pool's alarm, by the recent sums of its members."""
    raised, verdicts = pooled.alarms.alarm & ~pooled.was_alarm, case.verdicts.replicas
    moves = moves_traffic(case.setup.contract)
    if not bool(raised.any()) or not bool((raised & moves).any()):
        return None
    counted = case.ready & ~case.estimate.state.quarantined
    beyond = _of_replicas(raised & moves, case.setup.contract)
    guilty = _guilty(verdicts.judged, counted, beyond, case)
    against = _speaks_against(verdicts, case.setup.contract) & counted[:, :, None, None]
    others = kernel_count(against, case.owner, case.kernels)[:, case.owner] - against
    return np.asarray(guilty & (others == 0))


def _speaks_against(verdicts: AlarmState, contract: CompiledContract) -> Flags:
    """Bool [B, R, S, C]: the estimate lies beyond the limit."""
    if verdicts.against is not None:
        return verdicts.against
    return np.asarray(excess_of_sums(verdicts.judged, contract) > 0.0)


def _guilty(sums: Sums, counted: Flags, beyond: Flags, case: Case) -> Flags:
    """Bool [B, R, S, C]: the one ``counted`` member that puts its pool ``beyond`` the limit."""
    owner, contract = case.owner, case.setup.contract
    some = np.flatnonzero(beyond.any(axis=(1, 2, 3)))
    own = np.where(counted[some][:, :, None, None, None], sums[some], 0.0)
    rest = pool(own, counted[some], owner, case.kernels)[:, owner] - own
    received = 2.0 * rest[..., COUNT] >= contract.min_samples
    cleared = received & (excess_of_sums(rest, contract) <= 0.0)
    guilty = np.zeros(sums.shape[:-1], dtype=np.bool_)
    alone = beyond[some][:, owner] & cleared & (excess_of_sums(own, contract) > 0.0)
    alone &= own[..., COUNT] > 0.0
    guilty[some] = alone & (kernel_count(alone, owner, case.kernels)[:, owner] == 1)
    return guilty


def spread_of(alarms: Alarms | None, state: ControllerState, setup: ControllerSetup) -> Flags | None:
    """Bool [B, R, S, C]: alarms of replicas in rotation that stay with the kernel; None: there are none.

    state: after quarantine acted.
    """
    if alarms is None:
        return None
    spread, zero = np.zeros_like(alarms.severe), zero_tolerance(setup.contract)
    counted = from_traffic(setup.contract)
    some = stay_with_kernel(spread, alarms, setup.options.quarantine, zero, counted, state.quarantined)
    return spread if some else None
