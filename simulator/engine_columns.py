"""Columns of the engine's integer counters: per (replica, slice) cells, and per slice."""

from __future__ import annotations

(
    ANSWERED, FAILED, ATTEMPTS_FAILED, ATTEMPTS_REJECTED, SLO_MISSED, EXPOSED, EXPOSED_IN_FLIGHT, TOKENS,
    DISPATCHED,
) = range(9)  # fmt: skip
CELL_COLUMNS = 9

OFFERED, SHED_COUNT, UNROUTED, OFFERED_TOKENS, FIRST_REASON = range(5)
SLICE_COLUMNS = FIRST_REASON + 5
