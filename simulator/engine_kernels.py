"""The compiled part of the fleet engine. Mirrors ``simulator.oracle``, name for name.

One file and long functions on purpose: numba invalidates its on-disk cache per source file, so callers
and callees must live together, and a call that is not inlined costs more than the work it does.

The idea. Between two events a replica only decodes: its steps last ``d, d + g, d + 2g ...`` (every
sequence grows by one token per step), so ``m`` steps last ``m d + g m (m - 1) / 2`` and a whole stretch
is one jump. An arrival that could be admitted cuts the stretch at the next step boundary. All sequences
share one counter of decode steps (``decoded``), so a jump touches no sequence. Replicas meet only in
routing; hence one is advanced only when it is a routing candidate, and at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import numba as nb
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from simulator.engine_columns import (
    ANSWERED,
    ATTEMPTS_FAILED,
    ATTEMPTS_REJECTED,
    DISPATCHED,
    EXPOSED,
    EXPOSED_IN_FLIGHT,
    FAILED,
    FIRST_REASON,
    OFFERED,
    OFFERED_TOKENS,
    SHED_COUNT,
    SLO_MISSED,
    TOKENS,
    UNROUTED,
)
from simulator.engine_dtypes import (
    BASE,
    CACHE_LINE,
    CHUNK,
    DECODE,
    IDLE,
    LAST,
    MIXED,
    NOWHERE,
    PART,
    RID,
    STALL,
    UNIT,
)

_P = ParamSpec("_P")
_T = TypeVar("_T")
Record = Any
Array = NDArray[Any]

# RequestStatus as plain integers, which the compiler freezes.
_IN_FLIGHT, _ANSWERED, _TIMEOUT, _RESET, _HTTP_ERROR, _REJECTED, _NO_REPLICA, _SHED = range(8)
# Weyl steps: later attempts reuse the request's own uniforms, turned by an irrational angle.
_TURN = 0.6180339887498949
_TURN_ERROR = 0.4142135623730951
_NONE = -1
# The fields of a replica and the slots of a dozen sequences.
# Records asked for before their use: while an arrival is routed, and while another fleet is advanced.
_AHEAD, _FRESH = 4, 16
_WARM_BYTES = 7 * CACHE_LINE
_NEVER = np.int64(2**31 - 1)


def compiled(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """``function`` compiled ahead of its first call, cached on disk, without the interpreter lock."""
    jit = nb.njit(cache=True, nogil=True, error_model="numpy", boundscheck=False)
    return cast(Callable[_P, _T], jit(function))


@intrinsic  # type: ignore[untyped-decorator]
def prefetch(_typing: Any, record: Any, _offset: Any) -> Any:
    """Ask for the cache line at a byte offset of ``record``; changes nothing but the waiting time."""

    def codegen(target: Any, builder: Any, _signature: Any, args: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        word = ir.IntType(32)
        address = builder.gep(builder.bitcast(args[0], byte), [args[1]])
        kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        function = builder.module.declare_intrinsic("llvm.prefetch", (byte,), kind)
        builder.call(function, [address, word(1), word(3), word(1)])
        return target.get_dummy_value()

    return types.void(record, types.int64), codegen


@intrinsic  # type: ignore[untyped-decorator]
def prefetch_row(_typing: Any, array: Any) -> Any:
    """Ask for the cache line at the beginning of ``array``."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        word = ir.IntType(32)
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        address = builder.bitcast(data, byte)
        kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        function = builder.module.declare_intrinsic("llvm.prefetch", (byte,), kind)
        builder.call(function, [address, word(1), word(3), word(1)])
        return context.get_dummy_value()

    return types.void(array), codegen


# ---------------------------------------------------------------- one replica


@compiled
def blocks_used(r: Record) -> int:
    """KV blocks of the decoding sequences."""
    total = 0
    shift = r.block_shift
    up = r.decoded + (1 << shift) - 1
    for j in range(r.running):
        total += (r.slots[j, BASE] + up) >> shift
    return total


@compiled
def blocks_next(r: Record, decoded: int) -> int:
    """Decoding sequences that need a new block for their next token, at step counter ``decoded``."""
    count = 0
    low = (1 << r.block_shift) - 1
    for j in range(r.running):
        if (r.slots[j, BASE] + decoded) & low == 0:
            count += 1
    return count


@compiled
def steps_until(elapsed: float, first_step: float, growth: float) -> int:
    """Smallest j >= 1 such that j steps last at least ``elapsed``."""
    if growth <= 0.0:
        j = int(math.ceil(elapsed / first_step))
    else:
        b = first_step - growth * 0.5
        j = int(math.ceil((math.sqrt(b * b + 2.0 * growth * elapsed) - b) / growth))
    if j < 1:
        j = 1
    while j > 1 and (j - 1) * first_step + growth * (j - 1) * (j - 2) * 0.5 >= elapsed:
        j -= 1
    while j * first_step + growth * j * (j - 1) * 0.5 < elapsed:
        j += 1
    return j


