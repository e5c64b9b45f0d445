"""A replica's requests: running batch and its KV blocks, queue, and ended requests."""

from __future__ import annotations

import numpy as np

from contracts.jit import compiled
from simulator.engine.layout import BASE, LAST, NEVER, NONE, PREFILL, SEQUENCE
from simulator.engine.memory import Array, Record
from simulator.engine.requests import ANSWERED, TIMEOUT


@compiled(nogil=True)
def blocks_for(tokens: int, shift: int) -> int:
    """Number of blocks that hold this many tokens."""
    return (tokens + (1 << shift) - 1) >> shift


@compiled(nogil=True)
def blocks_used(replica: Record) -> int:
    """KV blocks of the decoding sequences."""
    total = 0
    shift = replica.block_shift
    up = replica.decoded + (1 << shift) - 1
    for j in range(replica.running):
        total += (replica.slots[j, BASE] + up) >> shift
    return total


@compiled(nogil=True)
def blocks_next(replica: Record, decoded: int) -> int:
    """Number of decoding sequences that need a new block for their next token, at step counter
    ``decoded``.
    """
    count = 0
    low = (1 << replica.block_shift) - 1
    for j in range(replica.running):
        if (replica.slots[j, BASE] + decoded) & low == 0:
            count += 1
    return count


@compiled(nogil=True)
def find_first_completion(replica: Record) -> None:
    """Find the step counter of the first completion among the decoding sequences."""
    first = NEVER
    for j in range(replica.running):
        first = min(first, np.int64(replica.slots[j, LAST]))
    replica.first_completion = first


@compiled(nogil=True)
def enqueue(replica: Record, number: int, requests: Array) -> None:
    """Append request ``number`` to the waiting queue."""
    if replica.waiting == 0:
        replica.wait_head = number
    else:
        requests[replica.wait_tail].next = number
    replica.wait_tail = number
    replica.waiting += 1


@compiled(nogil=True)
def preempt_last(replica: Record, requests: Array) -> None:
    """Put the last admitted request back to the head of the queue; it will be recomputed."""
    if replica.prefilling > 0:
        replica.prefilling -= 1
        number = replica.slots[replica.prefilling, PREFILL]
        request = requests[number]
        replica.prefill_blocks -= blocks_for(request.need_tokens, replica.block_shift)
    else:
        replica.running -= 1
        j = replica.running
        number = np.int64(replica.slots[j, SEQUENCE])
        request = requests[number]
        replica.context_tokens -= replica.slots[j, BASE] + replica.decoded
        request.remaining_tokens = replica.slots[j, LAST] - replica.decoded
        request.last_token_at_s = replica.last_step_at_s
        find_first_completion(replica)
        request.need_tokens = request.prompt_tokens + request.output_tokens - request.remaining_tokens
    request.prefilled_tokens = 0
    request.preemptions += 1
    replica.preemptions += 1
    request.next = replica.wait_head
    replica.wait_head = number
    if replica.waiting == 0:
        replica.wait_tail = number
    replica.waiting += 1


@compiled(nogil=True)
def end_request(replica: Record, number: int, status: int, now_s: float, requests: Array) -> None:
    """Mark request ``number`` as ended on this replica and chain it for counting."""
    request = requests[number]
    request.status = status
    request.due_or_ended_at_s = now_s
    request.next = NONE
    replica.outstanding -= 1
    if status == ANSWERED:
        replica.consecutive_failed = 0
        replica.finished += 1
    else:
        replica.consecutive_failed += 1
    if replica.ended_head == NONE:
        replica.ended_head = number
    else:
        requests[replica.ended_tail].next = number
    replica.ended_tail = number


@compiled(nogil=True)
def cancel_expired(replica: Record, now_s: float, requests: Array) -> None:
    """Cancel requests past their deadline, and find the next deadline exactly."""
    running_s = _cancel_running(replica, now_s, requests)
    prefilling_s = _cancel_prefilling(replica, now_s, requests)
    waiting_s = _cancel_waiting(replica, now_s, requests)
    replica.deadline_at_s = min(running_s, prefilling_s, waiting_s)


@compiled(nogil=True)
def _cancel_running(replica: Record, now_s: float, requests: Array) -> float:
    """Cancel expired decoding sequences; the first deadline of the others."""
    first_at_s = np.inf
    kept = 0
    for j in range(replica.running):
        number = np.int64(replica.slots[j, SEQUENCE])
        if requests[number].due_or_ended_at_s <= now_s:
            replica.context_tokens -= replica.slots[j, BASE] + replica.decoded
            end_request(replica, number, TIMEOUT, now_s, requests)
        else:
            first_at_s = min(first_at_s, requests[number].due_or_ended_at_s)
            replica.slots[kept, SEQUENCE] = number
            replica.slots[kept, BASE] = replica.slots[j, BASE]
            replica.slots[kept, LAST] = replica.slots[j, LAST]
            kept += 1
    replica.running = kept
    find_first_completion(replica)
    return first_at_s


@compiled(nogil=True)
def _cancel_prefilling(replica: Record, now_s: float, requests: Array) -> float:
    """Cancel expired requests that do not decode yet; the first deadline of the others."""
    first_at_s = np.inf
    kept = 0
    for j in range(replica.prefilling):
        number = np.int64(replica.slots[j, PREFILL])
        if requests[number].due_or_ended_at_s <= now_s:
            replica.prefill_blocks -= blocks_for(requests[number].need_tokens, replica.block_shift)
            end_request(replica, number, TIMEOUT, now_s, requests)
        else:
            first_at_s = min(first_at_s, requests[number].due_or_ended_at_s)
            replica.slots[kept, PREFILL] = number
            kept += 1
    replica.prefilling = kept
    return first_at_s


@compiled(nogil=True)
def _cancel_waiting(replica: Record, now_s: float, requests: Array) -> float:
    """Cancel expired requests in the queue; the first deadline of the others."""
    first_at_s = np.inf
    number = replica.wait_head
    count = replica.waiting
    replica.waiting = 0
    for _ in range(count):
        following = requests[number].next
        if requests[number].due_or_ended_at_s <= now_s:
            end_request(replica, number, TIMEOUT, now_s, requests)
        else:
            first_at_s = min(first_at_s, requests[number].due_or_ended_at_s)
            enqueue(replica, number, requests)
        number = following
    return first_at_s
