"""Excess total variation of generated tokens, booked when a condition changes and when a request ends."""

from __future__ import annotations

import numpy as np

from contracts.jit import compiled
from simulator.engine.layout import CHUNK, DECODE, LAST, MIXED, PREFILL, SEQUENCE
from simulator.engine.memory import Array, Record
from simulator.engine.stretch import steps_until


@compiled(nogil=True)
def credit(request: Record, made: int, replica: Record, quality: Array) -> None:
    """Book the excess TV of the tokens made since the last booking.

    Tokens that the replica's condition does not strike count under the condition in which the request's
    cached prefix was computed.
    """
    if made > request.credited_tokens:
        condition, struck = np.int64(replica.condition), 0
        if condition != 0 and strikes(request, replica):
            struck = max(made - max(np.int64(request.credited_tokens), np.int64(replica.after_tokens)), 0)
        spared = made - request.credited_tokens - struck
        tv = quality[replica.kernel, condition, request.prompt]
        prefix_tv = quality[replica.kernel, np.int64(request.prefix_condition), request.prompt]
        request.excess_tv += struck * tv + spared * prefix_tv
        request.credited_tokens = made


@compiled(nogil=True)
def strikes(request: Record, replica: Record) -> bool:
    """Whether the condition of a replica strikes a request that it has admitted."""
    its_slice = replica.only_slice < 0 or replica.only_slice == request.slice
    return its_slice and request.found_batch >= replica.min_batch


@compiled(nogil=True)
def prefix_condition(request: Record, replica: Record) -> int:
    """Condition that a replica leaves in the prefix of a request that it is about to compute.

    A condition that strikes only later tokens, or only batches of a size that is not known yet, leaves none.
    """
    spares = replica.after_tokens > 0 or replica.min_batch > 1
    if spares or (replica.only_slice >= 0 and replica.only_slice != request.slice):
        return 0
    return np.int64(replica.condition)


@compiled(nogil=True)
def credit_replica(replica: Record, now_s: float, requests: Array, quality: Array) -> None:
    """Book all tokens up to the end of the step under way, before the condition changes."""
    steps = replica.steps
    if replica.kind == DECODE and steps > 1:
        until = steps_until(now_s - replica.began_at_s, replica.first_step_s, replica.growth_s)
        steps = min(steps, until)
    for j in range(replica.running):
        request = requests[replica.slots[j, SEQUENCE]]
        left = replica.slots[j, LAST] - (replica.decoded + steps)
        credit(request, request.output_tokens - left, replica, quality)
    for j in range(replica.prefilling):
        request = requests[replica.slots[j, PREFILL]]
        whole = request.prefilled_tokens + replica.slots[j, CHUNK] == request.need_tokens
        token = 1 if replica.kind == MIXED and whole else 0
        credit(request, request.output_tokens - request.remaining_tokens + token, replica, quality)
    number = replica.wait_head
    for _ in range(replica.waiting):
        request = requests[number]
        credit(request, request.output_tokens - request.remaining_tokens, replica, quality)
        number = request.next