@compiled
def cut(r: Record, t: float) -> None:
    """End the decode stretch under way at its first step boundary at or after ``t``."""
    if r.kind == DECODE and r.steps > 1 and t < r.end:
        j = steps_until(t - r.began, r.first_step, r.growth)
        if j < r.steps:
            r.steps = j
            r.end = r.began + (j * r.first_step + r.growth * j * (j - 1) * 0.5)


@compiled
def find_soonest(r: Record) -> None:
    """Find the step counter of the first completion among the decoding sequences."""
    soonest = _NEVER
    for j in range(r.running):
        soonest = min(soonest, np.int64(r.slots[j, LAST]))
    r.soonest = soonest


@compiled
def preempt_last(r: Record, q: Array) -> None:
    """Put the last admitted request back to the head of the queue; it will be recomputed."""
    if r.prefilling > 0:
        r.prefilling -= 1
        i = r.slots[r.prefilling, PART]
        x = q[i]
        r.prefill_blocks -= (x.need + (1 << r.block_shift) - 1) >> r.block_shift
    else:
        r.running -= 1
        j = r.running
        i = np.int64(r.slots[j, RID])
        x = q[i]
        r.context -= r.slots[j, BASE] + r.decoded
        x.remaining = r.slots[j, LAST] - r.decoded
        find_soonest(r)
        x.need = x.prompt_tokens + x.output_tokens - x.remaining
    x.done = 0
    x.preemptions += 1
    x.next = r.wait_head
    r.wait_head = i
    if r.waiting == 0:
        r.wait_tail = i
    r.waiting += 1


@compiled
def plan(r: Record, now: float, q: Array) -> None:
    """Choose the next stretch: preempt if KV is short, continue prefills, admit, else decode on."""
    r.began = now
    r.busy_from = max(now, r.busy_from)
    if r.hang != 0:
        stall(r)
        return
    shift = r.block_shift
    round_up = (1 << shift) - 1
    preempted = False
    if ((r.context + (round_up + 1 + round_up) * r.running) >> shift) + r.prefill_blocks > r.blocks:
        while r.running + r.prefilling > 0 and blocks_next(
            r, r.decoded
        ) > r.blocks - r.prefill_blocks - blocks_used(r):
            preempted = True
            preempt_last(r, q)
    n = r.running
    context = r.context
    slots = r.slots
    tokens = 0
    budget = r.token_budget - n
    for j in range(r.prefilling):
        x = q[slots[j, PART]]
        c = min(np.int64(x.need - x.done), budget)
        slots[j, CHUNK] = c
        budget -= c
        tokens += c
    if r.waiting > 0 and not preempted:
        reserved = -1
        while r.waiting > 0 and n + r.prefilling < r.max_batch and budget > 0:
            i = r.wait_head
            x = q[i]
            wanted = (np.int64(x.need) + round_up) >> shift
            room = r.blocks - r.prefill_blocks - wanted - r.watermark
            if (room << shift) < context:
                break
            if (room << shift) < context + (round_up + 1 + round_up) * n:
                # Only inside this window is the exact count needed.
                if reserved < 0:
                    reserved = blocks_used(r) + blocks_next(r, r.decoded)
                if room < reserved:
                    break
            r.wait_head = x.next
            r.waiting -= 1
            r.prefill_blocks += wanted
            if x.started < 0.0:
                x.started = now
            c = min(np.int64(x.need), budget)
            slots[r.prefilling, PART] = i
            slots[r.prefilling, CHUNK] = c
            r.prefilling += 1
            budget -= c
            tokens += c
    first_step = r.c0 + r.c2 * n + r.c3 * context
    if tokens > 0:
        r.steps = 1 if n > 0 else 0
        r.kind = MIXED
        r.end = now + (first_step + r.c1 * tokens)
        return
    if n == 0:
        stall(r)
        return
    m = 1
    growth = r.c3 * n
    if not preempted:
        m = r.soonest - r.decoded
        if ((context + n * m + round_up * n) >> shift) + r.prefill_blocks > r.blocks:
            free = r.blocks - r.prefill_blocks - blocks_used(r)
            k = 0
            while k < m:
                free -= blocks_next(r, r.decoded + k)
                if free < 0:
                    break
                k += 1
            m = max(k, 1)
    r.steps = m
    r.kind = DECODE
    r.first_step = first_step
    r.growth = growth
    r.end = now + (m * first_step + growth * m * (m - 1) * 0.5)
    if r.end > r.deadline:
        cut(r, r.deadline)


@compiled
def stall(r: Record) -> None:
    """No step possible: idle, or waiting for the next deadline."""
    r.steps = 0
    if r.outstanding == 0:
        r.kind = IDLE
        r.end = np.inf
    else:
        r.kind = STALL
        r.end = r.deadline


