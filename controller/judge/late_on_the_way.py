"""Replicas that are late on the way: their server is in time, and its answers come too late all the same.

No metric of a server shows it and the gateway's times are of whole kernels, so the kernel would be condemned
for a replica behind a slow network. The time between gateway and server (``perceive.on_the_way``) depends on
no queue and no peer: where it is all of an objective, or a good part of it and what the replica shows with it
lies beyond the clause's limit, the replica is at fault. Where most of a kernel's replicas are, it is the
kernel, of which the gateway's own times speak.
"""

from __future__ import annotations

import numpy as np

from contracts.telemetry import Source
from contracts.units import MS_PER_S
from controller.cells import kernel_count
from controller.detect.clauses import moves_traffic, replica_places
from controller.detect.sums import excess_of_sums
from controller.judge.departures import Case, Flags
from controller.perceive.on_the_way import late_by_s

#: Share of the objective that the way alone has to take.
LEAST_RATIO = 0.25


def late_on_the_way(case: Case) -> Flags | None:
    """bool [B, R, S, C]: of ``late_replicas``, where most of the kernel's others are not; None: nobody."""
    found = late_replicas(case)
    if found is None:
        return None
    late = kernel_count(np.asarray(found.any(axis=(2, 3))), case.owner, case.kernels)
    most = 2 * (late - 1) >= kernel_count(case.ready, case.owner, case.kernels) - 1
    found &= ~most[:, case.owner][:, :, None, None]
    return found if bool(found.any()) else None


def late_replicas(case: Case) -> Flags | None:
    """bool [B, R, S, C]: late on the way, and beyond the limit of a clause on latency; None: nobody.

    Booked in ``replica_places``. A way as long as the objective leaves no answer in time.
    """
    contract, late_s = case.setup.contract, late_by_s(case.estimate.state)
    if not bool(late_s.any()):
        return None
    judged = (contract.source == Source.LATENCY) & moves_traffic(contract)
    objective_s = np.where(judged, contract.threshold / MS_PER_S, np.inf)
    way_s = (late_s * case.ready)[:, :, None, None]
    beyond = excess_of_sums(case.verdicts.replicas.judged, contract) > 0.0
    found = beyond & (way_s >= LEAST_RATIO * objective_s)
    found |= (way_s >= objective_s) & replica_places(contract)
    return found if bool(found.any()) else None
