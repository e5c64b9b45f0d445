"""Replicas that state the right build again: one scrape shows the build, two in a row that it is stable."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import CompiledContract
from contracts.telemetry import FleetTelemetry
from controller.cells import some_in
from controller.detect.clauses import identity_clauses
from controller.detect.sums import Sums

Flags = NDArray[np.bool_]

#: Consecutive right statements that a server needs: two servers behind one name answer in turns.
ENOUGH = 2


class Statements(NamedTuple):
    """Builds that servers stated."""

    right_in_a_row: NDArray[np.int64]  # [B, R], right statements since a wrong one, at most ``ENOUGH``
    restated: Flags | None  # [B, R], reached ``ENOUGH`` in this tick (None: no replica)


def follow_statements(
    right_in_a_row: NDArray[np.int64], telemetry: FleetTelemetry, fresh: Flags
) -> Statements:
    """Statements after one telemetry; ``fresh``: bool [B, R], a new scrape arrived.

    Without a new scrape nothing changes.
    """
    wrong = telemetry.fingerprint_match == 0.0
    doubted = right_in_a_row < ENOUGH
    if not (some_in(wrong) or some_in(doubted)):
        return Statements(right_in_a_row, None)
    right = fresh & (telemetry.fingerprint_match == 1.0)
    counts = np.where(fresh & wrong, 0, np.minimum(right_in_a_row + right, ENOUGH))
    restated = doubted & (counts >= ENOUGH)
    return Statements(counts, restated if some_in(restated) else None)


def forget_wrong(window: Sums, restated: Flags | None, contract: CompiledContract) -> None:
    """Clear identity clauses of ``restated`` replicas [B, R] from the running ``window``, in place.

    window: float64 [B, R, S, C, 4]. Its older observations would raise the alarm again.
    """
    if restated is not None:
        fleet, replica = np.nonzero(restated)
        window[fleet[:, None], replica[:, None], :, identity_clauses(contract)] = 0.0
