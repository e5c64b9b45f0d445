"""The simulated gateway's counts by slice and kernel, and answers that have not reached it yet.

Counters are available at once; histograms when the gateway merges them, every ``scrape_interval_s``, as Envoy
does when it flushes its statistics. Answers reach the gateway one network delay after they left the server.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from contracts.jit import borrowed, compiled
from contracts.telemetry import HISTOGRAM_EDGES_MS, LATENCY_FAMILIES, GatewayCounts
from simulator.engine.counters import ANSWERED, ATTEMPTS_FAILED, CELL_COLUMNS, TIMED_OUT, Counters
from simulator.world.compiled_scenario import CompiledScenario


def ticks_between(each: Sequence[CompiledScenario]) -> NDArray[np.int64]:
    """int64 [B]: ticks between two scrapes, and between two flushes of the gateway, of each fleet."""
    return np.array([max(1, round(own.telemetry.scrape_interval_s / own.tick_s)) for own in each])


class SimulatedGateways:
    """The gateways of B fleets, tick by tick."""

    def __init__(self, each: Sequence[CompiledScenario]) -> None:
        kernels, slices, replicas = each[0].layout.shape
        buckets = (len(LATENCY_FAMILIES), len(HISTOGRAM_EDGES_MS) + 1)
        self._shape = (len(each), slices, kernels)
        self._owner = each[0].layout.replica_kernel
        self._interval = ticks_between(each)
        self._flushed = np.zeros((len(each), replicas, slices, *buckets), dtype=np.int32)

    def read(self, tick: int, counters: Counters, clients: NDArray[np.int32]) -> GatewayCounts:
        """Counts of ``tick``, which has ended, and the histograms if they are merged then.

        ``clients`` int32 [B, R, S, F, E + 1]: answers by bucket since the start, not summed over edges.
        """
        counts = GatewayCounts.nothing(*self._shape)
        _count((counts.answered, counts.failed, counts.timed_out), counters.cells, self._owner)
        for fleet in np.flatnonzero((tick + 1) % self._interval == 0):
            _flush(counts.latency_le[fleet], clients[fleet], self._flushed[fleet], self._owner)
        return counts


@compiled
def _count(packed_counts, cells, owner):
    """Add the attempts of ``cells`` [B, R, S, columns] to answered, failed and timed out [B, S, K]."""
    answered, failed, timed_out = borrowed(packed_counts)
    for b in range(cells.shape[0]):
        for r in range(cells.shape[1]):
            for s in range(cells.shape[2]):
                answered[b, s, owner[r]] += cells[b, r, s, ANSWERED]
                failed[b, s, owner[r]] += cells[b, r, s, ATTEMPTS_FAILED]
                timed_out[b, s, owner[r]] += cells[b, r, s, TIMED_OUT]


@compiled
def _flush(out, clients, before, owner):
    """Add the answers since the last flush to a fleet's histograms [S, K, F, E + 1], by kernel.

    The results are summed over edges; ``clients`` and ``before`` [R, S, F, E + 1] are not.
    """
    for r in range(clients.shape[0]):
        for s in range(clients.shape[1]):
            for f in range(clients.shape[2]):
                total = 0
                for e in range(clients.shape[3]):
                    total += clients[r, s, f, e] - before[r, s, f, e]
                    before[r, s, f, e] = clients[r, s, f, e]
                    out[s, owner[r], f, e] += total


def warm() -> None:
    """Compile this module's functions before work is forked."""
    buckets = (len(LATENCY_FAMILIES), len(HISTOGRAM_EDGES_MS) + 1)
    owner, clients = np.zeros(1, dtype=np.int64), np.zeros((1, 1, *buckets), dtype=np.int32)
    for batch in (1, 2):
        counts = GatewayCounts.nothing(batch, 1, 1)
        cells = np.zeros((batch, 1, 1, CELL_COLUMNS), dtype=np.int64)
        _count((counts.answered, counts.failed, counts.timed_out), cells, owner)
        _flush(counts.latency_le[0], clients, clients.copy(), owner)


#: Longest delay between server and gateway, in s; longer delays are counted as this.
MOST_S = 60.0


class Returning:
    """Counts answers on their way from server to gateway, for B fleets of R replicas.

    A server finishes a request when its last token leaves; the gateway counts it one network delay later. So
    answers of the last seconds are still under way. Within a tick they are assumed to be spread evenly.
    """

    def __init__(self, batch: int, replicas: int, tick_s: float) -> None:
        self._tick_s = tick_s
        #: [ticks, B, R] answers of the newest ticks, in a ring: the newest at ``_newest``, older ones after
        #: it.
        self._answered = np.zeros((int(np.ceil(MOST_S / tick_s)), batch, replicas))
        self._newest = 0

    def count(self, answered: NDArray[np.int64], return_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """float64 [B, R], answers under way at the end of a tick in which ``answered`` [B, R] left their
        servers.

        return_s: float64 [B, R], the delay.
        """
        kept = len(self._answered)
        self._newest = (self._newest - 1) % kept
        self._answered[self._newest] = answered
        ticks = return_s / self._tick_s
        longest = float(ticks.max(initial=0.0))
        if not longest > 1.0:
            return np.asarray(answered * ticks)
        age = np.arange(min(int(np.ceil(min(longest, kept))), kept))  # no older answer is still under way
        share = np.clip(ticks - age[:, None, None], 0.0, 1.0)
        return np.asarray((share * self._answered[(self._newest + age) % kept]).sum(axis=0))
