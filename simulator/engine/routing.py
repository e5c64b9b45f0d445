"""The gateway: chooses a kernel by the row's weights, a replica by two random choices, others after
refusals.
"""

from __future__ import annotations

import math

import numpy as np

from contracts.jit import compiled
from contracts.seed_hashing import hashed_uniform
from simulator.engine.counters import (
    ATTEMPTS_FAILED,
    ATTEMPTS_REJECTED,
    DISPATCHED,
    FAILED,
    FIRST_REASON,
    SHED_COUNT,
    UNROUTED,
)
from simulator.engine.layout import NONE, UNIFORM_UNIT
from simulator.engine.memory import Fleet, Record
from simulator.engine.quality import prefix_condition
from simulator.engine.replica import accept, run_replica
from simulator.engine.requests import HTTP_ERROR, IN_FLIGHT, NO_REPLICA, REJECTED, RESET, SHED, TIMEOUT

# Weyl step: later attempts reuse the request's own uniforms, shifted by an irrational number.
_TURN = 0.6180339887498949


@compiled(inline="always")
def route(number: int, now_s: float, fleet: Fleet) -> None:
    """Send request ``number`` to a replica, trying others while it is refused."""
    request = fleet.requests[number]
    kernels = fleet.table.shape[1] - 1
    status = np.int64(NO_REPLICA)
    while request.attempts < fleet.rules.max_attempts:
        kernel = pick_kernel(request, fleet)
        if kernel == kernels:
            request.status = SHED
            request.due_or_ended_at_s = now_s
            fleet.per_slice[request.slice, SHED_COUNT] += 1
            return
        if kernel < 0:
            break
        chosen = session_replica(request, kernel, now_s, fleet)
        if chosen < 0:
            chosen = pick_replica(request, kernel, now_s, fleet)
        status = np.int64(try_replica(number, chosen, kernel, now_s, fleet))
        if status == IN_FLIGHT:
            return
    fail(request, status, now_s, fleet)


@compiled(inline="always")
def try_replica(number: int, chosen: int, kernel: int, now_s: float, fleet: Fleet) -> int:
    """One attempt: returns in flight, or why the replica refused."""
    request = fleet.requests[number]
    replica = fleet.replicas[chosen]
    part = request.slice
    if request.attempts < request.tried.shape[0]:
        request.tried[request.attempts] = chosen
    request.replica = chosen
    request.routed_at_s = now_s
    fleet.cells[chosen, part, DISPATCHED] += 1
    answer = offer(replica, request, now_s)
    request.attempts += 1
    if answer == IN_FLIGHT:
        request.http_latency_s = replica.http_latency_s
        deadline_at_s = request.arrived_at_s + fleet.rules.timeout_s[part] - replica.http_latency_s
        request.due_or_ended_at_s = max(deadline_at_s, now_s)
        request.exposed = fleet.violating[chosen, part]
        if request.session >= 0:
            remember_session(request, chosen, kernel, fleet)
        accept(replica, number, now_s, fleet.requests)
    elif answer == REJECTED:
        fleet.cells[chosen, part, ATTEMPTS_REJECTED] += 1
    else:
        fleet.cells[chosen, part, ATTEMPTS_FAILED] += 1
        replica.consecutive_failed += 1
    return answer


@compiled(inline="always")
def fail(request: Record, status: int, now_s: float, fleet: Fleet) -> None:
    """End a request that no replica accepted."""
    request.status = status
    request.due_or_ended_at_s = now_s
    fleet.per_slice[request.slice, FIRST_REASON + status - TIMEOUT] += 1
    if request.attempts == 0:
        fleet.per_slice[request.slice, UNROUTED] += 1
    else:
        fleet.cells[request.replica, request.slice, FAILED] += 1


@compiled(nogil=True)
def offer(replica: Record, request: Record, now_s: float) -> int:
    """The answer of a replica, advanced to ``now_s``, to a request: in flight (accepted), or why not."""
    if now_s < replica.alive_at_s:
        return RESET
    if replica.error_ratio > 0.0 and _error_uniform(request) < replica.error_ratio:
        return HTTP_ERROR
    if replica.waiting >= replica.queue_limit:
        return REJECTED
    return IN_FLIGHT


@compiled
def _error_uniform(request: Record) -> float:
    """A uniform for "answered 5xx" that is independent of earlier attempts."""
    if request.attempts == 0:
        return request.u_error / UNIFORM_UNIT
    return hashed_uniform(request.u_error, 0, request.attempts)


