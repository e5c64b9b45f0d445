"""Guards of drills, computed from an ``EpisodeRecord``: the same measures in every world. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contracts.documents.drill import Guard
from contracts.scoring.episode import EpisodeRecord

#: A guard's metric per row of the record: numerator and denominator, [T, S] or [T, 1].
_Parts = tuple[NDArray[np.float64], NDArray[np.float64]]


def _failures(record: EpisodeRecord) -> _Parts:
    failed = (record.failed + record.shed).astype(np.float64)
    return failed, failed + record.answered


def _late(record: EpisodeRecord) -> _Parts:
    return record.slo_missed.astype(np.float64), record.answered.astype(np.float64)


def _exposed(record: EpisodeRecord) -> _Parts:
    return record.exposed.astype(np.float64), record.answered.astype(np.float64)


def _rotation(record: EpisodeRecord) -> _Parts:
    serving = record.in_rotation.sum(axis=1, keepdims=True).astype(np.float64)
    return serving, np.full_like(serving, len(record.replicas))


#: Functions for ``GUARD_METRICS``: shares of requests, and of replicas in rotation.
METRICS: dict[str, Callable[[EpisodeRecord], _Parts]] = {
    "failure_rate": _failures,
    "late_ratio": _late,
    "exposed_ratio": _exposed,
    "rotation_ratio": _rotation,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardReading:
    """A guard's value over some rows. value None: unknown, because no request ended there."""

    guard: Guard
    value: float | None
    at_s: float  # end of the window with that value

    @property
    def holds(self) -> bool | None:
        """Whether the guard is within its limit; None if unknown."""
        if self.value is None:
            return None
        beyond = self.value - self.guard.threshold
        return beyond <= 1e-12 if self.guard.sense == "at_most" else beyond >= -1e-12

    @property
    def text(self) -> str:
        """The value and its time, or why it is unknown."""
        return "no request ended" if self.value is None else f"{self.value:.4g} at {self.at_s:g} s"


def latest(record: EpisodeRecord, guard: Guard, start_row: int = 0) -> GuardReading:
    """The guard over the last window of the record, which begins at ``start_row`` at the earliest."""
    end = len(record.table)
    first = max(start_row, end - _rows(record, guard))
    return GuardReading(guard=guard, value=_value(record, guard, first, end), at_s=end * record.tick_s)


def worst(record: EpisodeRecord, guard: Guard, start_row: int, end_row: int) -> GuardReading:
    """The guard's worst full window in rows [start_row, end_row), or all these rows if they are fewer."""
    window, sign = _rows(record, guard), 1.0 if guard.sense == "at_most" else -1.0
    ends = range(min(start_row + window, end_row), end_row + 1)
    found = [(_value(record, guard, max(start_row, end - window), end), end) for end in ends]
    known = [(sign * value, value, end) for value, end in found if value is not None]
    if not known:
        return GuardReading(guard=guard, value=None, at_s=end_row * record.tick_s)
    _, value, end = max(known, key=lambda one: one[0])
    return GuardReading(guard=guard, value=value, at_s=end * record.tick_s)


def _rows(record: EpisodeRecord, guard: Guard) -> int:
    return max(1, math.ceil(guard.window_s / record.tick_s - 1e-9))


def _value(record: EpisodeRecord, guard: Guard, first: int, end: int) -> float | None:
    part, whole = METRICS[guard.metric](record)
    chosen: slice | int = slice(None)
    if guard.slice is not None and part.shape[1] > 1:
        if guard.slice not in record.slices:
            return None
        chosen = record.slices.index(guard.slice)
    total = float(whole[first:end, chosen].sum())
    return float(part[first:end, chosen].sum()) / total if total > 0.0 else None
