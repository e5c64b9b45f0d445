"""Advances time: retries that are due, then arrivals in order, then every replica up to the given instant.

Replicas interact only through routing. So a replica is advanced only when it is a routing candidate, and at
the end.
"""

from __future__ import annotations

import numpy as np

from contracts.jit import borrowed, compiled, prefetch
from simulator.engine.accounting import count_ended
from simulator.engine.counters import OFFERED, OFFERED_TOKENS
from simulator.engine.fetching import fetch_fleet, fetch_replica, fetch_requests, look_ahead
from simulator.engine.free_records import acquire_record, release_record
from simulator.engine.layout import CACHE_LINE, NONE
from simulator.engine.memory import EngineMemory, Fleet, Record, Rules, fleet_of
from simulator.engine.replica import run_replica
from simulator.engine.requests import IN_FLIGHT
from simulator.engine.routing import route


@compiled(nogil=True)
def advance_fleets(first: int, stop: int, until_at_s: float, memory: EngineMemory, rules: Rules) -> int:
    """Advance fleets ``first .. stop - 1`` to ``until_at_s``; both records are packed as plain tuples.

    Returns ``NONE``, or the number of a fleet that ran out of free request records, advanced up to that
    point.
    """
    held = borrowed(EngineMemory(*memory))
    shared = borrowed(Rules(*rules))
    for b in range(first, stop):
        fleet = fleet_of(held, shared, b)
        if b > first:
            fetch_requests(fleet)
        if b + 1 < stop:
            fetch_fleet(fleet_of(held, shared, b + 1))
        if not route_due(fleet, until_at_s):
            return b
        finish_replicas(fleet, until_at_s)
        fleet.state.now_s = until_at_s
    return NONE


@compiled(inline="always")
def route_due(fleet: Fleet, until_at_s: float) -> bool:
    """Route everything that is due up to ``until_at_s``; False if no request record is free."""
    state = fleet.state
    mask = fleet.arrivals.shape[0] - 1
    while state.retry_head != NONE or state.cursor < state.fed:
        if state.retry_head != NONE:
            number = np.int64(state.retry_head)
            state.retry_head = fleet.requests[number].next
            at_s = state.now_s
        else:
            arrival = fleet.arrivals[state.cursor & mask]
            at_s = arrival.arrived_at_s
            if at_s > until_at_s:
                break
            if state.in_use == fleet.free.shape[0]:
                return False
            number = enter(fleet, arrival)
        route(number, at_s, fleet)
        if fleet.requests[number].status != IN_FLIGHT:
            release_record(fleet, number)
        else:
            chosen = np.int64(fleet.requests[number].replica)
            if fleet.replicas[chosen].ended_head != NONE:
                count_ended(chosen, fleet)
    return True


@compiled(inline="always")
def enter(fleet: Fleet, arrival: Record) -> int:
    """Admit the next arrival: count it as offered and give it a request record; returns the
    record's number.
    """
    state = fleet.state
    state.cursor += 1
    fleet.per_slice[arrival.slice, OFFERED] += 1
    fleet.per_slice[arrival.slice, OFFERED_TOKENS] += arrival.output_tokens
    number = acquire_record(fleet, arrival)
    if state.cursor < state.fed:
        look_ahead(fleet.arrivals[state.cursor & (fleet.arrivals.shape[0] - 1)], fleet)
    return number


@compiled(inline="always")
def finish_replicas(fleet: Fleet, until_at_s: float) -> None:
    """Advance every replica to ``until_at_s`` and count what ended there."""
    replicas = fleet.replicas
    for r in range(replicas.shape[0]):
        if r + 2 < replicas.shape[0]:
            fetch_replica(replicas[r + 2])
            ended = replicas[r + 1].ended_head
            if ended != NONE:
                prefetch(fleet.requests[ended], 0)
                prefetch(fleet.requests[ended], CACHE_LINE)
        if replicas[r].ends_at_s <= until_at_s:
            run_replica(replicas[r], until_at_s, fleet.requests)
        if replicas[r].ended_head != NONE:
            count_ended(r, fleet)
