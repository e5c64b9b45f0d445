"""Who states the right build again: one scrape says what a server is, and two in a row that it stays so."""

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

#: Right statements in a row after which a server is believed: two servers behind one name take turns.
ENOUGH = 2


class Statements(NamedTuple):
    """What servers said of themselves."""

    right_in_a_row: NDArray[np.int64]  # [B, R], since a wrong one, ``ENOUGH`` at most
    restated: Flags | None  # [B, R], enough from this tick on (None: nobody)


def follow_statements(
    right_in_a_row: NDArray[np.int64], telemetry: FleetTelemetry, fresh: Flags
) -> Statements:
    """After one telemetry; ``fresh``: bool [B, R], a new scrape arrived. Silence changes nothing."""
    wrong = telemetry.fingerprint_match == 0.0
    doubted = right_in_a_row < ENOUGH
    if not (some_in(wrong) or some_in(doubted)):
        return Statements(right_in_a_row, None)
    right = fresh & (telemetry.fingerprint_match == 1.0)
    rows = np.where(fresh & wrong, 0, np.minimum(right_in_a_row + right, ENOUGH))
    restated = doubted & (rows >= ENOUGH)
    return Statements(rows, restated if some_in(restated) else None)


def forget_wrong(window: Sums, restated: Flags | None, contract: CompiledContract) -> None:
    """Empty the running ``window`` [B, R, S, C, 4] of identity, of who is ``restated`` [B, R], in place: it
    would raise the alarm again.
    """
    if restated is not None:
        fleet, replica = np.nonzero(restated)
        window[fleet[:, None], replica[:, None], :, identity_clauses(contract)] = 0.0