@compiled
def end_request(r: Record, i: int, status: int, now: float, q: Array) -> None:
    """Mark request ``i`` as ended on this replica and chain it for counting."""
    x = q[i]
    x.status = status
    x.deadline = now
    x.next = _NONE
    r.outstanding -= 1
    r.consecutive_failed = 0 if status == _ANSWERED else r.consecutive_failed + 1
    if r.ended_head == _NONE:
        r.ended_head = i
    else:
        q[r.ended_tail].next = i
    r.ended_tail = i


@compiled
def cancel_expired(r: Record, now: float, q: Array) -> None:
    """Cancel what is past its deadline and find the next one exactly."""
    shift = r.block_shift
    soonest = np.inf
    k = 0
    for j in range(r.running):
        i = np.int64(r.slots[j, RID])
        if q[i].deadline <= now:
            r.context -= r.slots[j, BASE] + r.decoded
            end_request(r, i, _TIMEOUT, now, q)
        else:
            soonest = min(soonest, q[i].deadline)
            r.slots[k, RID] = i
            r.slots[k, BASE] = r.slots[j, BASE]
            r.slots[k, LAST] = r.slots[j, LAST]
            k += 1
    r.running = k
    find_soonest(r)
    k = 0
    for j in range(r.prefilling):
        i = np.int64(r.slots[j, PART])
        if q[i].deadline <= now:
            r.prefill_blocks -= (q[i].need + (1 << shift) - 1) >> shift
            end_request(r, i, _TIMEOUT, now, q)
        else:
            soonest = min(soonest, q[i].deadline)
            r.slots[k, PART] = i
            k += 1
    r.prefilling = k
    i = r.wait_head
    count = r.waiting
    r.waiting = 0
    for _ in range(count):
        following = q[i].next
        if q[i].deadline <= now:
            end_request(r, i, _TIMEOUT, now, q)
        else:
            soonest = min(soonest, q[i].deadline)
            enqueue(r, i, q)
        i = following
    r.deadline = soonest


@compiled
def enqueue(r: Record, i: int, q: Array) -> None:
    """Append request ``i`` to the waiting queue."""
    if r.waiting == 0:
        r.wait_head = i
    else:
        q[r.wait_tail].next = i
    r.wait_tail = i
    r.waiting += 1


@compiled
def finish_stretch(r: Record, q: Array) -> None:
    """Book the tokens of the stretch that ends now, complete requests, cancel expired ones."""
    now = r.end
    n = r.running
    if r.kind != STALL:
        r.busy += now - r.busy_from
        r.busy_from = now
    r.decoded += r.steps
    decoded = r.decoded
    slots = r.slots
    if n > 0 and r.steps > 0:
        context = r.context + n * r.steps
        if decoded >= r.soonest:
            soonest = _NEVER
            k = 0
            for j in range(n):
                if slots[j, LAST] <= decoded:
                    i = np.int64(slots[j, RID])
                    context -= slots[j, BASE] + decoded
                    late = now > q[i].deadline
                    end_request(r, i, _TIMEOUT if late else _ANSWERED, now, q)
                else:
                    soonest = min(soonest, np.int64(slots[j, LAST]))
                    if k != j:
                        slots[k, RID] = slots[j, RID]
                        slots[k, BASE] = slots[j, BASE]
                        slots[k, LAST] = slots[j, LAST]
                    k += 1
            n = k
            r.soonest = soonest
        r.context = context
    if r.kind == MIXED:
        k = 0
        for j in range(r.prefilling):
            i = np.int64(slots[j, PART])
            x = q[i]
            x.done += slots[j, CHUNK]
            if x.done == x.need:
                need = np.int64(x.need)
                r.prefill_blocks -= (need + (1 << r.block_shift) - 1) >> r.block_shift
                if x.first < 0.0:
                    x.first = now
                x.remaining -= 1
                if x.remaining <= 0:
                    end_request(r, i, _TIMEOUT if now > x.deadline else _ANSWERED, now, q)
                else:
                    slots[n, RID] = i
                    slots[n, BASE] = need - decoded
                    slots[n, LAST] = decoded + x.remaining
                    r.soonest = min(np.int64(r.soonest), decoded + x.remaining)
                    n += 1
                    r.context += need
            else:
                slots[k, PART] = i
                k += 1
        r.prefilling = k
    r.running = n
    if now >= r.deadline:
        cancel_expired(r, now, q)


@compiled
def run_replica(r: Record, until: float, q: Array) -> None:
    """Advance one replica to ``until``, step ends at ``until`` included."""
    while r.end <= until:
        now = r.end
        finish_stretch(r, q)
        plan(r, now, q)


@compiled
def accept(r: Record, i: int, now: float, q: Array) -> None:
    """Queue request ``i`` on a replica that is advanced to ``now``."""
    deadline = q[i].deadline
    r.outstanding += 1
    r.deadline = min(r.deadline, deadline)
    enqueue(r, i, q)
    if r.kind == IDLE:
        r.busy_from = now
        plan(r, now, q)
    elif r.kind == STALL:
        r.end = r.deadline
    elif r.kind == DECODE and r.steps > 1:
        if r.waiting == 1 and r.running + r.prefilling < r.max_batch:
            cut(r, now)
        elif deadline < r.end:
            cut(r, deadline)


