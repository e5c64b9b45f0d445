"""Records of the watch over the controller's own moves (``controller.supervise.own_moves``)."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


class OwnMove(IntEnum):
    """What the watch did with a slice's row in a tick."""

    NONE = 0  # no move of it is watched
    WATCHED = 1  # a move is watched
    TAKEN_BACK = 2  # the row goes back to where it was, as far as it may
    STOPPED = 3  # going back would not help: the row goes no further
    KEPT = 4  # worse than before, and nowhere to go back to
    HELD = 5  # was taken back or stopped; the policy's row waits


class MovesMemory(NamedTuple):
    """Memory of the watched moves of B fleets; changed in place by the compiled pass.

    Counts of blocks are pairs: the number of blocks, and how many of them were bad.
    """

    started: Flags  # [B], the first table was seen
    block_began_at_s: Floats  # [B], begin of the running block (NaN: not begun)
    ended: Floats  # [B, S, K], requests that ended in the running block
    bad: Floats  # [B, S, K], those of them that failed or came late
    past: Floats  # [B, S + K, 2, 2], blocks of each slice and each kernel: an older and a newer window
    followed: Floats  # [B, S, K + 1], the table seen last
    settled: Floats  # [B, S, K + 1], where a row was before the watched move; where it is held, that row
    watched: Flags  # [B, S], a move is watched
    changed_at_s: Floats  # [B, S], its last change
    before: Floats  # [B, S, K + 1, 2], blocks before the move: of each kernel, and in column K of the slice
    since: Floats  # [B, S, K + 1, 2], the newest since, of the slice on the kernels that gained
    recent: Ints  # [B, S, K + 1, 2], these blocks as bits: which were seen, and which were bad
    control: Floats  # [B, S, 2], what ``since`` of the subject was last compared with
    chance: Floats  # [B, S], the last one that was judged (NaN: none)
    subject: Ints  # [B, S], whose: a kernel, or K for the slice itself
    held_until_at_s: Floats  # [B, S], the row is held until then
    stopped: Flags  # [B, S], it is only kept from going further
    taken: Ints  # [B, S], times in a row that the row was taken back or stopped
    for_capacity: Flags  # [B, S], the watched move was for capacity alone
    explained_at_s: Floats  # [B, K], late answers of a kernel are explained by a move of then
    capacity_rows: Flags  # [B, S], rows that moved for capacity alone with the table in force


class Counted(NamedTuple):
    """Counts of one tick's telemetry."""

    answered: Ints  # [B, S, K], attempts, as the gateway counts
    failed: Ints  # [B, S, K]
    latency_le: Ints  # [B, S, K, F, E + 1], answers below each edge, the total last
    serving: Flags  # [B, R], in rotation, so ready
    running: Floats  # [B, R], requests in the newest scrape (NaN: not known)
    waiting: Floats  # [B, R], the same in the queue
    owner: Ints  # [R], kernel of each replica


class Standing(NamedTuple):
    """How things stand."""

    now_s: Floats  # [B]
    table: Floats  # [B, S, K + 1], in force
    open_cells: Flags  # [B, S, K], where the row may be served: certified, no hard clause violated, ready
    ready: Ints  # [B, K], replicas in rotation
    replica_rps: Floats  # [B, K], requests per second that one carries, best estimate
    healthy_rps: Floats  # [B, K], the same at certified or usual speed
    offered_rps: Floats  # [B, S]
    known: Flags  # [B], moves are judged and held


class Law(NamedTuple):
    """What counts as late, and the settings."""

    family: Ints  # [C], latency family of each clause on latencies
    edge: Ints  # [C], its edge (-1: above every edge)
    applies: Flags  # [C, S]
    timed: Flags  # [S], some clause on latencies applies
    limit: Floats  # [S], share of late answers that the contract tolerates
    error: float  # as in ``OwnMoveOptions``, like the rest
    block_s: float  # a block lasts so long at least: a flush of the gateway's statistics
    most_block_s: float  # and at most, while too little ended to tell
    past_blocks: float
    settle_s: float
    most_looks: float
    hold_s: float
    doublings: int
    gain_ratio: float
    slow_ratio: float


class Block(NamedTuple):
    """Blocks of requests of B fleets, where one ended with this tick."""

    closed: Flags  # [B]
    ended: Floats  # [B, S, K], requests that ended in it
    bad: Floats  # [B, S, K], those of them that failed or came late
    lasted_s: Floats  # [B]


class Found(NamedTuple):
    """What the watch made of a tick; filled."""

    table: Floats  # [B, S, K + 1], proposed; held and taken-back rows are put in their place
    action: Ints  # [B, S], an ``OwnMove``
    closed: Flags  # [B], a block ended with this tick
    ended: Floats  # [B, S, K], of that block
    bad: Floats  # [B, S, K]
    lasted_s: Floats  # [B]
