"""Prefetches memory before its use. A wrong guess costs nothing and changes no result.

Without prefetching, a large fleet waits for memory at every arrival.
"""

from __future__ import annotations

from contracts.jit import compiled, prefetch, prefetch_row
from simulator.engine.layout import CACHE_LINE, PREFILL, SEQUENCE, UNIFORM_UNIT
from simulator.engine.memory import Fleet, Record

# Covers the fields of a replica and the slots of a dozen sequences.
_WARM_BYTES = 8 * CACHE_LINE
# Records that are prefetched while another fleet is advanced.
_FRESH = 16


@compiled(nogil=True)
def fetch_replica(replica: Record) -> None:
    """Prefetch the part of a replica that a small batch touches."""
    for line in range(0, _WARM_BYTES, CACHE_LINE):
        prefetch(replica, line)


@compiled(inline="always")
def look_ahead(arrival: Record, fleet: Fleet) -> None:
    """Prefetch the replicas that ``arrival`` will probably compare, while the previous arrival is routed."""
    table, members = fleet.table, fleet.members
    u = arrival.u_kernel / UNIFORM_UNIT
    kernel = 0
    while kernel < members.shape[0] - 1 and u >= table[arrival.slice, kernel]:
        u -= table[arrival.slice, kernel]
        kernel += 1
    count = members[kernel, 0]
    if count > 0:
        first = members[kernel, 1 + int(arrival.u_first / UNIFORM_UNIT * count)]
        second = members[kernel, 1 + int(arrival.u_second / UNIFORM_UNIT * count)]
        fetch_replica(fleet.replicas[first])
        fetch_replica(fleet.replicas[second])
    if arrival.session >= 0:
        prefetch(fleet.sessions[arrival.session & (fleet.sessions.shape[0] - 1), kernel], 0)


@compiled(inline="always")
def fetch_fleet(fleet: Fleet) -> None:
    """Prefetch what the next fleet will touch, while the present one is advanced."""
    histogram, cells, free, arrivals = fleet.histogram, fleet.cells, fleet.free, fleet.arrivals
    for r in range(fleet.replicas.shape[0]):
        fetch_replica(fleet.replicas[r])
        for f in range(fleet.served.shape[1]):
            prefetch_row(fleet.served[r, f])
        for s in range(histogram.shape[1]):
            for f in range(histogram.shape[2]):
                prefetch_row(histogram[r, s, f])
            prefetch_row(cells[r, s])
    in_use = fleet.state.in_use
    for j in range(in_use, min(in_use + _FRESH, free.shape[0])):
        prefetch(fleet.requests[free[j]], 0)
        prefetch(fleet.requests[free[j]], CACHE_LINE)
    mask = arrivals.shape[0] - 1
    for j in range(min(fleet.state.fed - fleet.state.cursor, 4 * _FRESH)):
        prefetch(arrivals[(fleet.state.cursor + j) & mask], 0)


@compiled(inline="always")
def fetch_requests(fleet: Fleet) -> None:
    """Prefetch the requests that a fleet is serving."""
    requests = fleet.requests
    for r in range(fleet.replicas.shape[0]):
        replica = fleet.replicas[r]
        for j in range(replica.running):
            prefetch(requests[replica.slots[j, SEQUENCE]], 0)
            prefetch(requests[replica.slots[j, SEQUENCE]], CACHE_LINE)
        for j in range(replica.prefilling):
            prefetch(requests[replica.slots[j, PREFILL]], 0)
            prefetch(requests[replica.slots[j, PREFILL]], CACHE_LINE)