@compiled
def steps_done(r: Record, now: float) -> int:
    """Steps of the decode stretch under way that have ended at ``now``."""
    if r.kind != DECODE or r.steps <= 1 or now <= r.began:
        return 0
    j = steps_until(now - r.began, r.first_step, r.growth)
    ends = r.began + (j * r.first_step + r.growth * j * (j - 1) * 0.5)
    return j if ends <= now else j - 1


@compiled
def credit(x: Record, made: int, condition: int, kernel: int, quality: Array) -> None:
    """Book the excess TV of the tokens made since the last booking."""
    if made > x.credited:
        c = condition if condition != 0 else np.int64(x.poison)
        x.excess_tv += (made - x.credited) * quality[kernel, c, x.prompt]
        x.credited = made


@compiled
def credit_replica(r: Record, now: float, q: Array, quality: Array) -> None:
    """Book all tokens up to the end of the step under way, before the condition changes."""
    steps = r.steps
    if r.kind == DECODE and steps > 1:
        steps = min(steps, steps_until(now - r.began, r.first_step, r.growth))
    for j in range(r.running):
        x = q[r.slots[j, RID]]
        credit(x, x.output_tokens - (r.slots[j, LAST] - (r.decoded + steps)), r.condition, r.kernel, quality)
    for j in range(r.prefilling):
        x = q[r.slots[j, PART]]
        token = 1 if r.kind == MIXED and x.done + r.slots[j, CHUNK] == x.need else 0
        credit(x, x.output_tokens - x.remaining + token, r.condition, r.kernel, quality)
    i = r.wait_head
    for _ in range(r.waiting):
        x = q[i]
        credit(x, x.output_tokens - x.remaining, r.condition, r.kernel, quality)
        i = x.next


@compiled
def set_condition(reps: Array, at: int, condition: int, now: float, q: Array, quality: Array) -> None:
    """Change the quality condition of one replica; no time changes."""
    r = reps[at]
    credit_replica(r, now, q, quality)
    r.condition = condition


@compiled
def replan(reps: Array, at: int, now: float, q: Array) -> None:
    """Let changed speed, blocks or hang take effect from the next step boundary on."""
    r = reps[at]
    if r.kind == IDLE or r.kind == STALL:
        r.busy_from = now
        plan(r, now, q)
    else:
        cut(r, now)


# ---------------------------------------------------------------- the gateway


@compiled
def untried(x: Record, k: int, reps: Array, members: Array) -> int:
    """Replicas of kernel ``k`` in rotation that this request has not tried."""
    count = members[k, 0]
    for j in range(x.attempts):
        a = x.tried[j]
        if reps[a].kernel == k and reps[a].in_rotation != 0:
            count -= 1
    return count


@compiled
def pick_kernel(x: Record, table: Array, reps: Array, members: Array) -> int:
    """Kernel by the row's weights; the column after the last is shed, -1 where none has a replica left."""
    s = x.slice
    kernels = table.shape[1] - 1
    u = x.u_kernel / UNIT + x.attempts * _TURN
    u -= math.floor(u)
    if x.attempts == 0:
        total = 0.0
        drawn = _NONE
        for k in range(kernels + 1):
            weight = table[s, k]
            if weight > 0.0:
                drawn = k
                if u < total + weight:
                    break
                total += weight
        if drawn == kernels:
            return kernels
        if drawn != _NONE:
            if members[drawn, 0] > 0:
                return drawn
            u = min(max((u - total) / table[s, drawn], 0.0), 1.0)
    total = 0.0
    for k in range(kernels):
        if table[s, k] > 0.0 and untried(x, k, reps, members) > 0:
            total += table[s, k]
    u *= total
    total = 0.0
    drawn = _NONE
    for k in range(kernels):
        if table[s, k] > 0.0 and untried(x, k, reps, members) > 0:
            drawn = k
            total += table[s, k]
            if u < total:
                break
    return drawn


@compiled
def has_tried(x: Record, a: int) -> bool:
    """Whether a request has been to replica ``a``."""
    for j in range(x.attempts):
        if x.tried[j] == a:
            return True
    return False


@compiled
def candidate(x: Record, u: float, k: int, members: Array) -> int:
    """Untried member of kernel ``k`` at or after the one that ``u`` points to."""
    n = members[k, 0]
    at = int(u * n)
    while has_tried(x, members[k, 1 + at]):
        at = at + 1 if at + 1 < n else 0
    return np.int64(members[k, 1 + at])


@compiled
def pick_replica(x: Record, k: int, now: float, reps: Array, members: Array, q: Array) -> int:
    """The less loaded of two random members of kernel ``k``, advanced to ``now``."""
    turn = x.attempts * _TURN
    u = x.u_first / UNIT + turn
    a = candidate(x, u - math.floor(u), k, members)
    u = x.u_second / UNIT + turn
    b = candidate(x, u - math.floor(u), k, members)
    if reps[a].end <= now:
        run_replica(reps[a], now, q)
    if a == b:
        return a
    if reps[b].end <= now:
        run_replica(reps[b], now, q)
    return b if reps[a].outstanding > reps[b].outstanding else a


