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
from controller.detect.clauses import (
    from_traffic,
    zero_tolerance,
)
from controller.detect.tick import DetectorOutputs
from controller.judge.replicas.departures_pass import (
    Alarms,
    Limits,
    Witnesses,
    compare,
    explain_departures,
    stay_with_kernel,
)
from controller.options import ControllerSetup
from controller.perceive.estimate import Estimate
from controller.state import ControllerState, speaks_for_nobody

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

    Detectors that judge observations as they come see one replica before another when all are unhealthy:
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


def spread_of(alarms: Alarms | None, state: ControllerState, setup: ControllerSetup) -> Flags | None:
    """Bool [B, R, S, C]: alarms of replicas in rotation that stay with the kernel; None: there are none.

    Who is needed says nothing: to leave its kernel would lose the same capacity.

    state: after quarantine acted.
    """
    if alarms is None:
        return None
    spread, zero = np.zeros_like(alarms.severe), zero_tolerance(setup.contract)
    counted = from_traffic(setup.contract)
    silent = speaks_for_nobody(state)
    some = stay_with_kernel(spread, alarms, setup.options.quarantine, zero, counted, silent)
    return spread if some else None
