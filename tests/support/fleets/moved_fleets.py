"""Fleets of arrays for the watch over own moves: one tick's counts, and the present state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from controller.supervise.own_moves import initial_own_moves
from controller.supervise.own_moves_pass import watch
from controller.supervise.own_moves_records import Counted, Found, Law, MovesMemory, OwnMove, Standing
from tests.support.fleets.builders import make_layout

SLICES, KERNELS = 2, 3
#: One replica of each kernel; one family of latencies, late above the first of its two edges.
LAYOUT = make_layout(kernels=KERNELS, slices=SLICES, per_kernel=1)
LAW = Law(
    family=np.zeros(1, dtype=np.int64),
    edge=np.zeros(1, dtype=np.int64),
    applies=np.ones((1, SLICES), dtype=np.bool_),
    timed=np.ones(SLICES, dtype=np.bool_),
    limit=np.full(SLICES, 0.05),
    error=0.01,
    block_s=5.0,
    most_block_s=60.0,
    past_blocks=24.0,
    settle_s=60.0,
    most_looks=30.0,
    hold_s=120.0,
    doublings=10,
    gain_ratio=0.05,
    slow_ratio=0.9,
)
HOME = np.array([0, 1], dtype=np.int64)


def on(*kernels: int) -> NDArray[np.float64]:
    """Table float64 [1, S, K + 1] with slice ``i`` whole on the kernel ``kernels[i]``."""
    table = np.zeros((1, SLICES, KERNELS + 1))
    table[0, np.arange(SLICES), list(kernels)] = 1.0
    return table


@dataclass
class MovedFleet:
    """One fleet under a table that always comes into force; B fleets alike by ``batch``."""

    batch: int = 1
    law: Law = LAW
    now_s: float = 0.0
    #: Seconds between two flushes of the gateway's statistics; each brings all counts since the last.
    flush_s: int = 1
    open_cells: NDArray[np.bool_] = field(default_factory=lambda: np.ones((1, SLICES, KERNELS), np.bool_))
    replica_rps: NDArray[np.float64] = field(default_factory=lambda: np.full((1, KERNELS), 1e3))
    offered_rps: NDArray[np.float64] = field(default_factory=lambda: np.full((1, SLICES), 20.0))

    memory: dict[str, Any] = field(default_factory=dict)
    table: NDArray[np.float64] = field(default_factory=lambda: np.zeros((1, SLICES, KERNELS + 1)))

    def __post_init__(self) -> None:
        self.memory = dict(initial_own_moves(LAYOUT, HOME, self.batch))
        self.table = np.array(self.memory["followed"], dtype=np.float64)

    def step(self, proposed: NDArray[np.float64], late: NDArray[np.float64], failed: float = 0.0) -> Found:
        """One second in which a share ``late`` [..., S, K] of each cell's answers came late, then
        ``proposed`` [B, S, K + 1] passes the watch and comes into force.
        """
        self.now_s += 1.0
        found = self.blank(proposed)
        known = self.counted(late, failed), self.standing()
        watch(
            tuple(MovesMemory(**self.memory)), tuple(known[0]), tuple(known[1]), tuple(self.law), tuple(found)
        )
        self.table = found.table
        return found

    def blank(self, proposed: NDArray[np.float64]) -> Found:
        """Records that the pass fills."""
        cells = np.zeros((self.batch, SLICES, KERNELS))
        watched = self.memory["watched"]
        return Found(
            table=np.repeat(proposed, self.batch // len(proposed), axis=0),
            action=np.where(watched, int(OwnMove.WATCHED), int(OwnMove.NONE)),
            closed=np.zeros(self.batch, dtype=np.bool_),
            ended=cells,
            bad=cells.copy(),
            lasted_s=np.zeros(self.batch),
        )

    def counted(self, late: NDArray[np.float64], failed: float) -> Counted:
        """Answers by the table in force, late ones above the edge."""
        rate = self.table[:, :, :-1] * self.offered_rps[:, :, None]
        passed_s = 0.0 if self.now_s % self.flush_s else float(self.flush_s)
        until, since = (np.floor(rate * at_s + 1e-9) for at_s in (self.now_s, self.now_s - passed_s))
        answered = (until - since).astype(np.int64)
        in_time = answered - np.round(answered * late).astype(np.int64)
        flags = np.ones((self.batch, KERNELS), dtype=np.bool_)
        return Counted(
            answered=answered,
            failed=np.round(answered * failed).astype(np.int64),
            latency_le=np.ascontiguousarray(np.stack([in_time, answered], axis=-1)[:, :, :, None]),
            serving=flags,
            running=np.full(flags.shape, 5.0),
            waiting=np.zeros(flags.shape),
            owner=np.arange(KERNELS, dtype=np.int64),
        )

    def standing(self) -> Standing:
        """The present state."""

        def all_of(values: NDArray[Any]) -> NDArray[Any]:
            return np.ascontiguousarray(np.repeat(values, self.batch // len(values), axis=0))

        return Standing(
            now_s=np.full(self.batch, self.now_s),
            table=self.table.copy(),
            open_cells=all_of(self.open_cells),
            ready=np.ones((self.batch, KERNELS), dtype=np.int64),
            replica_rps=all_of(self.replica_rps),
            healthy_rps=np.full((self.batch, KERNELS), 1e3),
            offered_rps=all_of(self.offered_rps),
            known=np.ones(self.batch, dtype=np.bool_),
        )
