"""Columns of the engine's integer counters: per (replica, slice) cells, and per slice."""

from __future__ import annotations

ANSWERED, FAILED, ATTEMPTS_FAILED, ATTEMPTS_REJECTED, SLO_MISSED, EXPOSED, EXPOSED_IN_FLIGHT, TOKENS = range(
    8
)
CELL_COLUMNS = 8

OFFERED, SHED_COUNT, UNROUTED, OFFERED_TOKENS, FIRST_REASON = range(5)
SLICE_COLUMNS = FIRST_REASON + 5
