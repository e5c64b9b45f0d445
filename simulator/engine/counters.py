"""The engine's counters: integer columns per (replica, slice) and per slice, with named properties.

Axes: B fleets, R replicas, S slices.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

#: Columns of a cell (replica, slice); ``ATTEMPTS_REJECTED``: answered 429.
ANSWERED, FAILED, ATTEMPTS_FAILED, ATTEMPTS_REJECTED, SLO_MISSED = range(5)
EXPOSED, EXPOSED_IN_FLIGHT, TOKENS, DISPATCHED, TIMED_OUT = range(5, 10)
CELL_COLUMNS = 10

#: Columns of a slice; ``UNROUTED``: failures that reached no replica, not included in a cell's ``FAILED``;
#: from ``FIRST_REASON`` on: all failures by ``RequestStatus``, from ``TIMEOUT``.
OFFERED, SHED_COUNT, UNROUTED, OFFERED_TOKENS, FIRST_REASON = range(5)
SLICE_COLUMNS = FIRST_REASON + 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """What happened since the previous ``drain_counters``."""

    cells: NDArray[np.int64]
    """[B, R, S, CELL_COLUMNS], read through the named properties."""
    per_slice: NDArray[np.int64]
    """[B, S, SLICE_COLUMNS], read likewise."""
    excess_tv_tokens: NDArray[np.float64]
    """[B, S], sum over answered tokens of the excess total variation."""
    useful_tokens: NDArray[np.float64]
    """[B, S], tokens of answers inside the SLO and not exposed, less their excess total variation."""
    busy_s: NDArray[np.float64]
    """[B, R], time spent in engine steps."""

    @property
    def offered(self) -> NDArray[np.int64]:
        """Requests that reached the gateway, [B, S]."""
        return self.per_slice[..., OFFERED]

    @property
    def shed(self) -> NDArray[np.int64]:
        """Requests shed by the table, [B, S]."""
        return self.per_slice[..., SHED_COUNT]

    @property
    def offered_tokens(self) -> NDArray[np.float64]:
        """Output tokens of the offered requests, float64 [B, S]."""
        return self.per_slice[..., OFFERED_TOKENS].astype(np.float64)

    @property
    def dispatched(self) -> NDArray[np.int64]:
        """Attempts sent to a replica, [B, R, S], including refused ones."""
        return self.cells[..., DISPATCHED]

    @property
    def answered(self) -> NDArray[np.int64]:
        """Requests answered, [B, R, S]."""
        return self.cells[..., ANSWERED]

    @property
    def failed(self) -> NDArray[np.int64]:
        """Requests that failed finally, [B, R, S] by the replica of the last attempt."""
        return self.cells[..., FAILED]

    @property
    def attempts_failed(self) -> NDArray[np.int64]:
        """Attempts that ended badly (5xx, reset, timeout) as a gateway counts them, [B, R, S]."""
        return self.cells[..., ATTEMPTS_FAILED]

    @property
    def slo_missed(self) -> NDArray[np.int64]:
        """Answered requests beyond an SLO of their slice, [B, S]."""
        return self._over_replicas(SLO_MISSED)

    @property
    def exposed(self) -> NDArray[np.int64]:
        """Answers on hard slices from a replica that was violating when they were routed, [B, S]."""
        return self._over_replicas(EXPOSED)

    @property
    def exposed_in_flight(self) -> NDArray[np.int64]:
        """Exposed answers that were routed before the last change of their row or of its replicas, [B, S]."""
        return self._over_replicas(EXPOSED_IN_FLIGHT)

    @property
    def answered_tokens(self) -> NDArray[np.float64]:
        """Output tokens of the answered requests, float64 [B, S]."""
        return self._over_replicas(TOKENS).astype(np.float64)

    def _over_replicas(self, column: int) -> NDArray[np.int64]:
        total: NDArray[np.int64] = self.cells[..., column].sum(axis=1)
        return total
