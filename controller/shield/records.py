"""Records of the shield's passes, and the table of its stages and reasons."""

from __future__ import annotations

from enum import IntFlag
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.jit import compiled

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

#: Stages in their order, the columns of ``Outcome.size``.
STAGES = ("hard", "pool", "capacity", "exploration", "slew")
HARD_SIZE, POOL_SIZE, CAPACITY_SIZE, EXPLORATION_SIZE, SLEW_SIZE = range(len(STAGES))


class ShieldReason(IntFlag):
    """Why a row differs from the proposed one."""

    HARD = 1
    POOL = 2
    #: No certified kernel lives, the contract's choice stands.
    NO_TARGET = 4
    CAPACITY = 8
    EXPLORATION = 16
    SLEW = 32
    DWELL = 64
    #: Part of the row is served where a soft clause is broken, because it would have been shed otherwise.
    SOFT = 128


# Plain integers: compiled code knows no flags.
HARD, POOL, NO_TARGET, CAPACITY, EXPLORATION, SLEW, DWELL, SOFT = (int(reason) for reason in ShieldReason)


class Facts(NamedTuple):
    """Input of the passes, of B fleets; without the axis B of one fleet (``facts_of``)."""

    proposed: Floats  #: [B, S, K + 1], whose rows sum to 1
    last: Floats  #: [B, S, K + 1], in force
    allowed: Flags  #: [B, S, K], cells that may carry weight
    failover: Ints  #: [B, S], -1 where a certified kernel lives, else a kernel for the whole row, or K: shed
    may_move: Flags  #: [B, S], the row may make a voluntary move
    offered_rps: Floats  #: [B, S]
    limit_rps: Floats  #: [B, K], upper limit of a kernel's load
    capacity_rps: Floats  #: [B, K], capacity of a kernel
    comfort_rps: Floats  #: [B, K], comfortable load: the limit while other kernels have headroom
    loss: Floats  #: [B, S, K], loss of an answer on the cell, in answers; with 1 or more it is not used
    canary: Flags  #: [K]
    order: Ints  #: [S], slices, highest priority first
    known_good: int  #: a kernel
    least_canary: float  #: bounds of a canary's weight in a row
    most_canary: float
    most_shed: float  #: weight of a row that a policy may shed on purpose
    most_moved: float  #: weight of a row that may move voluntarily in one tick


class Outcome(NamedTuple):
    """Output of the passes, of B fleets; without the axis B of one fleet (``outcome_of``)."""

    table: Floats  #: [B, S, K + 1], the allowed one in the end
    target: Floats  #: [B, S, K + 1], the rows before capacity
    reason: Ints  #: [B, S], bits of ``ShieldReason``
    size: Floats  #: [B, S, 5], half L1 by stage
    voluntary: Flags  #: [B, S], the row moved because the policy asked for it
    bounded: Flags  #: [B, K], canaries whose bounds hold; none where these would cost traffic
    most_rps: (
        Floats  #: [B, K], what a kernel may carry now: ``comfort_rps``, or ``limit_rps`` where that is short
    )


class Work(NamedTuple):
    """Scratch arrays of the passes over one fleet."""

    headroom_rps: Floats  #: [K], remaining headroom of a kernel; in the second pass its load limit
    overflow: Floats  #: [S], weight not placed yet
    slowed: Floats  #: [S, K + 1], rows after slew and dwell
    seen: Flags  #: [K]
    queue: Ints  #: [K]
    open_: Flags  #: [S, K], allowed cells and soft cells


@compiled(forceinline=True)
def facts_of(facts, b):
    """``Facts`` of fleet ``b``."""
    return Facts(
        facts.proposed[b],
        facts.last[b],
        facts.allowed[b],
        facts.failover[b],
        facts.may_move[b],
        facts.offered_rps[b],
        facts.limit_rps[b],
        facts.capacity_rps[b],
        facts.comfort_rps[b],
        facts.loss[b],
        facts.canary,
        facts.order,
        facts.known_good,
        facts.least_canary,
        facts.most_canary,
        facts.most_shed,
        facts.most_moved,
    )


@compiled(forceinline=True)
def outcome_of(outcome, b):
    """``Outcome`` of fleet ``b``."""
    return Outcome(
        outcome.table[b],
        outcome.target[b],
        outcome.reason[b],
        outcome.size[b],
        outcome.voluntary[b],
        outcome.bounded[b],
        outcome.most_rps[b],
    )


@compiled(forceinline=True)
def new_work(slices, kernels):
    """``Work`` for any fleet of this shape."""
    return Work(
        np.empty(kernels),
        np.empty(slices),
        np.empty((slices, kernels + 1)),
        np.empty(kernels, np.bool_),
        np.empty(kernels, np.int64),
        np.empty((slices, kernels), np.bool_),
    )
