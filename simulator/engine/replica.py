"""One replica over time: stretches end, requests arrive, effects change.

Two rules make it fast. An arrival that could be admitted cuts the stretch under way at its next step
boundary. All sequences share one counter of decode steps, so a jump touches no sequence.
"""

from __future__ import annotations

import numpy as np

from contracts.jit import compiled
from simulator.engine.batch import blocks_for, cancel_expired, end_request, enqueue
from simulator.engine.exported import count_prefilled
from simulator.engine.layout import BASE, CHUNK, DECODE, IDLE, LAST, MIXED, NEVER, PREFILL, SEQUENCE, STALL
from simulator.engine.memory import Array, Record
from simulator.engine.planning import plan
from simulator.engine.requests import ANSWERED, TIMEOUT
from simulator.engine.stretch import cut


@compiled(nogil=True)
def run_replica(replica: Record, until_at_s: float, requests: Array) -> None:
    """Advance one replica to ``until_at_s``, step ends at ``until_at_s`` included."""
    while replica.ends_at_s <= until_at_s:
        now_s = replica.ends_at_s
        finish_stretch(replica, requests)
        plan(replica, now_s, requests)


@compiled(nogil=True)
def finish_stretch(replica: Record, requests: Array) -> None:
    """Book the tokens of the stretch that ends now, complete requests, cancel expired ones."""
    now_s = replica.ends_at_s
    if replica.kind != STALL:
        replica.busy_s += now_s - replica.busy_counted_at_s
        replica.busy_counted_at_s = now_s
    running, steps = replica.running, replica.steps
    replica.decoded += steps
    if running > 0 and steps > 0:
        tokens = running * steps
        replica.context_tokens += tokens
        # All of them made their previous token at the end of the same step, even if a stall came in between.
        replica.inter_tokens += tokens
        replica.inter_token_s += running * (now_s - replica.last_step_at_s)
        replica.last_step_at_s = now_s
        if replica.decoded >= replica.first_completion:
            complete_sequences(replica, now_s, requests)
    if replica.kind == MIXED:
        replica.prefill_steps += 1 - steps
        replica.last_step_at_s = now_s
        finish_chunks(replica, now_s, requests)
    if now_s >= replica.deadline_at_s:
        cancel_expired(replica, now_s, requests)


@compiled(nogil=True)
def complete_sequences(replica: Record, now_s: float, requests: Array) -> None:
    """End the decoding sequences that have made their last token."""
    decoded = replica.decoded
    context = replica.context_tokens
    slots = replica.slots
    first = NEVER
    kept = 0
    for j in range(replica.running):
        if slots[j, LAST] <= decoded:
            number = np.int64(slots[j, SEQUENCE])
            context -= slots[j, BASE] + decoded
            late = now_s > requests[number].due_or_ended_at_s
            end_request(replica, number, TIMEOUT if late else ANSWERED, now_s, requests)
        else:
            first = min(first, np.int64(slots[j, LAST]))
            if kept != j:
                slots[kept, SEQUENCE] = slots[j, SEQUENCE]
                slots[kept, BASE] = slots[j, BASE]
                slots[kept, LAST] = slots[j, LAST]
            kept += 1
    replica.running = kept
    replica.first_completion = first
    replica.context_tokens = context


@compiled(nogil=True)
def finish_chunks(replica: Record, now_s: float, requests: Array) -> None:
    """Book the prefill chunks of the step; requests with complete prompts decode from now on."""
    decoded = replica.decoded
    running = replica.running
    slots = replica.slots
    kept = 0
    for j in range(replica.prefilling):
        number = np.int64(slots[j, PREFILL])
        request = requests[number]
        request.prefilled_tokens += slots[j, CHUNK]
        if request.prefilled_tokens < request.need_tokens:
            slots[kept, PREFILL] = number
            kept += 1
            continue
        need = np.int64(request.need_tokens)
        replica.prefill_blocks -= blocks_for(need, replica.block_shift)
        count_prefilled(replica, request, now_s)
        if request.first_token_at_s < 0.0:
            request.first_token_at_s = now_s
        request.remaining_tokens -= 1
        if request.remaining_tokens <= 0:
            late = now_s > request.due_or_ended_at_s
            end_request(replica, number, TIMEOUT if late else ANSWERED, now_s, requests)
        else:
            slots[running, SEQUENCE] = number
            slots[running, BASE] = need - decoded
            slots[running, LAST] = decoded + request.remaining_tokens
            replica.first_completion = min(
                np.int64(replica.first_completion), decoded + request.remaining_tokens
            )
            running += 1
            replica.context_tokens += need
    replica.prefilling = kept
    replica.running = running


@compiled(nogil=True)
def accept(replica: Record, number: int, now_s: float, requests: Array) -> None:
    """Queue request ``number`` on a replica that is advanced to ``now_s``."""
    deadline_at_s = requests[number].due_or_ended_at_s
    replica.outstanding += 1
    replica.deadline_at_s = min(replica.deadline_at_s, deadline_at_s)
    enqueue(replica, number, requests)
    if replica.kind == IDLE:
        replica.busy_counted_at_s = now_s
        plan(replica, now_s, requests)
    elif replica.kind == STALL:
        replica.ends_at_s = replica.deadline_at_s
    elif replica.kind == DECODE and replica.steps > 1:
        if replica.waiting == 1 and replica.running + replica.prefilling < replica.max_batch:
            cut(replica, now_s)
        elif deadline_at_s < replica.ends_at_s:
            cut(replica, deadline_at_s)


@compiled(nogil=True)
def replan(replica: Record, now_s: float, requests: Array) -> None:
    """Apply a changed speed, block count or hang from the next step boundary on."""
    if replica.kind == IDLE or replica.kind == STALL:
        replica.busy_counted_at_s = now_s
        plan(replica, now_s, requests)
    else:
        cut(replica, now_s)
