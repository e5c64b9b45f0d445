"""State of every replica at its fleet's current time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.engine.exported import (
    HEAD_WAIT_S,
    ITERATIONS,
    KV_USED,
    PREFILL_S,
    RETURN_S,
    STEP_S,
)

#: Rows of ``Gauges.counts``.
RUNNING, WAITING, OUTSTANDING, CONSECUTIVE_FAILED = range(4)
GAUGE_ROWS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauges:
    """What a replica would report about itself now. Everything is [B, R]."""

    counts: NDArray[np.int64]
    """[GAUGE_ROWS, B, R], read through the named properties."""
    measured: NDArray[np.float64]
    """[B, R, MEASURED_COLUMNS], read likewise."""

    @property
    def kv_used_ratio(self) -> NDArray[np.float64]:
        """Blocks in use or held by a fault, divided by all blocks; contiguous, as compiled readers
        require.
        """
        return np.ascontiguousarray(self.measured[..., KV_USED])

    @property
    def exported(self) -> NDArray[np.float64]:
        """Counters of ``simulator.engine.exported`` since the process began, [B, R, columns]."""
        return self.measured[..., ITERATIONS:STEP_S]

    @property
    def step_s(self) -> NDArray[np.float64]:
        """Duration of a decode step of the running batch; contiguous."""
        return np.ascontiguousarray(self.measured[..., STEP_S])

    @property
    def prefill_s(self) -> NDArray[np.float64]:
        """Time that each prefilled token adds to a step; contiguous."""
        return np.ascontiguousarray(self.measured[..., PREFILL_S])

    @property
    def return_s(self) -> NDArray[np.float64]:
        """Delay of an answer from the server to its client; contiguous."""
        return np.ascontiguousarray(self.measured[..., RETURN_S])

    @property
    def head_wait_s(self) -> NDArray[np.float64]:
        """Wait of the head of the queue so far, 0 without one; contiguous."""
        return np.ascontiguousarray(self.measured[..., HEAD_WAIT_S])

    @property
    def running(self) -> NDArray[np.int64]:
        """Requests in the running batch."""
        return self.counts[RUNNING]

    @property
    def waiting(self) -> NDArray[np.int64]:
        """Requests in the queue."""
        return self.counts[WAITING]

    @property
    def outstanding(self) -> NDArray[np.int64]:
        """Running and waiting."""
        return self.counts[OUTSTANDING]

    @property
    def consecutive_failed(self) -> NDArray[np.int64]:
        """Failed attempts since the last answer; a 429 neither counts nor resets."""
        return self.counts[CONSECUTIVE_FAILED]
