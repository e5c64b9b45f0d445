"""Hangs, told by probes and progress together, long before requests time out.

A replica hangs when so many probes in a row got no answer in time, it holds requests (running or waiting),
and since the first of these probes was sent nothing moved: it answered no request, as the gateway counts, and
no scrape of that time shows an engine step. Each alone may be harmless: a long queue makes probes late while
steps go on, a quiet replica answers nothing because nobody asks, and a prober with a broken network sees
timeouts where answers keep coming. What is not known (no scrape, no counters, no prober) is no evidence.

Where nobody probes, a long silence of the engine says the same (``quarantine_pass.find_hung``), as long as
its counters are read (``perceive.engine_steps``).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contracts.telemetry import FleetTelemetry, ProbeOutcome
from contracts.units import MS_PER_S
from controller.cells import some_in

#: Memory: probes in a row without an answer in time, and when the first of them was sent.
HangMemory = dict[str, NDArray[np.generic]]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

#: Share of its KV blocks that a replica without a request may hold; a healthy one holds none.
LEAKED_RATIO = 0.5
# Plain integers: comparing with an enumeration takes longer.
_TIMED_OUT = int(ProbeOutcome.TIMED_OUT)
#: In time, whether or not it could be read: who answers does not hang.
_ANSWERED, _UNREADABLE = int(ProbeOutcome.ANSWERED), int(ProbeOutcome.UNREADABLE)


def initial_hang(batch: int, replicas: int, timeouts: int) -> HangMemory:
    """Memory before the first tick; empty where probes are not asked (``timeouts`` is 0)."""
    if timeouts == 0:
        return {}
    return {
        "timeouts": np.zeros((batch, replicas), dtype=np.int64),
        "since_at_s": np.full((batch, replicas), np.inf),
    }


def note_timeouts(
    memory: HangMemory, telemetry: FleetTelemetry, fresh: Flags, progressed_at_s: Floats
) -> HangMemory:
    """``memory`` after one telemetry: an answer or a step since the first timeout begins the count anew.

    fresh: bool [B, R], a new scrape arrived; progressed_at_s: float64 [B, R], last answer of a request.
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
    at = fleet, probes.replica[fleet, slot]
    np.add.at(count, at, 1)
    np.minimum.at(since_at_s, at, probes.sampled_at_ms[fleet, slot] / MS_PER_S)
    moved = _stepped(telemetry, fresh, since_at_s) | (progressed_at_s > since_at_s)
    fleet, slot = np.nonzero((probes.outcome == _ANSWERED) | (probes.outcome == _UNREADABLE))
    moved[fleet, probes.replica[fleet, slot]] = True
    count[moved], since_at_s[moved] = 0, np.inf
    return {"timeouts": count, "since_at_s": since_at_s}


def all_silent(memory: HangMemory, timeouts: int) -> Flags | None:
    """bool [B, R], so many probes in a row got no answer in time; None: from nobody, or nobody asks."""
    if not memory:
        return None
    silent = np.asarray(memory["timeouts"], dtype=np.int64) >= timeouts
    return silent if some_in(silent) else None


def stands_still(silent: Flags, telemetry: FleetTelemetry, known: Flags) -> Flags:
    """bool [B, R], who hangs of the ``silent``, see ``all_silent``.

    known: bool [B, R], the replica is ready and its newest scrape is not stale.
    """
    holds = np.nan_to_num(telemetry.running) + np.nan_to_num(telemetry.waiting) > 0.0
    return np.asarray(silent & holds & known)


def never_frees(telemetry: FleetTelemetry, known: Flags, serving: Flags) -> Flags:
    """bool [B, R], whose KV blocks are held by nobody: nothing runs or waits, and more than ``LEAKED_RATIO``
    of them are in use all the same. vLLM counts blocks that only a prefix cache remembers as free.

    Where half of those that serve use as much of theirs, blocks are short everywhere, and who is idle is no
    worse than they are. known: bool [B, R], the replica is ready and its newest scrape is not stale; serving:
    bool [B, R], in rotation.
    """
    idle = (telemetry.running == 0.0) & (telemetry.waiting == 0.0)
    held = idle & (telemetry.kv_used_ratio > LEAKED_RATIO) & known
    for b, r in np.argwhere(held):
        others = telemetry.kv_used_ratio[b, serving[b] & known[b]]
        held[b, r] = not others.size or np.median(others) < telemetry.kv_used_ratio[b, r]
    return np.asarray(held)


def _stepped(telemetry: FleetTelemetry, fresh: Flags, since_at_s: Floats) -> Flags:
    """A scrape that arrived now spans time after ``since_at_s`` alone, and steps ended in it."""
    engine = telemetry.engine
    began_at_s = telemetry.scraped_at_ms / MS_PER_S - engine.span_s
    return np.asarray(fresh & (began_at_s >= since_at_s) & (engine.iterations > 0.0))
