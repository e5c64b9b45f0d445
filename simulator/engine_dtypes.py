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

#: Columns of ``REPLICA["sequence"]`` and of ``REPLICA["prefill"]``.
RID, BASE, LAST = 0, 1, 2
PART, CHUNK = 0, 1

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
        ("wait_head", "i8"),
        ("wait_tail", "i8"),
        ("ended_head", "i8"),  # ended, not yet counted
        ("ended_tail", "i8"),
        ("steps", "i4"),
        ("kind", "i4"),
        ("decoded", "i4"),  # decode steps so far: a counter that all sequences share
        ("soonest", "i4"),  # the first completion comes when decoded gets there
        ("context", "i4"),  # sum of contexts of decoding sequences
        ("running", "i4"),  # decoding sequences
        ("prefilling", "i4"),
        ("prefill_blocks", "i4"),
        ("waiting", "i4"),
        ("outstanding", "i4"),
        ("blocks", "i4"),  # usable now
        ("all_blocks", "i4"),
        ("watermark", "i4"),
        ("block_shift", "i4"),
        ("max_batch", "i4"),
        ("token_budget", "i4"),
        ("queue_limit", "i4"),
        ("kernel", "i4"),
        ("condition", "i4"),
        ("cache_epoch", "i4"),
        ("consecutive_failed", "i4"),
        ("hang", "i4"),
        ("in_rotation", "i4"),
        # Each decoding sequence, oldest admission first: its request; context = base + decoded; done
        # when decoded == last. Then each prefilling request and the tokens it prefills in this step.
        ("sequence", "i4", (MAX_BATCH, 3)),
        ("prefill", "i4", (MAX_BATCH, 2)),
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