@compiled
def offer(r: Record, x: Record, now: float) -> int:
    """What replica ``r``, advanced to ``now``, says to a request: in flight (accepted) or why not."""
    if now < r.alive_at:
        return _RESET
    if r.error_ratio > 0.0:
        u = x.u_error / UNIT + x.attempts * _TURN_ERROR
        if u - math.floor(u) < r.error_ratio:
            return _HTTP_ERROR
    if r.waiting >= r.queue_limit:
        return _REJECTED
    return _IN_FLIGHT


@compiled
def remember_session(seen: Record, tag: int, a: int, r: Record, x: Record) -> None:
    """Note where this session's prefix lives, and the condition under which it was computed."""
    known = seen.tag == tag and seen.replica == a and seen.epoch == r.cache_epoch
    x.poison = seen.condition if known else 0
    if r.condition != 0 or not known:
        seen.condition = r.condition
    seen.tag = tag
    seen.replica = a
    seen.epoch = r.cache_epoch


@compiled
def route(
    i: int,
    now: float,
    reps: Array,
    q: Array,
    table: Array,
    members: Array,
    sessions: Array,
    timeout: Array,
    violating: Array,
    cells: Array,
    per_slice: Array,
    limits: Array,
) -> None:
    """Send request ``i`` to a replica, trying others while it is refused; fleet-local views throughout."""
    x = q[i]
    s = x.slice
    status = np.int64(_NO_REPLICA)
    kernels = table.shape[1] - 1
    while True:
        k = pick_kernel(x, table, reps, members)
        if k == kernels:
            x.status = _SHED
            x.deadline = now
            per_slice[s, SHED_COUNT] += 1
            return
        if k < 0:
            break
        a = _NONE
        tag = 0
        slot = 0
        if x.session >= 0:
            slot = x.session & (sessions.shape[0] - 1)
            tag = 1 + x.session // sessions.shape[0]
            if limits[1] != 0 and sessions[slot, k].tag == tag:
                a = np.int64(sessions[slot, k].replica)
                if reps[a].in_rotation == 0 or has_tried(x, a):
                    a = _NONE
                elif reps[a].end <= now:
                    run_replica(reps[a], now, q)
        if a < 0:
            a = pick_replica(x, k, now, reps, members, q)
        r = reps[a]
        if x.attempts < x.tried.shape[0]:
            x.tried[x.attempts] = a
        x.replica = a
        x.routed = now
        cells[a, s, DISPATCHED] += 1
        answer = offer(r, x, now)
        x.attempts += 1
        if answer == _IN_FLIGHT:
            x.lag = r.lag
            x.deadline = max(x.arrived + timeout[s] - r.lag, now)
            x.exposed = violating[a, s]
            if x.session >= 0:
                remember_session(sessions[slot, k], tag, a, r, x)
            accept(r, i, now, q)
            return
        status = answer
        if answer == _REJECTED:
            cells[a, s, ATTEMPTS_REJECTED] += 1
        else:
            cells[a, s, ATTEMPTS_FAILED] += 1
            r.consecutive_failed += 1
        if x.attempts >= limits[0]:
            break
    x.status = status
    x.deadline = now
    per_slice[s, FIRST_REASON + status - _TIMEOUT] += 1
    if x.attempts == 0:
        per_slice[s, UNROUTED] += 1
    else:
        cells[x.replica, s, FAILED] += 1


@compiled
def bucket(value: float, edges: Array) -> int:
    """Index of the first edge >= ``value``."""
    at = 0
    for j in range(edges.shape[0]):
        # Without a branch: latencies are too random to predict one.
        at += edges[j] < value
    return at


@compiled
def take_record(fleet: Record, arrival: Record, q: Array, free: Array) -> int:
    """Give an arrival a request record; its number."""
    i = free[fleet.in_use]
    x = q[i]
    fleet.in_use += 1
    soon = free[min(fleet.in_use + _AHEAD, free.shape[0] - 1)]
    prefetch(q[soon], 0)
    prefetch(q[soon], CACHE_LINE)
    x.arrived = arrival.arrived
    x.slice = arrival.slice
    x.prompt_tokens = arrival.prompt_tokens
    x.output_tokens = arrival.output_tokens
    x.session = arrival.session
    x.prompt = arrival.prompt
    x.u_kernel = arrival.u_kernel
    x.u_first = arrival.u_first
    x.u_second = arrival.u_second
    x.u_error = arrival.u_error
    x.need = arrival.prompt_tokens
    x.remaining = arrival.output_tokens
    x.done = 0
    x.credited = 0
    x.preemptions = 0
    x.routed = -1.0
    x.started = -1.0
    x.first = -1.0
    x.deadline = np.inf
    x.lag = 0.0
    x.excess_tv = 0.0
    x.next = _NONE
    x.replica = _NONE
    x.poison = 0
    x.status = _IN_FLIGHT
    x.attempts = 0
    x.exposed = 0
    return np.int64(i)


