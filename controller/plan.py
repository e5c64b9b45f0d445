"""From an allowed table to the plan: moves, their reasons, and the changes of the state."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.cells import some_in
from controller.decision import Perception
from controller.judge.judge import Judgement
from controller.options import ControllerSetup
from controller.ports import Proposal, RoutingPlan
from controller.shield.apply_plan import Followed, TableChange, follow_rows, turn
from controller.shield.gate import Shielded
from controller.state import ControllerState, altered, out_as_hung
from controller.supervise.switch_counter import unfollowed


class Planned(NamedTuple):
    """Plan of a new table, and the changes that come with it."""

    plan: RoutingPlan
    moved: NDArray[np.bool_]  # [B], table or rotation differ from the last plan
    capacity_move: NDArray[np.bool_]  # [B], the table changed for capacity alone
    changes: dict[str, Any]  # arrays of the state that the plan replaces


def make_plan(driving: Proposal, known: Perception, shielded: Shielded, setup: ControllerSetup) -> Planned:
    """The plan that puts the allowed table in force; versions count plans that differ from the one before.

    A row moves for capacity if the policy reports so, or if the shield moves it for capacity while the policy
    leaves it unchanged; a forced row never does. A slowed move for another reason is pending until it is
    complete, and its later ticks are not for capacity.
    """
    before, after, plain = known.before, known.after, np.ascontiguousarray
    change = TableChange(
        table=plain(shielded.table),
        last=plain(before.table),
        wanted=plain(driving.table, dtype=np.float64),
        claimed=driving.for_capacity(),
        reason=plain(shielded.reason),
        voluntary=plain(shielded.voluntary),
        was_pending=before.pending,
        now_s=after.now_s,
        rest_s=setup.options.limits.min_dwell_s - 1e-6 * setup.fleet.tick_s,
    )
    followed = _blank(before, after)
    follow_rows(tuple(change), tuple(followed))
    in_rotation = np.empty(after.quarantined.shape, dtype=np.bool_)
    was_away = (before.quarantined, plain(before.ejected))
    turn(in_rotation, followed.moved, after.quarantined, plain(driving.ejected), *was_away)
    plan = RoutingPlan(
        table=shielded.table,
        in_rotation=in_rotation,
        version=after.version + followed.moved,
        forbidden=forbidden_cells(known.judgement, known.observation.ready, setup),
        capacity_rows=followed.rows,
        reset=_to_reset(before, after, setup),
    )
    changes = {
        "table": plan.table,
        "version": plan.version,
        "ejected": driving.ejected,
        "pending": followed.pending,
        "row_moved_at_s": followed.row_moved_at_s,
        "row_move_began_at_s": followed.row_move_began_at_s,
    }
    return Planned(plan=plan, moved=followed.moved, capacity_move=followed.for_capacity, changes=changes)


def _blank(before: ControllerState, after: ControllerState) -> Followed:
    """Records to fill in, with the present instants."""
    shape = after.row_moved_at_s.shape
    moved, for_capacity = np.empty((2, shape[0]), dtype=np.bool_)
    rows, pending = np.empty((2, *shape), dtype=np.bool_)
    return Followed(
        rows=rows,
        for_capacity=for_capacity,
        moved=moved,
        pending=pending,
        row_moved_at_s=after.row_moved_at_s.copy(),
        row_move_began_at_s=before.row_move_began_at_s.copy(),
    )


def without_plan(before: ControllerState, after: ControllerState) -> ControllerState:
    """``after`` without the changes of its plan, because the plan was not put in force.

    Evidence, judgement, quarantine and the counts of earlier plans stay. The memory of policy and baseline is
    restored, because it records a move that did not happen. A fleet with a changed quarantine keeps the new
    version: its next plan differs from the one in force even if no weight moves.
    """
    keeps_version = (after.quarantined != before.quarantined).any(axis=1)
    return altered(
        after,
        table=before.table,
        version=np.where(keeps_version, after.version, before.version),
        ejected=before.ejected,
        pending=before.pending,
        row_moved_at_s=before.row_moved_at_s,
        row_move_began_at_s=before.row_move_began_at_s,
        policy=before.policy,
        baseline=before.baseline,
        supervisor=unfollowed(before.supervisor, after.supervisor),
        own_moves={**after.own_moves, "capacity_rows": before.own_moves["capacity_rows"]},
    )


def _to_reset(
    before: ControllerState, after: ControllerState, setup: ControllerSetup
) -> NDArray[np.bool_] | None:
    """bool [B, R]: replicas with open streams to be reset; None: no replica."""
    if setup.hang_timeouts == 0 or after.quarantined is before.quarantined:
        return None
    now = newly_hung(before.quarantined, after.quarantined, after.quarantine_reason)
    return now if some_in(now) else None


def newly_hung(
    was: NDArray[np.bool_], quarantined: NDArray[np.bool_], reason: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """bool [B, R]: replicas quarantined as hung that were not quarantined before (``was`` [B, R])."""
    return np.asarray(out_as_hung(quarantined, reason) & ~was)


def forbidden_cells(
    judgement: Judgement, ready: NDArray[np.int64], setup: ControllerSetup
) -> NDArray[np.bool_]:
    """bool [B, S, K]: a hard clause is known to be violated, and the contract does not serve there."""
    hard = judgement.hard_violated.transpose(0, 2, 1)
    if setup.contract.shed_when_uncertified or not some_in(hard):
        return hard
    eligible = judgement.certified & ~judgement.hard_violated & (ready > 0)[:, :, None]
    chosen = np.zeros_like(hard)
    chosen[:, :, setup.layout.known_good] = ~eligible.any(axis=1)
    return np.asarray(hard & ~chosen)
