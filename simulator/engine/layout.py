"""Memory layout of the compiled engine: one flat record per replica, request, session and fleet.

Flat records are used instead of a dozen parallel arrays, because passing one pointer per call makes the
engine fast. Instants are seconds on the fleet's clock, -1 for not yet. Lists are linked by record numbers
that the records themselves hold.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Most sequences that one replica may run at once (a fixed field length keeps the compiled record flat).
MAX_BATCH = 256
#: Most attempts of one request, for the same reason.
MAX_ATTEMPTS = 5
#: Bytes; both records below are laid out so that a routing decision touches few lines.
CACHE_LINE = 64
#: Stands for no record, no replica, or no fleet.
NONE = -1
#: Uniforms are kept in units of 2**-32.
UNIFORM_UNIT = 4294967296.0
#: Step counter of a completion that is not scheduled.
NEVER = np.int64(2**31 - 1)

#: ``kind`` of the stretch under way: nothing to do; work but no progress possible (hung, or the head
#: of the queue does not fit); one step with prefill in it; ``steps`` pure decode steps.
IDLE, STALL, MIXED, DECODE = 0, 1, 2, 3

#: Columns of ``REPLICA["slots"]``: of the decoding sequence its request, base and last counter; of the
#: prefilling request its number and the chunk of this step.
SEQUENCE, BASE, LAST, PREFILL, CHUNK = range(5)


def _in_lines(fields: list[Any], shared: dict[str, tuple[str, str]] | None = None) -> np.dtype[np.void]:
    """Record of ``fields`` in this order, padded to whole cache lines.

    ``shared``: further fields, each with its format and the field with which it shares its memory.
    """
    packed = np.dtype(fields, align=True)
    assert packed.names is not None
    assert packed.fields is not None
    names = list(packed.names)
    more = shared or {}
    layout = {
        "names": [*names, *more],
        "formats": [*(packed[name] for name in names), *(format_ for format_, _ in more.values())],
        "offsets": [packed.fields[name][1] for name in [*names, *(place for _, place in more.values())]],
        "itemsize": -(-packed.itemsize // CACHE_LINE) * CACHE_LINE,
        "aligned": True,
    }
    return np.dtype(layout)  # type: ignore[call-overload]


def zeros(shape: tuple[int, ...], dtype: np.dtype[np.void]) -> NDArray[np.void]:
    """Zeroed records that begin on a cache line, so that each touches as few lines as possible."""
    size = math.prod(shape) * dtype.itemsize
    raw = np.zeros(size + CACHE_LINE, np.uint8)
    start = -raw.ctypes.data % CACHE_LINE
    return raw[start : start + size].view(dtype).reshape(shape)


REPLICA = _in_lines(
    [
        ("ends_at_s", "f8"),  # end of the stretch under way (IDLE: inf, STALL: next deadline)
        ("began_at_s", "f8"),  # and its begin
        ("first_step_s", "f8"),  # duration of its first step
        ("growth_s", "f8"),  # each later step is this much longer
        ("deadline_at_s", "f8"),  # lower bound of the deadlines of its requests
        ("busy_counted_at_s", "f8"),  # busy time is counted up to here
        ("busy_s", "f8"),  # since the counters were drained
        ("decoded", "i4"),  # decode steps so far, a counter that all sequences share
        ("steps", "i4"),  # of the stretch under way
        ("base_s", "f8"),  # step model with the effect in force: per step
        ("prefill_s", "f8"),  # and per prefill token
        ("decode_s", "f8"),  # and per decoding sequence
        ("context_s", "f8"),  # and per token of their contexts
        ("first_completion", "i4"),  # value of ``decoded`` at which the first completion comes
        ("context_tokens", "i4"),  # of all decoding sequences
        ("running", "i4"),  # decoding sequences
        ("prefilling", "i4"),  # admitted requests that do not decode yet
        ("prefill_blocks", "i4"),  # KV blocks reserved for them
        ("waiting", "i4"),  # requests in the queue
        ("outstanding", "i4"),  # all requests of the replica
        ("blocks", "i4"),  # KV blocks usable now
        ("wait_head", "i4"),
        ("wait_tail", "i4"),
        ("ended_head", "i4"),  # ended requests that are not counted yet
        ("ended_tail", "i4"),
        ("alive_at_s", "f8"),  # accepts connections from this time on (dead: inf)
        ("error_ratio", "f8"),  # share of attempts answered 5xx
        ("http_latency_s", "f8"),  # added to every answer
        ("watermark_blocks", "i4"),  # blocks that stay free at admission
        ("token_budget", "i4"),  # per step
        ("queue_limit", "i4"),
        ("consecutive_failed", "i4"),
        ("max_batch", "i2"),
        ("kind", "i1"),  # of the stretch under way
        ("block_shift", "i1"),  # a block holds ``1 << block_shift`` tokens
        ("hang", "i1"),
        ("in_rotation", "i1"),
        ("kernel", "i2"),
        # One line: the counters of its process, see ``simulator.engine.exported``.
        ("last_step_at_s", "f8"),  # end of its last engine step
        ("inter_token_s", "f8"),  # sum of the gaps between tokens
        ("queue_s", "f8"),  # from routing to first admission
        ("inter_tokens", "i8"),  # tokens that follow another token
        ("prompt_tokens", "i8"),  # of prompts prefilled
        ("first_tokens", "i4"),
        ("admitted", "i4"),  # requests, counted at their first admission
        ("finished", "i4"),  # requests answered
        ("preemptions", "i4"),
        ("prefill_steps", "i4"),  # steps without a decoding sequence; all others are in ``decoded``
        ("all_blocks", "i4"),  # KV blocks without a fault
        ("cache_epoch", "i4"),  # counts flushes of the prefix cache
        ("condition", "i2"),
        ("only_slice", "i2"),  # slice that the condition strikes, -1: all
        ("after_tokens", "i2"),  # first tokens of an answer that the condition spares
        ("min_batch", "i2"),  # batch size at admission below which the condition spares a request
        # Oldest admission first. Columns of row j: the j-th decoding sequence (its request; context = base +
        # decoded; done when decoded == last), and the j-th prefilling request with its chunk in this step.
        # The two are unrelated, but together they keep small batches within a line or two.
        ("slots", "i4", (MAX_BATCH, 5)),
    ]
)

REQUEST = _in_lines(
    [
        ("arrived_at_s", "f8"),
        ("due_or_ended_at_s", "f8"),  # in flight: its deadline; afterwards: the instant at which it ended
        ("first_token_at_s", "f8"),
        ("next", "i4"),  # record of the list that it is in
        ("need_tokens", "i4"),  # to prefill (after a preemption: prompt and generated tokens)
        ("prefilled_tokens", "i4"),  # part of ``need_tokens`` that is done
        ("remaining_tokens", "i4"),  # output still to come when it was last queued
        ("prompt_tokens", "i4"),
        ("output_tokens", "i4"),
        ("u_kernel", "u4"),  # uniforms in units of 2**-32
        ("slice", "i1"),
        ("status", "i1"),
        ("attempts", "i1"),
        ("exposed", "i1"),  # whether its replica was violating when it was routed
        ("started_at_s", "f8"),
        ("routed_at_s", "f8"),
        ("u_first", "u4"),
        ("u_second", "u4"),
        ("http_latency_s", "f8"),  # of its replica when it was routed
        ("excess_tv", "f8"),  # summed over the credited tokens
        ("u_error", "u4"),
        ("session", "i4"),
        ("prompt", "i4"),
        ("credited_tokens", "i4"),  # output tokens for which excess TV is booked
        ("replica", "i2"),
        ("preemptions", "i2"),
        ("tried", "i2", (MAX_ATTEMPTS - 1,)),  # replicas of the earlier attempts
        ("prefix_condition", "i1"),  # condition under which its cached prefix was computed
        ("found_batch", "i2"),  # size of the batch into which it was last admitted, itself included
    ],
    # Only used by a preempted request that had streamed: it is never routed again and needs no uniforms.
    {"last_token_at_s": ("f8", "u_first")},
)

#: Location of a session's prefix, per kernel.
SESSION = np.dtype(
    [
        ("tag", "i4"),  # distinguishes sessions that share a slot; 0: none
        ("epoch", "i4"),  # the replica's cache epoch when the prefix was computed
        ("replica", "i2"),
        ("condition", "i2"),  # condition under which the prefix was computed
    ],
    align=True,
)

#: A request before it arrives. A record is taken from a free list only at arrival, so that the records in use
#: stay few and in the cache.
ARRIVAL = np.dtype(
    [
        ("arrived_at_s", "f8"),
        ("u_kernel", "u4"),  # uniforms in units of 2**-32
        ("u_first", "u4"),
        ("u_second", "u4"),
        ("u_error", "u4"),
        ("prompt_tokens", "i4"),
        ("output_tokens", "i4"),
        ("session", "i4"),  # -1: none
        ("prompt", "i4"),
        ("slice", "i1"),
    ],
    align=True,
)

FLEET = np.dtype(
    [
        ("now_s", "f8"),
        ("cursor", "i8"),  # next arrival to route
        ("fed", "i8"),  # arrivals so far
        ("in_use", "i8"),  # request records in use; the list of free ones begins at this index
        ("retry_head", "i8"),
        ("retry_tail", "i8"),
    ],
    align=True,
)