@compiled
def release_record(fleet: Record, i: int, free: Array, limits: Array) -> None:
    """Let the next arrival use the record of an ended request, unless all are kept."""
    if limits[2] == 0:
        fleet.in_use -= 1
        free[fleet.in_use] = i


@compiled
def fetch_replica(r: Record) -> None:
    """Prefetch the part of a replica that a small batch touches."""
    for line in range(0, _WARM_BYTES, CACHE_LINE):
        prefetch(r, line)


@compiled
def look_ahead(x: Record, table: Array, members: Array, sessions: Array, reps: Array) -> None:
    """Fetch the replicas that arrival ``x`` will probably compare, while the one before it is routed.

    A guess that costs nothing when wrong; without it a large fleet waits for memory at every arrival.
    """
    u = x.u_kernel / UNIT
    k = 0
    while k < members.shape[0] - 1 and u >= table[x.slice, k]:
        u -= table[x.slice, k]
        k += 1
    n = members[k, 0]
    if n > 0:
        a = members[k, 1 + int(x.u_first / UNIT * n)]
        b = members[k, 1 + int(x.u_second / UNIT * n)]
        fetch_replica(reps[a])
        fetch_replica(reps[b])
    if x.session >= 0:
        prefetch(sessions[x.session & (sessions.shape[0] - 1), k], 0)


@compiled
def count_ended(
    a: int,
    fleet: Record,
    reps: Array,
    q: Array,
    free: Array,
    limits: Array,
    quality: Array,
    slo_ms: Array,
    edges: Array,
    row_changed: Array,
    cells: Array,
    excess_tv: Array,
    per_slice: Array,
    histogram: Array,
) -> None:
    """Count what ended on replica ``a`` since the last count, in the order in which it ended."""
    r = reps[a]
    i = r.ended_head
    while i != _NONE:
        x = q[i]
        s = x.slice
        if x.status == _ANSWERED:
            latency_ms = (x.deadline + x.lag - x.arrived) * 1000.0
            ttft_ms = (x.first + x.lag - x.arrived) * 1000.0
            gap_ms = (x.deadline - x.first) * 1000.0 / max(x.output_tokens - 1, 1)
            credit(x, x.output_tokens, r.condition, r.kernel, quality)
            histogram[a, s, 0, bucket(latency_ms, edges)] += 1
            histogram[a, s, 1, bucket(ttft_ms, edges)] += 1
            histogram[a, s, 2, bucket(gap_ms, edges)] += 1
            cells[a, s, ANSWERED] += 1
            cells[a, s, TOKENS] += x.output_tokens
            if latency_ms > slo_ms[s, 0] or ttft_ms > slo_ms[s, 1] or gap_ms > slo_ms[s, 2]:
                cells[a, s, SLO_MISSED] += 1
            if x.exposed != 0:
                cells[a, s, EXPOSED] += 1
                if x.routed < row_changed[s]:
                    cells[a, s, EXPOSED_IN_FLIGHT] += 1
            excess_tv[a, s] += x.excess_tv
        else:
            cells[a, s, FAILED] += 1
            cells[a, s, ATTEMPTS_FAILED] += 1
            per_slice[s, FIRST_REASON + x.status - _TIMEOUT] += 1
        following = x.next
        if following != _NONE:
            prefetch(q[following], 0)
            prefetch(q[following], CACHE_LINE)
        release_record(fleet, i, free, limits)
        i = following
    r.ended_head = _NONE


@compiled
def fetch_fleet(
    fleet: Record, reps: Array, q: Array, free: Array, arrivals: Array, cells: Array, histogram: Array
) -> None:
    """Ask for what the next fleet will touch while this one is advanced."""
    for a in range(reps.shape[0]):
        fetch_replica(reps[a])
        for s in range(histogram.shape[1]):
            for f in range(histogram.shape[2]):
                prefetch_row(histogram[a, s, f])
            prefetch_row(cells[a, s])
    for j in range(fleet.in_use, min(fleet.in_use + _FRESH, free.shape[0])):
        prefetch(q[free[j]], 0)
        prefetch(q[free[j]], CACHE_LINE)
    mask = arrivals.shape[0] - 1
    for j in range(min(fleet.fed - fleet.cursor, 4 * _FRESH)):
        prefetch(arrivals[(fleet.cursor + j) & mask], 0)


@compiled
def fetch_requests(reps: Array, q: Array) -> None:
    """Ask for the requests that a fleet is serving."""
    for a in range(reps.shape[0]):
        r = reps[a]
        for j in range(r.running):
            prefetch(q[r.slots[j, RID]], 0)
            prefetch(q[r.slots[j, RID]], CACHE_LINE)
        for j in range(r.prefilling):
            prefetch(q[r.slots[j, PART]], 0)
            prefetch(q[r.slots[j, PART]], CACHE_LINE)


