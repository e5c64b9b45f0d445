"""External changes to a fleet: feed arrivals, set tables, change conditions, kill and read replicas."""

from __future__ import annotations

import numpy as np

from contracts.jit import borrowed, compiled
from simulator.engine.batch import blocks_used, end_request
from simulator.engine.counters import ATTEMPTS_FAILED
from simulator.engine.exported import HEAD_WAIT_S, KV_USED, forget_counts, head_wait_s, read_exported
from simulator.engine.free_records import retry_later
from simulator.engine.gauges import (
    CONSECUTIVE_FAILED,
    OUTSTANDING,
    RUNNING,
    WAITING,
)
from simulator.engine.layout import DECODE, MIXED, NEVER, PREFILL, SEQUENCE
from simulator.engine.memory import Array, EngineMemory, Fleet, Record, Rules, fleet_of
from simulator.engine.quality import credit_replica
from simulator.engine.replica import replan
from simulator.engine.requests import RESET
from simulator.engine.stretch import stall, steps_done, stretch_s


@compiled(nogil=True)
def set_condition(
    replicas: Array, at: int, condition: int, now_s: float, requests: Array, quality: Array
) -> None:
    """Change the quality condition of replica number ``at`` of a fleet; no time changes."""
    replica = replicas[at]
    credit_replica(replica, now_s, requests, quality)
    replica.condition = condition


@compiled(nogil=True)
def change_speed(replicas: Array, at: int, now_s: float, requests: Array) -> None:
    """Apply the speed, blocks or hang that were written to replica number ``at`` of a fleet."""
    replan(replicas[at], now_s, requests)


@compiled(nogil=True)
def crash_replica(b: int, at: int, memory: EngineMemory, rules: Rules) -> None:
    """Kill replica number ``at`` of fleet ``b`` now; both records are packed as plain tuples."""
    fleet = fleet_of(EngineMemory(*memory), Rules(*rules), b)
    replica = fleet.replicas[at]
    lose_all(replica, fleet)
    replica.alive_at_s = np.inf
    replica.cache_epoch += 1
    forget_counts(replica)


@compiled(nogil=True)
def reset_replica(b: int, at: int, memory: EngineMemory, rules: Rules) -> None:
    """End the open streams of replica number ``at`` of fleet ``b`` now; process, cache and counts stay."""
    fleet = fleet_of(EngineMemory(*memory), Rules(*rules), b)
    book_steps(fleet.replicas[at], fleet.state.now_s)
    lose_all(fleet.replicas[at], fleet)


@compiled(nogil=True)
def book_steps(replica: Record, now_s: float) -> None:
    """Count the ended steps of the decode stretch under way, as the server counts them."""
    done = steps_done(replica, now_s)
    if done > 0:
        ended_at_s = replica.began_at_s + stretch_s(done, replica.first_step_s, replica.growth_s)
        replica.decoded += done
        replica.inter_tokens += replica.running * done
        replica.inter_token_s += replica.running * (ended_at_s - replica.last_step_at_s)
        replica.last_step_at_s = ended_at_s


@compiled(nogil=True)
def lose_all(replica: Record, fleet: Fleet) -> None:
    """Take all requests away from ``replica``; the step under way makes no token."""
    if replica.kind == MIXED or replica.kind == DECODE:
        replica.busy_s += fleet.state.now_s - replica.busy_counted_at_s
    for j in range(replica.running):
        lose(replica.slots[j, SEQUENCE], replica, fleet)
    for j in range(replica.prefilling):
        lose(replica.slots[j, PREFILL], replica, fleet)
    number = replica.wait_head
    for _ in range(replica.waiting):
        following = fleet.requests[number].next
        lose(number, replica, fleet)
        number = following
    clear(replica)


@compiled(nogil=True)
def lose(number: int, replica: Record, fleet: Fleet) -> None:
    """Take request ``number`` away from its replica: retried if no token was streamed, and attempts and time
    are left.
    """
    request = fleet.requests[number]
    now_s = fleet.state.now_s
    in_time = now_s < request.arrived_at_s + fleet.rules.timeout_s[request.slice]
    if request.first_token_at_s < 0.0 and request.attempts < fleet.rules.max_attempts and in_time:
        replica.outstanding -= 1
        replica.consecutive_failed += 1
        fleet.cells[request.replica, request.slice, ATTEMPTS_FAILED] += 1
        retry_later(fleet.state, number, fleet.requests)
    else:
        end_request(replica, number, RESET, now_s, fleet.requests)


@compiled(nogil=True)
def clear(replica: Record) -> None:
    """Leave a replica without requests."""
    replica.running = 0
    replica.first_completion = NEVER
    replica.prefilling = 0
    replica.prefill_blocks = 0
    replica.context_tokens = 0
    replica.waiting = 0
    replica.deadline_at_s = np.inf
    stall(replica)


@compiled(nogil=True)
def set_table(fleets: Array, table: Array, old: Array, row_changed_at_s: Array) -> None:
    """Put ``table`` in force, and note the time for rows that changed."""
    for b in range(table.shape[0]):
        for s in range(table.shape[1]):
            for k in range(table.shape[2]):
                if table[b, s, k] != old[b, s, k]:
                    old[b, s, k] = table[b, s, k]
                    row_changed_at_s[b, s] = fleets[b].now_s


@compiled(nogil=True)
def feed_records(b: int, fleets: Array, arrivals: Array, records: Array) -> None:
    """Append records of arrivals to the ring, which has space for them."""
    mask = arrivals.shape[1] - 1
    fleet = fleets[b]
    for j in range(records.shape[0]):
        arrivals[b, (fleet.fed + j) & mask] = records[j]
    fleet.fed += records.shape[0]


@compiled(nogil=True)
def move_arrivals(fleets: Array, old: Array, new: Array) -> None:
    """Copy the future arrivals into a larger ring."""
    for b in range(old.shape[0]):
        for i in range(fleets[b].cursor, fleets[b].fed):
            new[b, i & (new.shape[1] - 1)] = old[b, i & (old.shape[1] - 1)]


@compiled(nogil=True)
def read_gauges(fleets: Array, replicas: Array, requests: Array, out: Array, measured: Array) -> None:
    """Fill ``Gauges.counts`` and ``Gauges.measured``; requests: [B, N], the records that the queues
    refer to.
    """
    measured = borrowed(measured)
    for b in range(replicas.shape[0]):
        now_s = fleets[b].now_s
        for r in range(replicas.shape[1]):
            replica = replicas[b, r]
            out[RUNNING, b, r] = replica.running + replica.prefilling
            out[WAITING, b, r] = replica.waiting
            out[OUTSTANDING, b, r] = replica.outstanding
            out[CONSECUTIVE_FAILED, b, r] = replica.consecutive_failed
            done = steps_done(replica, now_s)
            read_exported(replica, done, measured[b, r])
            measured[b, r, HEAD_WAIT_S] = head_wait_s(replica, requests[b], now_s)
            replica.decoded += done
            used = blocks_used(replica) + replica.prefill_blocks + replica.all_blocks - replica.blocks
            replica.decoded -= done
            measured[b, r, KV_USED] = min(used / replica.all_blocks, 1.0)
