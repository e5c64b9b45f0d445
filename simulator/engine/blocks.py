"""KV blocks: how many the running batch holds, and who needs another one for its next token."""

from __future__ import annotations

from contracts.jit import compiled
from simulator.engine.layout import BASE
from simulator.engine.memory import Record


@compiled(nogil=True)
def blocks_for(tokens: int, shift: int) -> int:
    """Blocks that hold so many tokens."""
    return (tokens + (1 << shift) - 1) >> shift


@compiled(nogil=True)
def blocks_used(replica: Record) -> int:
    """KV blocks of the decoding sequences."""
    total = 0
    shift = replica.block_shift
    up = replica.decoded + (1 << shift) - 1
    for j in range(replica.running):
        total += (replica.slots[j, BASE] + up) >> shift
    return total


@compiled(nogil=True)
def blocks_next(replica: Record, decoded: int) -> int:
    """Decoding sequences that need a new block for their next token, at step counter ``decoded``."""
    count = 0
    low = (1 << replica.block_shift) - 1
    for j in range(replica.running):
        if (replica.slots[j, BASE] + decoded) & low == 0:
            count += 1
    return count
