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

    NONE = 0  # no move of the row is watched
    WATCHED = 1  # a move is watched
    TAKEN_BACK = 2  # the row goes back to where it was, as far as it may
    STOPPED = 3  # going back would not help: the row goes no further
    KEPT = 4  # worse than before, but there is no kernel to go back to
    HELD = 5  # was taken back or stopped; the policy's row waits


class MovesMemory(NamedTuple):
    """Memory of the watched moves of B fleets; changed in place by the compiled pass.

    Counts of blocks are pairs: the number of blocks, and how many of them were bad.
    """

    started: Flags  # [B], the first table was recorded
    block_began_at_s: Floats  # [B], begin of the running block (NaN: not begun)
    ended: Floats  # [B, S, K], requests that ended in the running block
    bad: Floats  # [B, S, K], those of them that failed or came late
    past: Floats  # [B, S + K, 2, 2], blocks of each slice and each kernel: an older and a newer window
    followed: Floats  # [B, S, K + 1], the last table
    settled: Floats  # [B, S, K + 1], the row before the watched move; the held row while it is held
    watched: Flags  # [B, S], a move is watched
    changed_at_s: Floats  # [B, S], its last change
    before: Floats  # [B, S, K + 1, 2], blocks before the move: of each kernel, and in column K of the slice
    since: Floats  # [B, S, K + 1, 2], the newest blocks since; column K: the slice on the kernels that gained
    recent: Ints  # [B, S, K + 1, 2], these blocks as bits: observed ones, and bad ones
    control: Floats  # [B, S, 2], blocks with which ``since`` of the subject was last compared
    chance: Floats  # [B, S], p-value of the last comparison (NaN: none)
    subject: Ints  # [B, S], subject of that comparison: a kernel, or K for the slice itself
    held_until_at_s: Floats  # [B, S], the row is held until then
    stopped: Flags  # [B, S], the row is only stopped, not taken back
    taken: Ints  # [B, S], consecutive times that the row was taken back or stopped
    for_capacity: Flags  # [B, S], the watched move was for capacity alone
    explained_at_s: Floats  # [B, K], instant of the last move that explains late answers of the kernel
    capacity_rows: Flags  # [B, S], rows that moved for capacity alone with the table in force


class Counted(NamedTuple):
    """Counts of one tick's telemetry."""

    answered: Ints  # [B, S, K], attempts, as the gateway counts
    failed: Ints  # [B, S, K]
    latency_le: Ints  # [B, S, K, F, E + 1], answers below each edge, the total last
    serving: Flags  # [B, R], in rotation, so ready
    running: Floats  # [B, R], requests in the newest scrape (NaN: not known)
    waiting: Floats  # [B, R], requests in the queue (NaN: not known)
    owner: Ints  # [R], kernel of each replica


class Standing(NamedTuple):
    """Present state of the fleet."""

    now_s: Floats  # [B]
    table: Floats  # [B, S, K + 1], in force
    open_cells: Flags  # [B, S, K], eligible cells: certified, no hard clause violated, with ready replicas
    ready: Ints  # [B, K], replicas in rotation
    replica_rps: Floats  # [B, K], capacity of one replica, best estimate
    healthy_rps: Floats  # [B, K], its capacity at certified or usual speed
    offered_rps: Floats  # [B, S]
    known: Flags  # [B], moves are judged and held


class Law(NamedTuple):
    """Clauses on latencies, and the settings."""

    family: Ints  # [C], latency family of each clause on latencies
    edge: Ints  # [C], its edge (-1: above every edge)
    applies: Flags  # [C, S]
    timed: Flags  # [S], some clause on latencies applies
    limit: Floats  # [S], share of late answers that the contract tolerates
    error: float  # as in ``OwnMoveOptions``, like the rest
    block_s: float  # least duration of a block; at least one flush of the gateway's statistics
    most_block_s: float  # largest duration of a block with too few requests
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
    """Result of the watch in one tick; filled in."""

    table: Floats  # [B, S, K + 1], the proposed table with held and taken-back rows
    action: Ints  # [B, S], an ``OwnMove``
    closed: Flags  # [B], a block ended with this tick
    ended: Floats  # [B, S, K], of that block
    bad: Floats  # [B, S, K]
    lasted_s: Floats  # [B]
