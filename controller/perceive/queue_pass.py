"""Compiled: queues of replicas, and what they show of the capacity of a kernel."""

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
    """(supposed, certain) limits on the requests of one replica of kernel ``k``; beyond them some are late.

    Each limit is (requests that fit, largest batch in time, requests that may wait). pace: log of the
    kernel's slowness, and the capacity of a replica in requests per second.

    Supposed: beyond the largest batch that keeps the objectives, with long answers, no request is answered in
    time. A prompt that waits for more than half of the objective of the first token hardly is (Little's law).

    Certain: the same if no answer were longer than the mean, because the spread of answer lengths is unknown.
    A request that finds no place in a batch in time is late only if more requests wait than are admitted in
    the time that a request may wait.
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
    """Late requests, by ``limits``, of kernel ``k``'s median replica (of two: the one with fewer).

    Unknown counts are zero requests. The median is used because quarantine deals with a single slow or hung
    replica. room: [R], scratch.
    """
    count = 0
    for r in range(len(owner)):
        if owner[r] == k and counted.serving[b, r]:
            insert(room, count, _late(counted.running[b, r], counted.waiting[b, r], limits))
            count += 1
    return middle_of(room, count)


@compiled(inline="always")
def filled(counted, limits, owner, b, k):
    """Requests in the fullest replica of kernel ``k`` over the largest batch in time, by ``limits``.

    Infinite where a replica reports nothing, or none serves.
    """
    most, batch = -1.0, limits[1]
    for r in range(len(owner)):
        if owner[r] == k and counted.serving[b, r]:
            inside = counted.running[b, r] + counted.waiting[b, r]
            most = max(most, inside) if inside >= 0.0 else np.inf
    return most / batch if most >= 0.0 and batch > 0.0 else np.inf


@compiled(inline="always")
def _late(running, waiting, limits):
    """Late requests of a replica: those in its batch beyond the limit, and those that wait too long."""
    fits, batch, patience = limits
    held = min(running + waiting, fits)
    late = waiting - patience
    if held > batch:
        late = max(late, held - batch + max(running + waiting - held - patience, 0.0))
    return late if late > 0.0 else 0.0


@compiled(inline="always")
def keep_proven(learned, counted, owner, b, k):
    """Raise the lower limit of the capacity to the mean rate that replicas answer without a queue."""
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
    """Fill ``too_many`` [B, K] without a certified engine model: waiting requests of the median replica.

    Those that still count as no queue are left out. running, waiting: [B, R], NaN: unknown; serving:
    bool [B, R].
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
    """Insert ``value`` into the first ``count`` of ``ordered``, which are sorted in ascending order."""
    place = count
    while place > 0 and ordered[place - 1] > value:
        ordered[place] = ordered[place - 1]
        place -= 1
    ordered[place] = value


@compiled(inline="always")
def middle_of(ordered, count):
    """Median of the first ``count`` of ``ordered``, sorted ascending: the lower of two, 0 of none."""
    return ordered[(count - 1) // 2] if count > 0 else 0.0
