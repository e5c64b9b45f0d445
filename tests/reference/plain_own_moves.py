"""The watch over own moves by definition: one fleet, row by row, in plain Python."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import hypergeom

from controller.perceive.queue_pass import QUEUE_RATIO
from controller.supervise.own_moves_blocks import LEAST_REQUESTS, RECENT
from controller.supervise.own_moves_records import Counted, Law, OwnMove, Standing

Floats = NDArray[np.float64]
GAINED, LEFT = 0.01, 0.05


def distance(one: Floats, other: Floats) -> float:
    """Half L1."""
    return 0.5 * float(np.abs(one - other).sum())


def chance(before: Floats, since: Floats) -> float:
    """Fisher's exact test, one-sided."""
    if not (before[0] > 0 and since[0] > 0 and since[1] > 0):
        return 1.0
    total, bad, n = int(before[0] + since[0]), int(before[1] + since[1]), int(since[0])
    return float(hypergeom(total, bad, n).sf(int(since[1]) - 1))


@dataclass
class PlainRow:
    """State of one slice's row."""

    settled: Floats
    watched: bool = False
    changed_at_s: float = -inf
    blocks: list[Any] = field(default_factory=list)
    before: Any = None
    since: Any = None
    held_until_at_s: float = -inf
    stopped: bool = False
    taken: int = 0


