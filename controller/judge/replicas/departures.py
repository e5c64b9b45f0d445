"""Comparison of replicas with their peers: which depart from their kernel, and which show its fault.

A replica *departs* where it is in alarm on a clause and most of its peers with evidence on that clause are
inside the limit, or where the pool of its kernel is beyond the limit with it and not without it. Replicas
that are in alarm *together* indicate a fault of the build and condemn the kernel instead. Traffic clauses are
an exception: a replica's traffic is not counted by slice, and the kernel has counts of its own.
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
from controller.state import ControllerState, not_evidence_for_kernel

Flags = NDArray[np.bool_]

#: Stands for absent flags [B, R, S, C]: of no fleet.
NO_FLAGS: Flags = np.zeros((0, 0, 0, 0), dtype=np.bool_)


class Case(NamedTuple):
    """Everything by which a tick is judged."""

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
    """Alarms of replicas that depart and that are together; ``severe`` bool [B, R, S, C], those that move
    traffic.

    Detectors that judge observations as they come find one replica before another when all are unhealthy. So
    on a clause for which the whole kernel is condemned, on any slice, no replica departs.
    """
    alarms = against_peers(severe, case)
    if case.verdicts.kernels is not None:
        explain_departures(alarms.departs, alarms.together, case.estimate.state.condemned, case.owner)
    return alarms


def against_peers(severe: Flags, case: Case) -> Alarms:
    """Replicas in alarm while most peers are inside the limit, and those in alarm with most of them.

    A peer counts against the kernel as soon as its own estimate is beyond the limit: that it is not in alarm
    yet may only mean that it has fewer observations.
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

    Needed replicas are ignored: to leave their kernel would lose the same capacity. state: after quarantine.
    """
    if alarms is None:
        return None
    spread, zero = np.zeros_like(alarms.severe), zero_tolerance(setup.contract)
    counted = from_traffic(setup.contract)
    silent = not_evidence_for_kernel(state)
    some = stay_with_kernel(spread, alarms, setup.options.quarantine, zero, counted, silent)
    return spread if some else None
