"""Plans a replica's next stretch: preempt if KV blocks are short, continue prefills, admit, else decode."""

from __future__ import annotations

import numpy as np

from contracts.jit import compiled
from simulator.engine.batch import blocks_for, blocks_next, blocks_used, preempt_last
from simulator.engine.layout import CHUNK, DECODE, MIXED, PREFILL
from simulator.engine.memory import Array, Record
from simulator.engine.stretch import cut, stall, stretch_s


@compiled(nogil=True)
def plan(replica: Record, now_s: float, requests: Array) -> None:
    """Choose the next stretch of a replica; its last one ended at ``now_s``."""
    replica.began_at_s = now_s
    replica.busy_counted_at_s = max(now_s, replica.busy_counted_at_s)
    if replica.hang != 0:
        stall(replica)
        return
    preempted = preempt_while_short(replica, requests)
    budget = replica.token_budget - replica.running
    left = continue_prefills(replica, budget, requests)
    if replica.waiting > 0 and not preempted:
        left = admit(replica, now_s, left, requests)
    running = replica.running
    tokens = budget - left
    first_step_s = replica.base_s + replica.decode_s * running + replica.context_s * replica.context_tokens
    if tokens > 0:
        replica.steps = 1 if running > 0 else 0
        replica.kind = MIXED
        replica.ends_at_s = now_s + (first_step_s + replica.prefill_s * tokens)
    elif running == 0:
        stall(replica)
    else:
        decode_on(replica, now_s, first_step_s, preempted)


@compiled(nogil=True)
def preempt_while_short(replica: Record, requests: Array) -> bool:
    """Preempt until every remaining sequence has a block for its next token; whether any was preempted."""
    shift = replica.block_shift
    most = (2 << shift) - 1  # a sequence's last block is not full, and it may need one more
    preempted = False
    wanted = ((replica.context_tokens + most * replica.running) >> shift) + replica.prefill_blocks
    if wanted > replica.blocks:
        while replica.running + replica.prefilling > 0 and blocks_next(
            replica, replica.decoded
        ) > replica.blocks - replica.prefill_blocks - blocks_used(replica):
            preempted = True
            preempt_last(replica, requests)
    return preempted


@compiled(nogil=True)
def continue_prefills(replica: Record, budget: int, requests: Array) -> int:
    """Give the admitted requests their next chunks; returns the tokens left in the step."""
    slots = replica.slots
    for j in range(replica.prefilling):
        request = requests[slots[j, PREFILL]]
        chunk: int = min(np.int64(request.need_tokens - request.prefilled_tokens), budget)
        slots[j, CHUNK] = chunk
        budget -= chunk
    return budget


@compiled(nogil=True)
def admit(replica: Record, now_s: float, budget: int, requests: Array) -> int:
    """Admit from the head of the queue what fits batch, KV cache and step; returns the tokens left in the
    step.
    """
    shift = replica.block_shift
    running = replica.running
    context = replica.context_tokens
    slots = replica.slots
    reserved = -1
    while replica.waiting > 0 and running + replica.prefilling < replica.max_batch and budget > 0:
        number = replica.wait_head
        request = requests[number]
        wanted = blocks_for(np.int64(request.need_tokens), shift)
        headroom = replica.blocks - replica.prefill_blocks - wanted - replica.watermark_blocks
        if (headroom << shift) < context:
            break
        if (headroom << shift) < context + ((2 << shift) - 1) * running:
            # The exact count is only needed within this margin.
            if reserved < 0:
                reserved = blocks_used(replica) + blocks_next(replica, replica.decoded)
            if headroom < reserved:
                break
        replica.wait_head = request.next
        replica.waiting -= 1
        replica.prefill_blocks += wanted
        if request.started_at_s < 0.0:
            request.started_at_s = now_s
            replica.admitted += 1
            replica.queue_s += now_s - request.routed_at_s
        chunk: int = min(np.int64(request.need_tokens), budget)
        slots[replica.prefilling, PREFILL] = number
        slots[replica.prefilling, CHUNK] = chunk
        replica.prefilling += 1
        request.found_batch = running + replica.prefilling
        budget -= chunk
    return budget


@compiled(nogil=True)
def decode_on(replica: Record, now_s: float, first_step_s: float, preempted: bool) -> None:
    """Decode until the first completion, the last free block or the first deadline."""
    growth_s = replica.context_s * replica.running
    steps = 1 if preempted else decodable_steps(replica)
    replica.steps = steps
    replica.kind = DECODE
    replica.first_step_s = first_step_s
    replica.growth_s = growth_s
    replica.ends_at_s = now_s + stretch_s(steps, first_step_s, growth_s)
    if replica.ends_at_s > replica.deadline_at_s:
        cut(replica, replica.deadline_at_s)


@compiled(nogil=True)
def decodable_steps(replica: Record) -> int:
    """Steps until the first completion, or as many as the free blocks allow; at least one."""
    shift = replica.block_shift
    running = replica.running
    steps = replica.first_completion - replica.decoded
    most = replica.context_tokens + running * steps + ((1 << shift) - 1) * running
    if (most >> shift) + replica.prefill_blocks > replica.blocks:
        free = replica.blocks - replica.prefill_blocks - blocks_used(replica)
        k = 0
        while k < steps:
            free -= blocks_next(replica, replica.decoded + k)
            if free < 0:
                break
            k += 1
        steps = max(k, 1)
    return steps