@compiled(inline="always")
def pick_kernel(request: Record, fleet: Fleet) -> int:
    """Kernel by the row's weights; K for shed, -1 if no kernel has a replica left."""
    part = request.slice
    table = fleet.table
    kernels = table.shape[1] - 1
    u = request.u_kernel / UNIFORM_UNIT + request.attempts * _TURN
    u -= math.floor(u)
    if request.attempts == 0:
        total = 0.0
        drawn = NONE
        for kernel in range(kernels + 1):
            weight = table[part, kernel]
            if weight > 0.0:
                drawn = kernel
                if u < total + weight:
                    break
                total += weight
        if drawn == kernels:
            return kernels
        if drawn != NONE:
            if fleet.members[drawn, 0] > 0:
                return drawn
            u = min(max((u - total) / table[part, drawn], 0.0), 1.0)
    return pick_open_kernel(request, u, fleet)


@compiled(inline="always")
def pick_open_kernel(request: Record, u: float, fleet: Fleet) -> int:
    """Kernel by the weights of those with an untried replica; -1 if there is none."""
    part = request.slice
    table = fleet.table
    total = 0.0
    for kernel in range(table.shape[1] - 1):
        if table[part, kernel] > 0.0 and untried(request, kernel, fleet) > 0:
            total += table[part, kernel]
    u *= total
    total = 0.0
    drawn = NONE
    for kernel in range(table.shape[1] - 1):
        if table[part, kernel] > 0.0 and untried(request, kernel, fleet) > 0:
            drawn = kernel
            total += table[part, kernel]
            if u < total:
                break
    return drawn


@compiled(inline="always")
def untried(request: Record, kernel: int, fleet: Fleet) -> int:
    """Number of replicas of ``kernel`` in rotation that this request has not tried."""
    count = fleet.members[kernel, 0]
    for j in range(request.attempts):
        replica = fleet.replicas[request.tried[j]]
        if replica.kernel == kernel and replica.in_rotation != 0:
            count -= 1
    return count


@compiled(inline="always")
def pick_replica(request: Record, kernel: int, now_s: float, fleet: Fleet) -> int:
    """The less loaded of two random members of ``kernel``, advanced to ``now_s``."""
    turn = request.attempts * _TURN
    u = request.u_first / UNIFORM_UNIT + turn
    first = candidate(request, u - math.floor(u), kernel, fleet)
    u = request.u_second / UNIFORM_UNIT + turn
    second = candidate(request, u - math.floor(u), kernel, fleet)
    replicas = fleet.replicas
    if replicas[first].ends_at_s <= now_s:
        run_replica(replicas[first], now_s, fleet.requests)
    if first == second:
        return first
    if replicas[second].ends_at_s <= now_s:
        run_replica(replicas[second], now_s, fleet.requests)
    return second if replicas[first].outstanding > replicas[second].outstanding else first


@compiled(inline="always")
def candidate(request: Record, u: float, kernel: int, fleet: Fleet) -> int:
    """Untried member of ``kernel`` at or after the one that ``u`` points to."""
    members = fleet.members
    count = members[kernel, 0]
    at = int(u * count)
    while has_tried(request, members[kernel, 1 + at]):
        at = at + 1 if at + 1 < count else 0
    return np.int64(members[kernel, 1 + at])


@compiled(nogil=True)
def has_tried(request: Record, chosen: int) -> bool:
    """Whether a request has tried a replica."""
    for j in range(request.attempts):
        if request.tried[j] == chosen:
            return True
    return False


@compiled(inline="always")
def session_replica(request: Record, kernel: int, now_s: float, fleet: Fleet) -> int:
    """The replica of ``kernel`` that serves the request's session, advanced to ``now_s``; -1 for none."""
    if request.session < 0 or not fleet.rules.sticky:
        return NONE
    slots = fleet.sessions.shape[0]
    known = fleet.sessions[request.session & (slots - 1), kernel]
    if known.tag != 1 + request.session // slots:
        return NONE
    chosen = np.int64(known.replica)
    replica = fleet.replicas[chosen]
    if replica.in_rotation == 0 or has_tried(request, chosen):
        return NONE
    if replica.ends_at_s <= now_s:
        run_replica(replica, now_s, fleet.requests)
    return chosen


@compiled(inline="always")
def remember_session(request: Record, chosen: int, kernel: int, fleet: Fleet) -> None:
    """Note the replica with this session's prefix, and the condition under which the prefix was computed."""
    slots = fleet.sessions.shape[0]
    tag = 1 + request.session // slots
    seen = fleet.sessions[request.session & (slots - 1), kernel]
    replica = fleet.replicas[chosen]
    known = seen.tag == tag and seen.replica == chosen and seen.epoch == replica.cache_epoch
    request.prefix_condition = seen.condition if known else 0
    left = prefix_condition(request, replica)
    if left != 0 or not known:
        seen.condition = left
    seen.tag = tag
    seen.replica = chosen
    seen.epoch = replica.cache_epoch
