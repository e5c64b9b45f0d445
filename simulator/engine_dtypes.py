"""Memory layout of the compiled engine: one flat record per replica, request, session and fleet.

Records (not a dozen parallel arrays) because one pointer per call is what makes the engine fast.
Times are seconds, -1 where not happened yet; lists are intrusive, linked by record numbers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.engine_records import MAX_ATTEMPTS, MAX_BATCH

#: Bytes; both records below are laid out so that a routing decision touches few lines.
CACHE_LINE = 64
#: ``kind`` of the stretch under way: nothing to do; work but no progress possible (hung, or the head
#: of the queue does not fit); one step with prefill in it; ``steps`` pure decode steps.
IDLE, STALL, MIXED, DECODE = 0, 1, 2, 3

#: Columns of ``REPLICA["slots"]``.
RID, BASE, LAST, PART, CHUNK = range(5)


def _in_lines(fields: list[Any]) -> np.dtype[np.void]:
    """Record of ``fields`` in this order, padded to whole cache lines."""
    packed = np.dtype(fields, align=True)
    assert packed.names is not None
    assert packed.fields is not None
    names = list(packed.names)
    layout = {
        "names": names,
        "formats": [packed[name] for name in names],
        "offsets": [packed.fields[name][1] for name in names],
        "itemsize": -(-packed.itemsize // CACHE_LINE) * CACHE_LINE,
        "aligned": True,
    }
    return np.dtype(layout)  # type: ignore[call-overload, no-any-return]


def zeros(shape: tuple[int, ...], dtype: np.dtype[np.void]) -> NDArray[np.void]:
    """Zeroed records that begin on a cache line, so that each touches as few of them as possible."""
    size = math.prod(shape) * dtype.itemsize
    raw = np.zeros(size + CACHE_LINE, np.uint8)
    start = -raw.ctypes.data % CACHE_LINE
    return raw[start : start + size].view(dtype).reshape(shape)


REPLICA = _in_lines(
    [
        ("end", "f8"),  # the stretch under way ends (IDLE: inf, STALL: next deadline)
        ("began", "f8"),  # and began
        ("first_step", "f8"),  # duration of its first step
        ("growth", "f8"),  # each later step is this much longer
        ("deadline", "f8"),  # lower bound of the deadlines of its requests
        ("busy_from", "f8"),  # busy time is counted up to here
        ("busy", "f8"),  # since the last take
        ("decoded", "i4"),  # decode steps so far: a counter that all sequences share
        ("steps", "i4"),
        ("c0", "f8"),  # step model with the effect in force
        ("c1", "f8"),
        ("c2", "f8"),
        ("c3", "f8"),
        ("soonest", "i4"),  # the first completion comes when decoded gets there
        ("context", "i4"),  # sum of contexts of decoding sequences
        ("running", "i4"),  # decoding sequences
        ("prefilling", "i4"),
        ("prefill_blocks", "i4"),
        ("waiting", "i4"),
        ("outstanding", "i4"),
        ("blocks", "i4"),  # usable now
        ("wait_head", "i4"),
        ("wait_tail", "i4"),
        ("ended_head", "i4"),  # ended, not yet counted
        ("ended_tail", "i4"),
        ("alive_at", "f8"),  # accepts connections from then on (dead: inf)
        ("error_ratio", "f8"),
        ("lag", "f8"),  # http_latency_s
        ("watermark", "i4"),
        ("token_budget", "i4"),
        ("queue_limit", "i4"),
        ("consecutive_failed", "i4"),
        ("max_batch", "i2"),
        ("kind", "i1"),
        ("block_shift", "i1"),
        ("hang", "i1"),
        ("in_rotation", "i1"),
        ("kernel", "i2"),
        ("condition", "i2"),
        ("cache_epoch", "i4"),
        ("all_blocks", "i4"),
        # Oldest admission first. Columns of row j: the j-th decoding sequence (its request; context =
        # base + decoded; done when decoded == last) and the j-th prefilling request with its chunk in
        # this step: unrelated, but small batches then live in a line or two.
        ("slots", "i4", (MAX_BATCH, 5)),
    ]
)

REQUEST = _in_lines(
    [
        ("arrived", "f8"),
        ("deadline", "f8"),  # in flight: its deadline; afterwards: the instant at which it ended
        ("first", "f8"),
        ("next", "i4"),
        ("need", "i4"),  # tokens to prefill (after a preemption: prompt and what was generated)
        ("done", "i4"),  # of these, prefilled
        ("remaining", "i4"),  # output tokens still to come when it was last queued
        ("prompt_tokens", "i4"),
        ("output_tokens", "i4"),
        ("u_kernel", "u4"),  # uniforms in units of 2**-32
        ("slice", "i1"),
        ("status", "i1"),
        ("attempts", "i1"),
        ("exposed", "i1"),
        ("started", "f8"),
        ("routed", "f8"),
        ("u_first", "u4"),
        ("u_second", "u4"),
        ("lag", "f8"),
        ("excess_tv", "f8"),
        ("u_error", "u4"),
        ("session", "i4"),
        ("prompt", "i4"),
        ("credited", "i4"),  # output tokens whose excess TV is booked
        ("replica", "i2"),
        ("preemptions", "i2"),
        ("tried", "i2", (MAX_ATTEMPTS - 1,)),  # replicas of the earlier attempts
        ("poison", "i1"),  # condition under which its cached prefix was computed
    ]
)

SESSION = np.dtype([("tag", "i4"), ("epoch", "i4"), ("replica", "i2"), ("condition", "i2")], align=True)

#: No fleet.
NOWHERE = -1
#: Uniforms are kept in units of 2**-32.
UNIT = 4294967296.0

#: What is known of a request before it arrives; its record is taken from a free list when it does, so
#: that the records in use stay few and warm.
ARRIVAL = np.dtype(
    [
        ("arrived", "f8"),
        ("u_kernel", "u4"),
        ("u_first", "u4"),
        ("u_second", "u4"),
        ("u_error", "u4"),
        ("prompt_tokens", "i4"),
        ("output_tokens", "i4"),
        ("session", "i4"),
        ("prompt", "i4"),
        ("slice", "i1"),
    ],
    align=True,
)

FLEET = np.dtype(
    [
        ("now", "f8"),
        ("cursor", "i8"),  # next arrival to route
        ("fed", "i8"),
        ("in_use", "i8"),  # request records; which ones are free stands from here on in the list of them
        ("retry_head", "i8"),
        ("retry_tail", "i8"),
    ],
    align=True,
)
