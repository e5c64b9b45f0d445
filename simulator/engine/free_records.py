"""Request records: taken from a free list at arrival, returned at the end, reset after a crash."""

from __future__ import annotations

import numpy as np

from contracts.jit import compiled, prefetch
from simulator.engine.layout import CACHE_LINE, NONE
from simulator.engine.memory import Array, Fleet, Record
from simulator.engine.requests import IN_FLIGHT

# Records that are prefetched while an arrival is routed.
_AHEAD = 4


@compiled(inline="always")
def acquire_record(fleet: Fleet, arrival: Record) -> int:
    """Give an arrival a request record; returns its number."""
    free = fleet.free
    number = free[fleet.state.in_use]
    request = fleet.requests[number]
    fleet.state.in_use += 1
    soon = free[min(fleet.state.in_use + _AHEAD, free.shape[0] - 1)]
    prefetch(fleet.requests[soon], 0)
    prefetch(fleet.requests[soon], CACHE_LINE)
    request.arrived_at_s = arrival.arrived_at_s
    request.slice = arrival.slice
    request.prompt_tokens = arrival.prompt_tokens
    request.output_tokens = arrival.output_tokens
    request.session = arrival.session
    request.prompt = arrival.prompt
    request.u_kernel = arrival.u_kernel
    request.u_first = arrival.u_first
    request.u_second = arrival.u_second
    request.u_error = arrival.u_error
    request.need_tokens = arrival.prompt_tokens
    request.remaining_tokens = arrival.output_tokens
    request.prefilled_tokens = 0
    request.credited_tokens = 0
    request.preemptions = 0
    request.routed_at_s = -1.0
    request.started_at_s = -1.0
    request.first_token_at_s = -1.0
    request.due_or_ended_at_s = np.inf
    request.http_latency_s = 0.0
    request.excess_tv = 0.0
    request.next = NONE
    request.replica = NONE
    request.prefix_condition = 0
    request.found_batch = 0
    request.status = IN_FLIGHT
    request.attempts = 0
    request.exposed = 0
    return np.int64(number)


@compiled(inline="always")
def release_record(fleet: Fleet, number: int) -> None:
    """Return the record of an ended request to the free list, unless all records are kept."""
    if not fleet.rules.keep_requests:
        fleet.state.in_use -= 1
        fleet.free[fleet.state.in_use] = number


@compiled(nogil=True)
def retry_later(state: Record, number: int, requests: Array) -> None:
    """Reset request ``number``, except for its attempts, and queue it for routing."""
    request = requests[number]
    request.need_tokens = request.prompt_tokens
    request.prefilled_tokens = 0
    request.remaining_tokens = request.output_tokens
    request.credited_tokens = 0
    request.excess_tv = 0.0
    request.started_at_s = -1.0
    request.next = NONE
    if state.retry_head == NONE:
        state.retry_head = number
    else:
        requests[state.retry_tail].next = number
    state.retry_tail = number
