"""Compiled loops of the watch: requests by slice and kernel, blocks of them, how likely a difference is."""

from __future__ import annotations

from math import lgamma

import numpy as np

from contracts.jit import compiled
from controller.cells import is_bad, kernel_is_bad
from controller.perceive.queue_pass import QUEUE_RATIO

#: Requests that a block holds at least, unless it has lasted for long: fewer hardly tell late from in time.
LEAST_REQUESTS = 10.0
#: Blocks since a move that are compared with those before it, the newest: queues take a while to grow.
RECENT = 6


@compiled(inline="always")
def log_choose(n, k):
    """Logarithm of the number of ways to choose ``k`` of ``n``."""
    return lgamma(n + 1.0) - lgamma(k + 1.0) - lgamma(n - k + 1.0)


@compiled
def chance_of(before, since):
    """Chance of as many bad blocks ``since`` as there were, or more, if the bad ones of both fell anywhere.

    Fisher's exact test, one-sided: ``since[1]`` of ``since[0]`` blocks and ``before[1]`` of ``before[0]`` are
    bad; 1 where nothing is known on either side.
    """
    n, total, bad = since[0], since[0] + before[0], since[1] + before[1]
    if n <= 0.0 or before[0] <= 0.0 or since[1] <= 0.0:
        return 1.0
    chance, count = 0.0, since[1]
    while count <= min(n, bad):
        if n - count <= total - bad:
            ways = log_choose(bad, count) + log_choose(total - bad, n - count)
            chance += np.exp(ways - log_choose(total, n))
        count += 1.0
    return min(chance, 1.0)


@compiled(inline="always")
def count_requests(memory, counted, law, b):
    """Add what ended since the last telemetry to the running block, by slice and kernel.

    Where a clause on latencies applies, answers count when their latencies arrive, else when they end.
    """
    answered, failed, latency_le = counted.answered, counted.failed, counted.latency_le
    last = latency_le.shape[4] - 1
    for s in range(answered.shape[1]):
        for k in range(answered.shape[2]):
            ended, late = float(answered[b, s, k]), 0.0
            if law.timed[s]:
                ended = 0.0
                for c in range(len(law.family)):
                    if law.applies[c, s]:
                        total = latency_le[b, s, k, law.family[c], last]
                        if total > 0:  # without a flush there is none, and edges lie elsewhere in memory
                            over = total - latency_le[b, s, k, law.family[c], law.edge[c]]
                            ended, late = max(ended, float(total)), max(late, float(over))
            memory.ended[b, s, k] += ended + failed[b, s, k]
            memory.bad[b, s, k] += late + failed[b, s, k]


@compiled
def block_ends(memory, counted, law, lasted_s, b):
    """Whether a block that has ``lasted_s``, ``block_s`` at least, shows enough to be one, or has lasted long
    enough.
    """
    if lasted_s >= law.most_block_s or memory.ended[b].sum() >= LEAST_REQUESTS:
        return True
    queued = False
    for k in range(memory.ended.shape[2]):
        queued |= _has_queue(counted, b, k)
    return queued


@compiled
def close_block(memory, counted, standing, law, seen, b):
    """End the running block: ``seen`` [S + K, 2] is filled with what it shows of each slice and kernel, and
    added to the past of those that no move of ours touches.
    """
    slices, kernels = memory.ended.shape[1:]
    seen[:] = 0.0
    for s in range(slices):
        ended, bad = memory.ended[b, s].sum(), memory.bad[b, s].sum()
        if ended > 0.0:
            seen[s, 0], seen[s, 1] = 1.0, is_bad(ended, bad, law.limit[s] * ended)
        if not memory.watched[b, s]:
            _remember(memory.past[b, s], seen[s], law.past_blocks)
    for k in range(kernels):
        _see_kernel(memory, counted, law, seen[slices + k], b, k)
        if standing.now_s[b] - memory.explained_at_s[b, k] >= law.settle_s:
            _remember(memory.past[b, slices + k], seen[slices + k], law.past_blocks)


@compiled
def _see_kernel(memory, counted, law, seen, b, k):
    """A kernel's block is bad where too many of its requests are, or where it stands with a queue; idle it
    shows nothing.
    """
    queued = _has_queue(counted, b, k)
    if queued or memory.ended[b, :, k].sum() > 0.0:
        seen[0] = 1.0
        seen[1] = 1.0 if queued or kernel_is_bad(memory.ended, memory.bad, law.limit, b, k) else 0.0


@compiled(inline="always")
def add_recent(recent, since, observed, bad):
    """Add a block to the newest ``RECENT`` of them, kept as bits, and count these into ``since`` [2]; a block
    that was not ``observed`` replaces none.
    """
    if not observed > 0.0:
        return
    kept = (1 << RECENT) - 1
    recent[0] = ((recent[0] << 1) | 1) & kept
    recent[1] = ((recent[1] << 1) | (1 if bad > 0.0 else 0)) & kept
    for i in range(2):
        since[i] = 0.0
        for place in range(RECENT):
            since[i] += (recent[i] >> place) & 1


@compiled(inline="always")
def _has_queue(counted, b, k):
    """Whether the replicas that serve stand with a queue, by the measure that capacity is proved by."""
    serving, running, waiting = 0, 0.0, 0.0
    for r in range(len(counted.owner)):
        if counted.owner[r] == k and counted.serving[b, r]:
            serving += 1
            running += counted.running[b, r]
            waiting += counted.waiting[b, r]
    return serving > 0 and waiting > serving + QUEUE_RATIO * running


@compiled(inline="always")
def _remember(past, seen, most):
    """Add a block to the newer window; a full one becomes the older."""
    past[1, 0] += seen[0]
    past[1, 1] += seen[1]
    if past[1, 0] >= most:
        past[0, 0], past[0, 1] = past[1, 0], past[1, 1]
        past[1, 0], past[1, 1] = 0.0, 0.0


@compiled
def find_open(open_cells, certified, violated, ready):
    """Fill in ``Standing.open_cells`` from what is known of cells [B, K, S] and of kernels [B, K]."""
    for b in range(open_cells.shape[0]):
        for s in range(open_cells.shape[1]):
            for k in range(open_cells.shape[2]):
                alive = ready[b, k] > 0
                open_cells[b, s, k] = alive and certified[b, k, s] and not violated[b, k, s]
