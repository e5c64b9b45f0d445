"""The watch over the controller's own moves: a move that makes things worse is taken back, or stopped.

A row of the table that moved is *watched* until it has not changed for ``settle_s``. Answers are grouped in
blocks of ``block_s``. A block of a slice, or of a kernel, is *bad* if more of its requests failed or were
late than the contract tolerates, or if the kernel has a queue. A block lasts at least ``block_s`` and one
flush of the gateway's statistics, and until ``LEAST_REQUESTS`` ended or there is a queue, but no longer than
the contract's window. A block without requests of a slice or kernel is not counted for it.

At the end of every block, Fisher's exact test compares the newest blocks since the move with those before it:
the slice on its new kernels with the slice before, and every kernel that gained traffic with itself and with
the kernels that lost it, before. At most a share ``error`` of the moves that changed nothing are taken for
worse. (Blocks are assumed to be exchangeable; the answers within a block share a queue and are not.)

A row that got worse goes back to where it was: not onto a cell that a hard clause or a missing certificate
closes, not onto a kernel that it would overload, and not if the kernels that would get it back have been no
better since. In these cases the row is stopped: it goes no further. Both last ``hold_s``, twice as long each
further time. The watch runs before the shield, whichever policy drives. Late answers of a kernel within one
window after a move that raised its load are no evidence against it (``explained_at_s``), unless the kernel is
slower than certified.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import CompiledContract, FleetLayout
from contracts.telemetry import FleetTelemetry, Source
from controller.judge.judge import Judgement
from controller.options import ControllerSetup, OwnMoveOptions
from controller.perceive.estimate import Estimate
from controller.ports import Observation, PolicyState, Proposal
from controller.state import ControllerState
from controller.supervise.gate import Supervised
from controller.supervise.harm import tolerated_late
from controller.supervise.own_moves_blocks import find_open
from controller.supervise.own_moves_pass import watch
from controller.supervise.own_moves_records import Block, Counted, Found, Law, MovesMemory, OwnMove, Standing

#: Plain integers: comparing with an enumeration takes longer.
_WATCHED, _KEPT = int(OwnMove.WATCHED), int(OwnMove.KEPT)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnMoves:
    """Result of the watch in one tick, for B fleets."""

    supervised: Supervised  #: with the rows that were taken back or held
    action: NDArray[np.int64]  #: [B, S], an ``OwnMove``
    memory: PolicyState
    block: Block


def initial_own_moves(layout: FleetLayout, home: NDArray[np.int64], batch: int) -> PolicyState:
    """Memory of ``batch`` fleets before the first tick: every slice at home, nothing moved."""
    kernels, slices, _ = layout.shape
    table = np.zeros((batch, slices, kernels + 1))
    table[:, np.arange(slices), home] = 1.0
    rows, cells = (batch, slices), (batch, slices, kernels)
    memory = MovesMemory(
        started=np.zeros(batch, dtype=np.bool_),
        block_began_at_s=np.full(batch, np.nan),
        ended=np.zeros(cells),
        bad=np.zeros(cells),
        past=np.zeros((batch, slices + kernels, 2, 2)),
        followed=table,
        settled=table.copy(),
        watched=np.zeros(rows, dtype=np.bool_),
        changed_at_s=np.full(rows, -np.inf),
        before=np.zeros((batch, slices, kernels + 1, 2)),
        since=np.zeros((batch, slices, kernels + 1, 2)),
        recent=np.zeros((batch, slices, kernels + 1, 2), dtype=np.int64),
        control=np.zeros((*rows, 2)),
        chance=np.full(rows, np.nan),
        subject=np.full(rows, kernels, dtype=np.int64),
        held_until_at_s=np.full(rows, -np.inf),
        stopped=np.zeros(rows, dtype=np.bool_),
        taken=np.zeros(rows, dtype=np.int64),
        for_capacity=np.zeros(rows, dtype=np.bool_),
        explained_at_s=np.full((batch, kernels), -np.inf),
        capacity_rows=np.zeros(rows, dtype=np.bool_),
    )
    return memory._asdict()


def watch_own_moves(
    supervised: Supervised,
    before: ControllerState,
    estimate: Estimate,
    telemetry: FleetTelemetry,
    judgement: Judgement,
    observation: Observation,
    setup: ControllerSetup,
) -> OwnMoves:
    """Add the requests that ended under the table in force, and take back or hold rows of the proposal.

    With ``Estimate.consumed``, the memory is written in place instead of to a copy.
    """
    kept: dict[str, Any] = dict(before.own_moves)
    memory = MovesMemory(
        **(kept if estimate.consumed else {name: array.copy() for name, array in kept.items()})
    )
    found = _blank(supervised, memory)
    counted = _counted(telemetry, observation.in_rotation, setup.layout.replica_kernel)
    standing = _standing(before, judgement, observation, estimate, estimate.stale | supervised.sent_home)
    watch(tuple(memory), counted, standing, _law(setup), tuple(found))
    return OwnMoves(
        supervised=_with_rows(supervised, found, memory),
        action=found.action,
        memory=memory._asdict(),
        block=Block(found.closed, found.ended, found.bad, found.lasted_s),
    )


def unwatched(supervised: Supervised, before: ControllerState) -> OwnMoves:
    """Nothing is watched: for configurations that must show a bare policy."""
    batch, slices, columns = supervised.table.shape
    cells = np.zeros((batch, slices, columns - 1))
    return OwnMoves(
        supervised=supervised,
        action=np.zeros((batch, slices), dtype=np.int64),
        memory=before.own_moves,
        block=Block(np.zeros(batch, dtype=np.bool_), cells, cells, np.zeros(batch)),
    )


def _blank(supervised: Supervised, memory: MovesMemory) -> Found:
    rows = memory.watched.shape
    return Found(
        table=np.array(supervised.table, dtype=np.float64, order="C"),
        action=memory.watched.astype(np.int64),  # WATCHED is 1, NONE 0
        closed=np.zeros(rows[0], dtype=np.bool_),
        ended=np.zeros(memory.ended.shape),
        bad=np.zeros(memory.bad.shape),
        lasted_s=np.zeros(rows[0]),
    )


def _counted(
    telemetry: FleetTelemetry, in_rotation: NDArray[np.bool_], owner: NDArray[np.int64]
) -> tuple[NDArray[Any], ...]:
    plain = np.ascontiguousarray
    counted = Counted(
        answered=plain(telemetry.gateway.answered),
        failed=plain(telemetry.gateway.failed),
        latency_le=plain(telemetry.gateway.latency_le),
        serving=in_rotation,
        running=plain(telemetry.running),
        waiting=plain(telemetry.waiting),
        owner=owner,
    )
    return tuple(counted)


def _standing(
    before: ControllerState,
    judgement: Judgement,
    observation: Observation,
    estimate: Estimate,
    idle: NDArray[np.bool_],
) -> tuple[NDArray[Any], ...]:
    """Present state for the watch.

    idle: bool [B], no move is judged or held in this tick, because telemetry is missing or every row goes
    home.
    """
    plain, after = np.ascontiguousarray, estimate.state
    (batch, kernels), slices = observation.ready.shape, len(observation.home)
    open_cells = np.empty((batch, slices, kernels), dtype=np.bool_)
    find_open(open_cells, plain(judgement.certified), plain(judgement.hard_violated), observation.ready)
    standing = Standing(
        now_s=observation.now_s,
        table=plain(before.table),
        open_cells=open_cells,
        ready=observation.ready,
        replica_rps=after.replica_rps,
        healthy_rps=after.healthy_rps,
        offered_rps=after.offered_rps,
        known=~idle,
    )
    return tuple(standing)


def _law(setup: ControllerSetup) -> tuple[Any, ...]:
    return _law_of(setup.contract, setup.options.own_moves, setup.fleet.rates.scrape_interval_s)


@lru_cache(maxsize=64)
def _law_of(contract: CompiledContract, options: OwnMoveOptions, flush_s: float) -> tuple[Any, ...]:
    """The contract's clauses on latencies and the settings, as a plain tuple for the compiled pass."""
    timed = np.flatnonzero(contract.source == Source.LATENCY)
    applies = np.ascontiguousarray(contract.applies[timed])
    law = Law(
        family=contract.column[timed],
        edge=contract.edge[timed],
        applies=applies,
        timed=np.asarray(applies.any(axis=0)),
        limit=tolerated_late(contract),
        error=options.error,
        block_s=max(options.block_s, flush_s),
        most_block_s=max(options.block_s, flush_s, contract.window_s),
        past_blocks=float(options.past_blocks),
        settle_s=options.settle_s,
        most_looks=options.most_looks,
        hold_s=options.hold_s,
        doublings=options.doublings,
        gain_ratio=options.gain_ratio,
        slow_ratio=options.slow_ratio,
    )
    return tuple(law)


def _with_rows(supervised: Supervised, found: Found, memory: MovesMemory) -> Supervised:
    """``supervised`` with the rows that the watch took back or holds.

    A row that is taken back counts as moved for capacity if the move was for capacity.
    """
    if int(found.action.max(initial=0)) <= _WATCHED:
        return supervised
    changed = (found.action > _WATCHED) & (found.action != _KEPT)
    driving = supervised.driving
    claimed = np.where(changed, memory.for_capacity, driving.for_capacity())
    table = np.where(changed[:, :, None], found.table, driving.table)
    proposal = Proposal(table=table, ejected=driving.ejected, capacity_rows=claimed)
    return replace(supervised, table=found.table, driving=proposal)
