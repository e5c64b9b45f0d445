"""What one tick brought, per replica and per kernel, for detectors that judge every unit when it comes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contracts.telemetry import FleetTelemetry
from controller.compiled import pool_news
from controller.detectors import Arrivals
from controller.estimate import Estimate, kernel_count
from controller.paired import changed_replicas
from controller.setup import ControllerSetup
from controller.state import ControllerState


def replica_arrivals(
    before: ControllerState, estimate: Estimate, seen: FleetTelemetry, setup: ControllerSetup
) -> Arrivals:
    """Units of every replica, in quarantine or not. ``before``: the state that this tick began with."""
    return Arrivals(
        pooled=False,
        probes=seen.probes,
        heard=estimate.heard,
        unit_of=np.arange(len(setup.layout.replicas)),
        sums=estimate.sums,
        doubted=before.replica_condemned,
        since_s=estimate.since_s,
        news=estimate.news,
        changed=changed_replicas(before.paired) if setup.paired is not None and setup.paired.prior else None,
    )


def kernel_arrivals(before: ControllerState, replicas: Arrivals, setup: ControllerSetup) -> Arrivals:
    """The same units pooled over the replicas of each kernel that were in rotation before this tick."""
    kernels, _, _ = setup.layout.shape
    members, owner = ~before.quarantined, setup.layout.replica_kernel
    mine = np.take_along_axis(members, replicas.probes.replica, axis=1)
    batch, _, *rest = replicas.sums.shape
    sums, news = np.zeros((batch, kernels, *rest)), np.zeros((batch, kernels, rest[0]), dtype=np.bool_)
    told = np.ones(replicas.sums.shape[:3], dtype=np.bool_) if replicas.news is None else replicas.news
    pool_news(sums, news, replicas.sums, told, members, owner)
    return Arrivals(
        pooled=True,
        probes=replicas.probes,
        heard=replicas.heard & mine,
        unit_of=owner,
        sums=sums,
        doubted=before.condemned,
        since_s=replicas.since_s,
        news=news,
        changed=_changed_kernels(replicas.changed, members, owner, kernels),
    )


def _changed_kernels(
    changed: NDArray[np.bool_] | None, members: NDArray[np.bool_], owner: NDArray[np.int64], kernels: int
) -> NDArray[np.bool_] | None:
    """bool [B, K]: at least half of the members are changed: likely it is the build that changed."""
    if changed is None:
        return None
    count = kernel_count(members & changed, owner, kernels)
    return np.asarray((count > 0) & (2 * count >= kernel_count(members, owner, kernels)))
