"""Memory layout of the compiled engine: one flat record per replica, request, session and fleet.

Records (not a dozen parallel arrays) because one pointer per call is what makes the engine fast.
Times are seconds, -1 where not happened yet; lists are intrusive, linked by absolute request ids.
"""

from __future__ import annotations

import numpy as np

from simulator.engine_records import MAX_ATTEMPTS, MAX_BATCH

#: ``kind`` of the stretch under way: nothing to do; work but no progress possible (hung, or the head
#: of the queue does not fit); one step with prefill in it; ``steps`` pure decode steps.
IDLE, STALL, MIXED, DECODE = 0, 1, 2, 3

REPLICA = np.dtype(
    [
        ("end", "f8"),  # the stretch under way ends (IDLE: inf, STALL: next deadline)
        ("began", "f8"),  # and began
        ("first_step", "f8"),  # duration of its first step
        ("growth", "f8"),  # each later step is this much longer
        ("c0", "f8"),  # step model with the effect in force
        ("c1", "f8"),
        ("c2", "f8"),
        ("c3", "f8"),
        ("deadline", "f8"),  # lower bound of the deadlines of its requests
        ("busy_from", "f8"),  # busy time is counted up to here
        ("busy", "f8"),  # since the last take
        ("alive_at", "f8"),  # accepts connections from then on (dead: inf)
        ("error_ratio", "f8"),
        ("lag", "f8"),  # http_latency_s
        ("steps", "i8"),
        ("kind", "i8"),
        ("decoded", "i8"),  # decode steps so far: a counter that all sequences share
        ("soonest", "i8"),  # the first completion comes when decoded gets there
        ("context", "i8"),  # sum of contexts of decoding sequences
        ("running", "i8"),  # decoding sequences
        ("prefilling", "i8"),
        ("prefill_blocks", "i8"),
        ("wait_head", "i8"),
        ("wait_tail", "i8"),
        ("waiting", "i8"),
        ("outstanding", "i8"),
        ("ended_head", "i8"),  # ended, not yet counted
        ("ended_tail", "i8"),
        ("blocks", "i8"),  # usable now
        ("all_blocks", "i8"),
        ("watermark", "i8"),
        ("block_shift", "i8"),
        ("max_batch", "i8"),
        ("token_budget", "i8"),
        ("queue_limit", "i8"),
        ("kernel", "i8"),
        ("condition", "i8"),
        ("cache_epoch", "i8"),
        ("consecutive_failed", "i8"),
        ("hang", "i8"),
        ("in_rotation", "i8"),
        ("rid", "i8", (MAX_BATCH,)),  # request of each decoding sequence, oldest admission first
        ("base", "i8", (MAX_BATCH,)),  # context = base + decoded
        ("last", "i8", (MAX_BATCH,)),  # done when decoded == last
        ("part", "i8", (MAX_BATCH,)),  # prefilling requests, oldest admission first
        ("chunk", "i8", (MAX_BATCH,)),  # tokens each prefills in the step under way
    ],
    align=True,
)

REQUEST = np.dtype(
    [
        ("arrived", "f8"),
        ("routed", "f8"),
        ("started", "f8"),
        ("first", "f8"),
        ("finished", "f8"),
        ("deadline", "f8"),
        ("lag", "f8"),
        ("excess_tv", "f8"),
        ("u_kernel", "f8"),
        ("u_first", "f8"),
        ("u_second", "f8"),
        ("u_error", "f8"),
        ("next", "i8"),
        ("session", "i8"),
        ("prompt_tokens", "i4"),
        ("output_tokens", "i4"),
        ("need", "i4"),  # tokens to prefill (after a preemption: prompt and what was generated)
        ("done", "i4"),  # of these, prefilled
        ("remaining", "i4"),  # output tokens still to come when it was last queued
        ("credited", "i4"),  # output tokens whose excess TV is booked
        ("prompt", "i4"),
        ("preemptions", "i4"),
        ("slice", "i2"),
        ("kernel", "i2"),
        ("replica", "i2"),
        ("poison", "i2"),  # condition under which its cached prefix was computed
        ("status", "i1"),
        ("attempts", "i1"),
        ("exposed", "i1"),
        ("tried", "i2", (MAX_ATTEMPTS,)),
    ],
    align=True,
)

SESSION = np.dtype([("tag", "i4"), ("epoch", "i4"), ("replica", "i2"), ("condition", "i2")], align=True)

FLEET = np.dtype(
    [
        ("now", "f8"),
        ("cursor", "i8"),  # next request to route
        ("fed", "i8"),
        ("tail", "i8"),  # oldest request that may still be in flight
        ("retry_head", "i8"),
        ("retry_tail", "i8"),
    ],
    align=True,
)