@compiled
def advance_fleets(
    first: int,
    stop: int,
    until: float,
    fleets: Array,
    replicas: Array,
    arrivals: Array,
    requests: Array,
    free_records: Array,
    table: Array,
    members: Array,
    sessions: Array,
    row_changed: Array,
    violating: Array,
    timeout: Array,
    quality: Array,
    slo_ms: Array,
    edges: Array,
    limits: Array,
    cells: Array,
    excess_tv: Array,
    per_slice: Array,
    histogram: Array,
) -> int:
    """Advance fleets ``first .. stop - 1`` to ``until``: retries now due, then arrivals in order.

    Returns ``NOWHERE``, or the fleet that has no free record left, with the work there begun.
    """
    mask = arrivals.shape[1] - 1
    for b in range(first, stop):
        # Views once per fleet: each one made costs two atomic reference counts.
        fleet = fleets[b]
        reps = replicas[b]
        q = requests[b]
        free = free_records[b]
        rows = table[b]
        group = members[b]
        remembered = sessions[b]
        wrong = violating[b]
        cell = cells[b]
        tv = excess_tv[b]
        total = per_slice[b]
        counts = histogram[b]
        changed = row_changed[b]
        if b > first:
            fetch_requests(reps, q)
        if b + 1 < stop:
            fetch_fleet(
                fleets[b + 1], replicas[b + 1], requests[b + 1], free_records[b + 1], arrivals[b + 1],
                cells[b + 1], histogram[b + 1],
            )  # fmt: skip
        while fleet.retry_head != _NONE or fleet.cursor < fleet.fed:
            if fleet.retry_head != _NONE:
                i = np.int64(fleet.retry_head)
                fleet.retry_head = q[i].next
                at = fleet.now
            else:
                arrival = arrivals[b, fleet.cursor & mask]
                at = arrival.arrived
                if at > until:
                    break
                if fleet.in_use == free.shape[0]:
                    return b
                fleet.cursor += 1
                total[arrival.slice, OFFERED] += 1
                total[arrival.slice, OFFERED_TOKENS] += arrival.output_tokens
                i = take_record(fleet, arrival, q, free)
                if fleet.cursor < fleet.fed:
                    look_ahead(arrivals[b, fleet.cursor & mask], rows, group, remembered, reps)
            route(i, at, reps, q, rows, group, remembered, timeout, wrong, cell, total, limits)
            if q[i].status != _IN_FLIGHT:
                release_record(fleet, i, free, limits)
            else:
                a = np.int64(q[i].replica)
                if reps[a].ended_head != _NONE:
                    count_ended(
                        a,
                        fleet,
                        reps,
                        q,
                        free,
                        limits,
                        quality,
                        slo_ms,
                        edges,
                        changed,
                        cell,
                        tv,
                        total,
                        counts,
                    )
        for a in range(reps.shape[0]):
            if a + 2 < reps.shape[0]:
                fetch_replica(reps[a + 2])
                ended = reps[a + 1].ended_head
                if ended != _NONE:
                    prefetch(q[ended], 0)
                    prefetch(q[ended], CACHE_LINE)
            if reps[a].end <= until:
                run_replica(reps[a], until, q)
            if reps[a].ended_head != _NONE:
                count_ended(
                    a, fleet, reps, q, free, limits, quality, slo_ms, edges, changed, cell, tv, total, counts
                )
        fleet.now = until
    return NOWHERE


@compiled
def retry_later(fleet: Record, i: int, q: Array) -> None:
    """Reset request ``i`` to a fresh one that remembers its attempts, and queue it for routing."""
    x = q[i]
    x.need = x.prompt_tokens
    x.done = 0
    x.remaining = x.output_tokens
    x.credited = 0
    x.excess_tv = 0.0
    x.started = -1.0
    x.next = _NONE
    if fleet.retry_head == _NONE:
        fleet.retry_head = i
    else:
        q[fleet.retry_tail].next = i
    fleet.retry_tail = i


@compiled
def lose(r: Record, i: int, fleet: Record, q: Array, cells: Array, timeout: Array, limits: Array) -> None:
    """Request ``i`` loses its replica: retried if no token was streamed, attempts and time are left."""
    x = q[i]
    if x.first < 0.0 and x.attempts < limits[0] and fleet.now < x.arrived + timeout[x.slice]:
        r.outstanding -= 1
        r.consecutive_failed += 1
        cells[x.replica, x.slice, ATTEMPTS_FAILED] += 1
        retry_later(fleet, i, q)
    else:
        end_request(r, i, _RESET, fleet.now, q)


