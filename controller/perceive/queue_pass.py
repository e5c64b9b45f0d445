"""Compiled: what waits in replicas, and what that says of what they carry."""

from __future__ import annotations

import numpy as np

from contracts.compiled.carried import (
    Replica,
    as_if_steps_lasted,
    batch_in_time,
    most_in_time,
    of_mean_answers,
    patience_s,
)
from contracts.compiled.steady_state import sequence_limit
from contracts.jit import compiled

#: Waiting over running requests up to which a replica counts as one without a queue.
QUEUE_RATIO = 0.1


@compiled(inline="always")
def limits_in_time(known, request, pace, k):
    """(supposed, certain), each (held, in time, may wait): requests of one replica of kernel ``k`` beyond
    which some come late. pace: log of the kernel's slowness, and what a replica carries.

    Supposed: beyond the largest batch that keeps the objectives, long answers included, nobody is answered in
    time, and a prompt that waits for more than half the first token's objective hardly is (Little's law).

    Certain: the same if no answer were longer than their mean, because nobody knows how widely answers
    spread. A request that finds no place in a batch that is in time comes late only where more wait than are
    let in while one may wait.
    """
    (slow, carried_rps), step, tokens = pace, known.step_s[k], (request.prompt_tokens, request.output_tokens)
    fits = sequence_limit(tokens[0], tokens[1], known.sequences[k], known.kv_tokens[k])
    factor, replica, even = np.exp(slow), Replica(fits, known.step_tokens), of_mean_answers(request)
    scaled = as_if_steps_lasted(known.objectives, factor)
    batch, waiting = batch_in_time(step, request, replica, scaled), 0.5 * known.objectives.first_token_s
    waits_s = factor * patience_s(step, even, replica, scaled)
    supposed = np.inf, batch, carried_rps * waiting
    return supposed, (fits, most_in_time(step, even, scaled), carried_rps * waits_s)


@compiled(inline="always")
def too_many(room, counted, limits, owner, b, k):
    """Requests in kernel ``k``'s middle replica, the emptier of two, that come late by ``limits``.

    Unknown counts are no requests. The middle one, because one replica that is slow or hangs is a matter of
    quarantine. room: [R], written to.
    """
    count = 0
    for r in range(len(owner)):
        if owner[r] == k and counted.serving[b, r]:
            insert(room, count, _late(counted.running[b, r], counted.waiting[b, r], limits))
            count += 1
    return middle_of(room, count)


@compiled(inline="always")
def _late(running, waiting, limits):
    """Requests of a replica that come late: those held beyond what is in time, and who waits for too long."""
    fits, batch, patience = limits
    held = min(running + waiting, fits)
    late = waiting - patience
    if held > batch:
        late = max(late, held - batch + max(running + waiting - held - patience, 0.0))
    return late if late > 0.0 else 0.0


@compiled(inline="always")
def keep_proven(learned, counted, owner, b, k):
    """What the replicas in rotation carry on average without a queue, they carry."""
    serving, answered_rps, running, waiting = 0, 0.0, 0.0, 0.0
    for r in range(len(owner)):
        if owner[r] == k and counted.serving[b, r]:
            serving += 1
            answered_rps += counted.answered_rps[b, r]
            running += counted.running[b, r]
            waiting += counted.waiting[b, r]
    if serving > 0 and waiting <= serving + QUEUE_RATIO * running:
        proven_rps = min(answered_rps / serving, learned.replica_rps[b, k])
        learned.least_rps[b, k] = max(learned.least_rps[b, k], proven_rps)


@compiled
def count_waiting(too_many, running, waiting, serving, owner):
    """Fill ``too_many`` [B, K] where nothing is certified of the engines: all that waits beyond what counts
    as no queue, in the middle replica. running, waiting: [B, R], NaN: not known; serving: bool [B, R].
    """
    room = np.zeros(len(owner))
    for b in range(too_many.shape[0]):
        for k in range(too_many.shape[1]):
            count = 0
            for r in range(len(owner)):
                if owner[r] == k and serving[b, r]:
                    late = waiting[b, r] - 1.0 - QUEUE_RATIO * running[b, r]
                    insert(room, count, late if late > 0.0 else 0.0)
                    count += 1
            too_many[b, k] = middle_of(room, count)


@compiled(inline="always")
def insert(ordered, count, value):
    """Put ``value`` in its place among the first ``count`` of ``ordered``, which rise."""
    place = count
    while place > 0 and ordered[place - 1] > value:
        ordered[place] = ordered[place - 1]
        place -= 1
    ordered[place] = value


@compiled(inline="always")
def middle_of(ordered, count):
    """The middle of the first ``count`` of ``ordered``, which rise; the lower of two, 0 of none."""
    return ordered[(count - 1) // 2] if count > 0 else 0.0
