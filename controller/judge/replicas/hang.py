"""Hung replicas, detected by probes and progress together, long before requests time out.

A replica hangs when three things hold. A number of consecutive probes timed out. The replica holds requests
(running or waiting). And since the first of these probes was sent there was no progress: the gateway counted
no answered request, and no scrape shows an engine step of that time. A scrape that began earlier shows one
if its steps, at their certified times, had no room before. Each sign alone may be harmless: a long
queue makes probes late while steps go on, an idle replica answers nothing because it has no requests, and a
prober with a broken network sees timeouts while answers keep coming. Missing data (no scrape, no counters, no
prober) is no evidence.

Without a prober, a long time without engine steps is the sign (``quarantine_pass.find_hung``), as long as the
engine's counters are read (``perceive.engine_steps``).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from contracts.telemetry import FleetTelemetry, ProbeOutcome
from contracts.units import MS_PER_S
from controller.cells import some_in

#: Memory: probes in a row without an answer in time, when the first of them was sent, and the newest of all.
HangMemory = dict[str, NDArray[np.generic]]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

#: Share of its KV blocks that a replica without a request may hold; a healthy one holds none.
LEAKED_RATIO = 0.5
#: Share of its KV blocks in use from which on a replica has none to spare for the next request.
FULL_RATIO = 0.95
# Plain integers: comparing with an enumeration takes longer.
_TIMED_OUT = int(ProbeOutcome.TIMED_OUT)
#: In time, whether or not it could be read: a replica that answers does not hang.
_ANSWERED, _UNREADABLE = int(ProbeOutcome.ANSWERED), int(ProbeOutcome.UNREADABLE)


def initial_hang(batch: int, replicas: int, timeouts: int) -> HangMemory:
    """Memory before the first tick; empty where probes are not considered (``timeouts`` is 0)."""
    if timeouts == 0:
        return {}
    return {
        "timeouts": np.zeros((batch, replicas), dtype=np.int64),
        "since_at_s": np.full((batch, replicas), np.inf),
        "timed_out_at_s": np.full((batch, replicas), -np.inf),
    }


def note_timeouts(
    memory: HangMemory,
    telemetry: FleetTelemetry,
    fresh: Flags,
    progressed_at_s: Floats,
    busy_s: Callable[[], Floats],
) -> HangMemory:
    """``memory`` after one telemetry: an answer or a step since the first timeout resets the count.

    fresh: bool [B, R], a new scrape arrived; progressed_at_s: float64 [B, R], last answer of a request;
    busy_s: least time that the steps of this tick's scrapes took, float64 [B, R] (NaN: unknown).
    """
    if not memory:
        return memory
    probes = telemetry.probes
    late = probes.outcome == _TIMED_OUT
    if not (some_in(late) or some_in(memory["timeouts"])):
        return memory
    count = np.array(memory["timeouts"], dtype=np.int64)
    since_at_s = np.array(memory["since_at_s"], dtype=np.float64)
    fleet, slot = np.nonzero(late)
    at, sent_at_s = (fleet, probes.replica[fleet, slot]), probes.sampled_at_ms[fleet, slot] / MS_PER_S
    np.add.at(count, at, 1)
    np.minimum.at(since_at_s, at, sent_at_s)
    timed_out_at_s = np.array(memory["timed_out_at_s"], dtype=np.float64)
    np.maximum.at(timed_out_at_s, at, sent_at_s)
    moved = progressed_at_s > since_at_s
    if some_in(fresh):
        moved |= fresh & _stepped(telemetry, since_at_s, busy_s())
    fleet, slot = np.nonzero((probes.outcome == _ANSWERED) | (probes.outcome == _UNREADABLE))
    moved[fleet, probes.replica[fleet, slot]] = True
    count[moved], since_at_s[moved] = 0, np.inf
    return {"timeouts": count, "since_at_s": since_at_s, "timed_out_at_s": timed_out_at_s}


def probes_time_out(memory: HangMemory, timeouts: int) -> Flags | None:
    """bool [B, R], at least ``timeouts`` consecutive probes timed out; None: no replica, or no prober."""
    if not memory:
        return None
    silent = np.asarray(memory["timeouts"], dtype=np.int64) >= timeouts
    return silent if some_in(silent) else None


def is_silent(memory: HangMemory, shape: tuple[int, ...]) -> Flags:
    """bool ``shape`` [B, R]: a probe timed out, and no answer or step came since it was sent."""
    return np.asarray(memory["timeouts"], dtype=np.int64) > 0 if memory else np.zeros(shape, dtype=np.bool_)


def stands_still(silent: Flags, telemetry: FleetTelemetry, known: Flags) -> Flags:
    """bool [B, R], replicas among the ``silent`` (see ``probes_time_out``) that hang: they hold requests.

    known: bool [B, R], the replica is ready and its newest scrape is not stale.
    """
    holds = np.nan_to_num(telemetry.running) + np.nan_to_num(telemetry.waiting) > 0.0
    return np.asarray(silent & holds & known)


def waits_for_blocks(
    kv_used_ratio: Floats, scraped_at_s: Floats, owner: NDArray[np.int64], silent_since_s: float, r: int
) -> bool:
    """Whether replica ``r`` of one fleet waits for KV blocks that are short everywhere.

    By scrapes since it fell silent, neither it nor at least half of the replicas of any kernel have any to
    spare (``FULL_RATIO``). What waits for blocks waits at every replica then: none hangs by itself, and one
    less in rotation leaves fewer blocks to all.

    kv_used_ratio, scraped_at_s: float64 [R], NaN: not in rotation, or its scrapes are stale; owner: int [R],
    kernel of each replica.
    """
    told = scraped_at_s >= silent_since_s
    full = told & (kv_used_ratio > FULL_RATIO)
    kernels = int(owner.max()) + 1
    short = 2 * np.bincount(owner[full], minlength=kernels) >= np.bincount(owner[told], minlength=kernels)
    return bool(full[r] and short.all())


def leaks_memory(telemetry: FleetTelemetry, known: Flags, serving: Flags) -> Flags:
    """bool [B, R], replicas that leak KV blocks: no request runs or waits, but many blocks are in use.

    Many are more than ``LEAKED_RATIO``; vLLM counts blocks that only a prefix cache remembers as free. If
    half of the serving replicas use as large a share, blocks are short everywhere and the replica does not
    count as leaking.

    known: bool [B, R], the replica is ready and its newest scrape is not stale; serving: bool [B, R], in
    rotation.
    """
    idle = (telemetry.running == 0.0) & (telemetry.waiting == 0.0)
    held = idle & (telemetry.kv_used_ratio > LEAKED_RATIO) & known
    for b, r in np.argwhere(held):
        others = telemetry.kv_used_ratio[b, serving[b] & known[b]]
        held[b, r] = not others.size or np.median(others) < telemetry.kv_used_ratio[b, r]
    return np.asarray(held)


def _stepped(telemetry: FleetTelemetry, since_at_s: Floats, busy_s: Floats) -> Flags:
    """bool [B, R]: the newest scrape shows engine steps after ``since_at_s``.

    It covers only time after it, or more steps than the time before it had room for.
    """
    engine, until_at_s = telemetry.engine, telemetry.scraped_at_ms / MS_PER_S
    before_s = since_at_s - (until_at_s - engine.span_s)
    no_room = (before_s <= 0.0) | (busy_s > before_s)
    return np.asarray((engine.iterations > 0.0) & no_room)
