"""The supervisor: what to do when the controller no longer knows.

Telemetry that is silent fleet-wide for longer than the contract's ``stale_after_s`` says nothing bad of
anybody: the last table is held. After ``degrade_after_s`` of silence the table degrades to the known-good
baseline, which was certified for such a case. The shield runs after this, so a held table still respects
what is known (hard violations, replicas that discovery reports gone).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from controller.estimate import Estimate
from controller.setup import ControllerSetup
from controller.shield import normalise


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervised:
    """table: float64 [B, S, K + 1]; held, degraded: bool [B]."""

    table: NDArray[np.float64]
    held: NDArray[np.bool_]
    degraded: NDArray[np.bool_]


def supervise(
    proposed: NDArray[np.float64], last: NDArray[np.float64], estimate: Estimate, setup: ControllerSetup
) -> Supervised:
    """The proposal, or the last table, or the known-good baseline, by how long telemetry is silent."""
    table = normalise(proposed, last)
    if not bool(estimate.stale.any()):
        return Supervised(table=table, held=estimate.stale, degraded=estimate.stale)
    degraded = estimate.stale & (estimate.silent_s > setup.options.degrade_after_s)
    baseline = np.zeros_like(table)
    baseline[:, :, setup.layout.known_good] = 1.0
    table = np.where(estimate.stale[:, None, None], last, table)
    table = np.where(degraded[:, None, None], baseline, table)
    return Supervised(table=table, held=estimate.stale & ~degraded, degraded=degraded)
