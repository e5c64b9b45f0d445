"""What every detector is: state arrays, one update for many streams, an alarm where statistic >= threshold.

A stream is a sequence of observations (one number per probe prompt, or one per scrape). Detectors
hold settings only; all memory is in ``StreamState``, so that state serialises and a batch splits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

#: Statistic of a stream that has seen nothing; log of the smallest evidence that is told apart from 0.
LOWEST = -690.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamState:
    """Memory of N streams: ``memory`` float64 [N, width], ``statistic`` float64 [N], as last updated."""

    memory: Floats
    statistic: Floats

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
