"""The arrays that compiled passes work on: of B fleets, and of one fleet with its rules.

A pass that is called from Python takes a plain tuple, packed once, and names it inside
(``EngineMemory(*packed)``). A plain tuple crosses into compiled code at about the cost of positional
arguments. A named tuple takes numba's slow path, about 5 us more per call, while a tick of a small fleet
takes 25 us. Inside, functions that take a whole ``Fleet`` are inlined by force: passing its hundred words at
every request made the engine 2.7 times slower. ``borrowed`` avoids two atomic reference counts per field
read.

Axes: B fleets, R replicas, S slices, K kernels, F latency families, E histogram edges.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.jit import borrowed, compiled

#: One record of ``simulator.engine.layout``, as compiled code sees it.
Record = Any
#: An array of records or numbers, as compiled code sees it.
Array = NDArray[Any]


class Rules(NamedTuple):
    """Settings that all fleets of an engine share."""

    timeout_s: NDArray[np.float64]  # [S]
    quality: NDArray[np.float64]  # [K, Q, N] excess total variation
    slo_ms: NDArray[np.float64]  # [S, F]
    edges_ms: NDArray[np.float64]  # [E]
    max_attempts: int
    sticky: bool
    keep_requests: bool


class EngineMemory(NamedTuple):
    """The state of B fleets."""

    fleets: NDArray[np.void]  # FLEET [B]
    replicas: NDArray[np.void]  # REPLICA [B, R]
    arrivals: NDArray[np.void]  # ARRIVAL [B, ring], a power of two
    requests: NDArray[np.void]  # REQUEST [B, records]
    free: NDArray[np.int32]  # [B, records]; entries from ``in_use`` on are free, and used in this order
    table: NDArray[np.float64]  # [B, S, K + 1] shares in force, the last column is shed
    members: NDArray[np.int64]  # [B, K, 1 + R] number of a kernel's replicas in rotation, then the replicas
    sessions: NDArray[np.void]  # SESSION [B, slots, K]
    row_changed_at_s: NDArray[np.float64]  # [B, S] last change of a row or of its replicas
    violating: NDArray[np.int8]  # [B, R, S]
    cells: NDArray[np.int32]  # [B, R, S, CELL_COLUMNS]
    excess_tv: NDArray[np.float64]  # [B, R, S] of answered tokens
    useful: NDArray[np.float64]  # [B, R, S] useful answered tokens
    per_slice: NDArray[np.int64]  # [B, S, SLICE_COLUMNS]
    histogram: NDArray[np.int32]  # [B, R, S, F, E + 1] of answers, by the clients' waiting times
    served: NDArray[np.int32]  # [B, R, F, E + 1] of the same answers, by the servers' times


class Fleet(NamedTuple):
    """One fleet of an ``EngineMemory`` and its rules; the same fields without their first axis."""

    state: Record
    replicas: Array  # REPLICA [R]
    arrivals: Array  # ARRIVAL [ring]
    requests: Array  # REQUEST [records]
    free: Array  # [records]
    table: Array  # [S, K + 1]
    members: Array  # [K, 1 + R]
    sessions: Array  # SESSION [slots, K]
    row_changed_at_s: Array  # [S]
    violating: Array  # [R, S]
    cells: Array  # [R, S, CELL_COLUMNS]
    excess_tv: Array  # [R, S]
    useful: Array  # [R, S]
    per_slice: Array  # [S, SLICE_COLUMNS]
    histogram: Array  # [R, S, F, E + 1]
    served: Array  # [R, F, E + 1]
    rules: Rules


@compiled(inline="always")
def fleet_of(memory: EngineMemory, rules: Rules, b: int) -> Fleet:
    """Fleet ``b``; the caller must keep its arrays alive.

    Inlined by force: compiled functions can take a record but not return one.
    """
    return Fleet(
        memory.fleets[b],
        borrowed(memory.replicas[b]),
        borrowed(memory.arrivals[b]),
        borrowed(memory.requests[b]),
        borrowed(memory.free[b]),
        borrowed(memory.table[b]),
        borrowed(memory.members[b]),
        borrowed(memory.sessions[b]),
        borrowed(memory.row_changed_at_s[b]),
        borrowed(memory.violating[b]),
        borrowed(memory.cells[b]),
        borrowed(memory.excess_tv[b]),
        borrowed(memory.useful[b]),
        borrowed(memory.per_slice[b]),
        borrowed(memory.histogram[b]),
        borrowed(memory.served[b]),
        rules,
    )