@dataclass
class PlainWatch:
    """One fleet; ``blocks`` of a subject are pairs (1, bad or not), the older ones first, in two windows."""

    law: Law
    home: Floats
    rows: list[PlainRow] = field(init=False)

    def __post_init__(self) -> None:
        slices, columns = self.home.shape
        self.kernels = columns - 1
        self.rows = [PlainRow(settled=row.copy(), since=np.zeros((columns, 2))) for row in self.home]
        self.followed = self.home.copy()
        self.past = {place: [[0.0, 0.0], [0.0, 0.0]] for place in range(slices + self.kernels)}
        self.requests = np.zeros((slices, self.kernels, 2))
        self.explained_at_s = np.full(self.kernels, -inf)
        self.began_at_s, self.started = np.nan, False

    def step(self, counted: Counted, standing: Standing, proposed: Floats) -> tuple[Floats, list[int]]:
        """The rows that may be driven, and the result for each."""
        now_s, table, out = float(standing.now_s[0]), standing.table[0], proposed.copy()
        actions = [int(OwnMove.WATCHED if row.watched else OwnMove.NONE) for row in self.rows]
        self._count(counted)
        self._follow(now_s, table, standing)
        if np.isnan(self.began_at_s):
            self.began_at_s = now_s
        if self._ends(now_s - self.began_at_s + 1e-6, counted):
            seen = self._close(now_s, counted)
            for s, row in enumerate(self.rows):
                if row.watched:
                    actions[s] = self._judge(s, row, seen, standing)
            self.requests[:], self.began_at_s = 0.0, now_s
        for s, row in enumerate(self.rows):
            actions[s] = self._hold(s, row, standing, out, actions[s])
        return out, actions

    def _ends(self, lasted_s: float, counted: Counted) -> bool:
        enough = self.requests[:, :, 0].sum() >= LEAST_REQUESTS
        enough |= any(self._queued(counted, k) for k in range(self.kernels))
        return lasted_s >= (self.law.block_s if enough else self.law.most_block_s)

    def _queued(self, counted: Counted, k: int) -> bool:
        mine = (counted.owner == k) & counted.serving[0]
        running, waiting = counted.running[0, mine].sum(), counted.waiting[0, mine].sum()
        return bool(mine.any()) and bool(waiting > mine.sum() + QUEUE_RATIO * running)

    def _count(self, counted: Counted) -> None:
        total, in_time = counted.latency_le[0, :, :, 0, -1], counted.latency_le[0, :, :, 0, 0]
        self.requests[:, :, 0] += total + counted.failed[0]
        self.requests[:, :, 1] += total - in_time + counted.failed[0]

    def _follow(self, now_s: float, table: Floats, standing: Standing) -> None:
        if not self.started:
            self.started, self.followed = True, table.copy()
            for row, new in zip(self.rows, table, strict=True):
                row.settled = new.copy()
            return
        offered = standing.offered_rps[0][:, None]
        was, load = ((rows[:, :-1] * offered).sum(axis=0) for rows in (self.followed, table))
        quick = standing.replica_rps[0] >= self.law.slow_ratio * standing.healthy_rps[0]
        self.explained_at_s[(load - was > self.law.gain_ratio * load) & quick] = now_s
        for s, row in enumerate(self.rows):
            if distance(table[s], self.followed[s]) <= 1e-9:
                continue
            if row.watched:
                row.changed_at_s = now_s
            elif now_s >= row.held_until_at_s and distance(table[s], row.settled) > LEFT:
                places = [len(self.rows) + k for k in range(self.kernels)] + [s]
                row.before = np.array([np.sum(self.past[place], axis=0) for place in places])
                row.watched, row.changed_at_s, row.blocks = True, now_s, []
                row.since = np.zeros((self.kernels + 1, 2))
        self.followed = table.copy()

    def _close(self, now_s: float, counted: Counted) -> Floats:
        """[S + K, 2], whether the block shows anything of each, and whether it is bad."""
        seen = []
        for s, row in enumerate(self.rows):
            ended, bad = self.requests[s].sum(axis=0)
            seen.append((float(ended > 0), float(bad >= 2 and bad > self.law.limit[s] * ended)))
            if not row.watched:
                self._remember(s, seen[-1])
        for k in range(self.kernels):
            ended, bad = self.requests[:, k].sum(axis=0)
            queued = self._queued(counted, k)
            tolerated = (self.law.limit * self.requests[:, k, 0]).sum()
            seen.append((float(ended > 0 or queued), float(queued or (bad >= 2 and bad > tolerated))))
            if now_s - self.explained_at_s[k] >= self.law.settle_s:
                self._remember(len(self.rows) + k, seen[-1])
        return np.array(seen)

    def _remember(self, place: int, block: tuple[float, float]) -> None:
        past = self.past[place]
        past[1] = [past[1][0] + block[0], past[1][1] + block[1]]
        if past[1][0] >= self.law.past_blocks:
            self.past[place] = [past[1], [0.0, 0.0]]

    def _judge(self, s: int, row: PlainRow, seen: Floats, standing: Standing) -> int:
        table, now_s = standing.table[0, s], float(standing.now_s[0])
        gained = np.flatnonzero(table[:-1] > row.settled[:-1] + GAINED)
        ended, bad = self.requests[s, gained].sum(axis=0)
        own = (float(ended > 0), float(bad >= 2 and bad > self.law.limit[s] * ended))
        row.blocks.append(np.vstack([seen[len(self.rows) :], own]))
        columns = np.moveaxis(np.array(row.blocks), 1, 0)  # [K + 1, blocks, 2]
        row.since = np.array([one[one[:, 0] > 0.0][-RECENT:].sum(axis=0) for one in columns])
        if not len(gained):
            row.watched = distance(table, row.settled) > LEFT
        subjects = [self.kernels, *gained]
        left = row.before[:-1][table[:-1] < row.settled[:-1] - GAINED].sum(axis=0)
        best = chance(row.before[-1], row.since[-1])
        best = min([best, *(chance(row.before[k] + left, row.since[k]) for k in gained)])
        if best <= self.law.error / (len(subjects) * self.law.most_looks):
            return self._answer(s, row, gained, standing)
        if now_s - row.changed_at_s >= self.law.settle_s - 1e-6:
            row.watched, row.settled = False, table.copy()
            row.taken = 0 if now_s - row.held_until_at_s > 3600.0 else row.taken
        return int(OwnMove.WATCHED)

    def _answer(self, s: int, row: PlainRow, gained: NDArray[np.int64], standing: Standing) -> int:
        table, free = standing.table[0, s], standing.open_cells[0, s]
        row.watched = False
        kept = np.where(free, row.settled[:-1], 0.0)
        lost = free & (row.settled[:-1] > table[:-1] + GAINED)
        if kept.sum() <= 1e-9 or not lost.any():
            row.settled = table.copy()
            return int(OwnMove.KEPT)
        here = np.where(free, table[:-1], 0.0)
        rest = here / here.sum() if here.sum() > 1e-9 else kept / kept.sum()
        back = np.append(kept + (1.0 - kept.sum()) * rest, 0.0)
        load = (standing.table[0, :, :-1] * standing.offered_rps[0][:, None]).sum(axis=0)
        load += (back - table)[:-1] * standing.offered_rps[0, s]
        raised = back[:-1] > table[:-1] + GAINED
        full = (raised & (load > standing.ready[0] * standing.replica_rps[0])).any()
        share = row.since[:, 1] / np.maximum(row.since[:, 0], 1.0)
        left = np.flatnonzero(row.settled[:-1] > table[:-1] + GAINED)
        worst = max(share[[self.kernels, *gained]])
        as_bad = any(row.since[k, 0] > 0 and share[k] >= worst for k in left)
        row.stopped = bool(full or as_bad)
        row.held_until_at_s = float(standing.now_s[0]) + self.law.hold_s * 2.0 ** min(
            row.taken, self.law.doublings
        )
        row.taken += 1
        if row.stopped:
            row.settled = table.copy()
            return int(OwnMove.STOPPED)
        quick = standing.replica_rps[0] >= self.law.slow_ratio * standing.healthy_rps[0]
        touched = np.abs(table[:-1] - row.settled[:-1]) > GAINED
        self.explained_at_s[touched & quick] = standing.now_s[0]
        row.settled = back
        return int(OwnMove.TAKEN_BACK)

    def _hold(self, s: int, row: PlainRow, standing: Standing, out: Floats, action: int) -> int:
        if standing.now_s[0] >= row.held_until_at_s:
            return action
        held, free = row.settled.copy(), standing.open_cells[0, s]
        if held[-1] >= 1.0 - 1e-9:
            return action
        held[:-1] *= (1.0 - out[s, -1]) / (1.0 - held[-1])
        held[-1] = out[s, -1]
        if (row.settled[:-1][~free] > GAINED).any():
            row.held_until_at_s = -inf
            return action
        further = ((row.since[:-1, 1] > 0) & (out[s, :-1] > held[:-1] + 1e-9)).any()
        if (not row.stopped or further) and distance(held, out[s]) > 1e-9:
            out[s] = held
            return action if action in (OwnMove.TAKEN_BACK, OwnMove.STOPPED) else int(OwnMove.HELD)
        return action