@compiled
def crash_replica(
    b: int,
    a: int,
    fleets: Array,
    replicas: Array,
    requests: Array,
    cells: Array,
    timeout: Array,
    limits: Array,
) -> None:
    """Kill replica ``a`` of fleet ``b`` at the fleet's current time."""
    r = replicas[b, a]
    fleet = fleets[b]
    q = requests[b]
    if r.kind == MIXED or r.kind == DECODE:
        r.busy += fleet.now - r.busy_from
    for j in range(r.running):
        lose(r, r.slots[j, RID], fleet, q, cells[b], timeout, limits)
    for j in range(r.prefilling):
        lose(r, r.slots[j, PART], fleet, q, cells[b], timeout, limits)
    i = r.wait_head
    for _ in range(r.waiting):
        following = q[i].next
        lose(r, i, fleet, q, cells[b], timeout, limits)
        i = following
    r.running = 0
    r.soonest = _NEVER
    r.prefilling = 0
    r.prefill_blocks = 0
    r.context = 0
    r.waiting = 0
    r.deadline = np.inf
    r.alive_at = np.inf
    r.cache_epoch += 1
    stall(r)


# ---------------------------------------------------------------- in and out


@compiled
def set_table(fleets: Array, table: Array, old: Array, row_changed: Array) -> None:
    """Put ``table`` in force; of rows that differ, note the time."""
    for b in range(table.shape[0]):
        for s in range(table.shape[1]):
            for k in range(table.shape[2]):
                if table[b, s, k] != old[b, s, k]:
                    old[b, s, k] = table[b, s, k]
                    row_changed[b, s] = fleets[b].now


@compiled
def feed_arrivals(
    b: int,
    fleets: Array,
    arrivals: Array,
    arrived: Array,
    slices: Array,
    prompt_tokens: Array,
    output_tokens: Array,
    session: Array,
    prompt: Array,
    uniforms: Array,
) -> None:
    """Append to the ring of arrivals, which has room."""
    mask = arrivals.shape[1] - 1
    fleet = fleets[b]
    for j in range(arrived.shape[0]):
        x = arrivals[b, (fleet.fed + j) & mask]
        x.arrived = arrived[j]
        x.slice = slices[j]
        x.prompt_tokens = prompt_tokens[j]
        x.output_tokens = output_tokens[j]
        x.session = session[j]
        x.prompt = prompt[j]
        x.u_kernel = int(uniforms[j, 0] * UNIT)
        x.u_first = int(uniforms[j, 1] * UNIT)
        x.u_second = int(uniforms[j, 2] * UNIT)
        x.u_error = int(uniforms[j, 3] * UNIT)
    fleet.fed += arrived.shape[0]


@compiled
def feed_records(b: int, fleets: Array, arrivals: Array, records: Array) -> None:
    """Append records of arrivals to the ring, which has room."""
    mask = arrivals.shape[1] - 1
    fleet = fleets[b]
    for j in range(records.shape[0]):
        arrivals[b, (fleet.fed + j) & mask] = records[j]
    fleet.fed += records.shape[0]


@compiled
def move_arrivals(fleets: Array, old: Array, new: Array) -> None:
    """Copy the arrivals still to come into a larger ring."""
    for b in range(old.shape[0]):
        for i in range(fleets[b].cursor, fleets[b].fed):
            new[b, i & (new.shape[1] - 1)] = old[b, i & (old.shape[1] - 1)]


@compiled
def take(
    fleets: Array,
    replicas: Array,
    cells: Array,
    excess_tv: Array,
    per_slice: Array,
    out_cells: Array,
    out_excess_tv: Array,
    out_per_slice: Array,
    out_busy: Array,
) -> None:
    """Copy all counts out and zero them; busy time is split at this instant."""
    for b in range(replicas.shape[0]):
        now = fleets[b].now
        for a in range(replicas.shape[1]):
            r = replicas[b, a]
            if r.kind == MIXED or r.kind == DECODE:
                r.busy += now - r.busy_from
                r.busy_from = now
            out_busy[b, a] = r.busy
            r.busy = 0.0
            for s in range(per_slice.shape[1]):
                out_excess_tv[b, s] += excess_tv[b, a, s]
                excess_tv[b, a, s] = 0.0
                for c in range(cells.shape[3]):
                    out_cells[b, a, s, c] = cells[b, a, s, c]
                    cells[b, a, s, c] = 0
        for s in range(per_slice.shape[1]):
            for c in range(per_slice.shape[2]):
                out_per_slice[b, s, c] = per_slice[b, s, c]
                per_slice[b, s, c] = 0


@compiled
def read_gauges(fleets: Array, replicas: Array, out: Array, kv_used: Array) -> None:
    """Running, waiting, outstanding, consecutive failures, alive into ``out`` [5, B, R]; KV use apart."""
    for b in range(replicas.shape[0]):
        now = fleets[b].now
        for a in range(replicas.shape[1]):
            r = replicas[b, a]
            out[0, b, a] = r.running + r.prefilling
            out[1, b, a] = r.waiting
            out[2, b, a] = r.outstanding
            out[3, b, a] = r.consecutive_failed
            out[4, b, a] = 1 if now >= r.alive_at else 0
            done = steps_done(r, now)
            r.decoded += done
            used = blocks_used(r) + r.prefill_blocks + r.all_blocks - r.blocks
            r.decoded -= done
            kv_used[b, a] = min(used / r.all_blocks, 1.0)
