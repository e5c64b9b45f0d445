"""Compiled loops of the watch: requests by slice and kernel, blocks of requests, and Fisher's exact test."""

from __future__ import annotations

from math import lgamma

import numpy as np

from contracts.jit import compiled
from controller.cells import is_bad, kernel_is_bad
from controller.perceive.queue_pass import QUEUE_RATIO

#: Least requests of a block, unless it reaches its largest duration; fewer are too little evidence.
LEAST_REQUESTS = 10.0
#: Number of newest blocks since a move that are compared with those before it: queues take a while to grow.
RECENT = 6


@compiled(inline="always")
def log_choose(n, k):
    """Logarithm of the number of ways to choose ``k`` of ``n``."""
    return lgamma(n + 1.0) - lgamma(k + 1.0) - lgamma(n - k + 1.0)


@compiled
def chance_of(before, since):
    """One-sided p-value of Fisher's exact test: at least as many bad blocks ``since`` as observed.

    ``since[1]`` of ``since[0]`` blocks and ``before[1]`` of ``before[0]`` are bad; 1 without evidence on
    either side.
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
    """Add requests that ended since the last telemetry to the running block, by slice and kernel.

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
                        if total > 0:  # without a flush it is 0; do not read the edges then (memory access)
                            over = total - latency_le[b, s, k, law.family[c], law.edge[c]]
                            ended, late = max(ended, float(total)), max(late, float(over))
            memory.ended[b, s, k] += ended + failed[b, s, k]
            memory.bad[b, s, k] += late + failed[b, s, k]


@compiled
def block_ends(memory, counted, law, lasted_s, b):
    """Whether a block of ``lasted_s``, at least ``block_s``, ends.

    It ends with enough requests, with a queue, or at its largest duration.
    """
    if lasted_s >= law.most_block_s or memory.ended[b].sum() >= LEAST_REQUESTS:
        return True
    queued = False
    for k in range(memory.ended.shape[2]):
        queued |= _has_queue(counted, b, k)
    return queued


@compiled
def close_block(memory, counted, standing, law, seen, b):
    """Close the running block: fill ``seen`` [S + K, 2] with (observed, bad) of each slice and kernel.

    The block is added to the past of slices and kernels that none of our moves affects.
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
    """Judge a kernel's block: bad with too many bad requests, or with a queue; not observed while idle."""
    queued = _has_queue(counted, b, k)
    if queued or memory.ended[b, :, k].sum() > 0.0:
        seen[0] = 1.0
        seen[1] = 1.0 if queued or kernel_is_bad(memory.ended, memory.bad, law.limit, b, k) else 0.0


@compiled(inline="always")
def add_recent(recent, since, observed, bad):
    """Add a block to the newest ``RECENT`` blocks, kept as bits, and count these into ``since`` [2].

    A block that was not ``observed`` replaces none.
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
    """Whether the serving replicas have a queue, by the same measure as for proven capacity."""
    serving, running, waiting = 0, 0.0, 0.0
    for r in range(len(counted.owner)):
        if counted.owner[r] == k and counted.serving[b, r]:
            serving += 1
            running += counted.running[b, r]
            waiting += counted.waiting[b, r]
    return serving > 0 and waiting > serving + QUEUE_RATIO * running


@compiled(inline="always")
def _remember(past, seen, most):
    """Add a block to the newer window; a full newer window becomes the older one."""
    past[1, 0] += seen[0]
    past[1, 1] += seen[1]
    if past[1, 0] >= most:
        past[0, 0], past[0, 1] = past[1, 0], past[1, 1]
        past[1, 0], past[1, 1] = 0.0, 0.0


@compiled
def find_open(open_cells, certified, violated, ready):
    """Fill in ``Standing.open_cells`` from facts of cells [B, K, S] and of kernels [B, K]."""
    for b in range(open_cells.shape[0]):
        for s in range(open_cells.shape[1]):
            for k in range(open_cells.shape[2]):
                alive = ready[b, k] > 0
                open_cells[b, s, k] = alive and certified[b, k, s] and not violated[b, k, s]
