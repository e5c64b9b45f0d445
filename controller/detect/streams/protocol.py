"""Protocol of detectors of a stream: state arrays, one update for many streams, an alarm at a threshold.

A stream is a sequence of observations (one number per probe prompt, or one per scrape). Detectors hold only
settings; all memory is in ``StreamState``, so that state serialises and a batch can be split. This module
also has the guaranteed threshold of log-evidence, and the test of it in compiled code.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from contracts.jit import compiled

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

#: Statistic of a stream without observations; log of the smallest evidence that is distinct from 0.
LOWEST = -690.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamState:
    """Memory of N streams: ``memory`` float64 [N, width], ``statistic`` float64 [N], as last updated."""

    memory: Floats  # [N, width]
    statistic: Floats  # [N], as last updated

    def copy(self) -> StreamState:
        """An independent copy."""
        return StreamState(memory=self.memory.copy(), statistic=self.statistic.copy())


class StreamDetector(Protocol):
    """Settings of one detector; pure but for ``advance``."""

    @property
    def name(self) -> str:
        """Name with every setting that changes its numbers: calibrations are stored under it."""

    def initial(self, streams: int) -> StreamState:
        """Memory of ``streams`` streams that have seen nothing."""

    def advance(self, state: StreamState, value: Floats, present: Flags) -> None:
        """Take in one observation of each stream where ``present``, in place: the fast path.

        value: float64 [N], read where present only. present: bool [N]. No allocation of the state's size.
        """


def update(
    detector: StreamDetector, state: StreamState, value: Floats, present: Flags
) -> tuple[StreamState, Floats]:
    """New state and statistic [N]; ``state`` stays as it was. NaN values count as absent."""
    after = state.copy()
    detector.advance(after, value, present & ~np.isnan(value))
    return after, after.statistic


def reset(detector: StreamDetector, state: StreamState, mask: Flags) -> StreamState:
    """``state`` with the streams of ``mask`` [N] back at their beginning; the others untouched."""
    fresh = detector.initial(mask.size)
    return StreamState(
        memory=np.where(mask[:, None], fresh.memory, state.memory),
        statistic=np.where(mask, fresh.statistic, state.statistic),
    )


def alarms(state: StreamState, threshold: float | Floats) -> Flags:
    """bool [N]: statistic at or above ``threshold`` (one number, or one per stream)."""
    return np.asarray(state.statistic >= threshold)


#: Levels this close to a threshold are compared by their logarithm, as the statistic is.
_NEAR = 1.0 - 1e-9


#: One threshold of log-evidence as ``reaches`` reads it.
LOG_THRESHOLD = np.dtype(
    [
        ("near", np.float64),  # evidence from which on its logarithm is looked at; inf: never
        ("log", np.float64),  # log-evidence of an alarm; inf: never
    ]
)


def log_threshold(thresholds: Floats) -> NDArray[Any]:
    """``thresholds`` [...] of log-evidence as records [...] for compiled code; inf stays."""
    records = np.empty(np.shape(thresholds), dtype=LOG_THRESHOLD)
    records["near"], records["log"] = np.exp(thresholds) * _NEAR, thresholds
    return records


@compiled
def reaches(level, threshold):
    """The logarithm of evidence ``level`` is at or above ``threshold``, a record of ``LOG_THRESHOLD``.

    A logarithm is taken only where it can matter.
    """
    return level >= threshold.near and math.log(level) >= threshold.log


def guaranteed_threshold(arl0: float) -> float:
    """Log-evidence at which the mean run length is at least ``arl0`` observations, under the detector's null.

    For ``Betting``, ``Gaussian`` and online ``Rank`` with sum or best start. Raises ValueError for an
    ``arl0`` that is no run length.
    """
    if not 1.0 < arl0 < 1e100:
        raise ValueError(f"expected an ARL0 of more than one observation, got {arl0}")
    return math.log(arl0)


def guaranteed_thresholds(arl0: Floats) -> Floats:
    """``guaranteed_threshold`` of every ``arl0`` [...]; inf (no stream) stays."""
    levels = np.full(arl0.shape, math.inf)
    finite = np.isfinite(arl0)
    levels[finite] = [guaranteed_threshold(float(value)) for value in arl0[finite]]
    return levels
