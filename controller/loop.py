"""One turn of the loop: telemetry in, decision out; the only place where the parts meet.

``tick`` is pure and batched: B fleets at once, equal results for each whatever B is. ``Controller`` wraps
it for worlds that hand over ports.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from contracts.telemetry import FleetTelemetry
from controller.arrivals import kernel_arrivals, replica_arrivals
from controller.detectors import Verdicts
from controller.encode import observe, rotation
from controller.estimate import Estimate, fold, kernel_count, next_window
from controller.judge import Judgement, judge, pooled_verdicts
from controller.paired import paired_tick
from controller.plan_compiled import follow_rows, turn
from controller.ports import (
    Clock,
    Observation,
    PolicyState,
    Proposal,
    RouteActuator,
    RoutingPlan,
    TelemetrySource,
)
from controller.quarantine import decide
from controller.setup import ControllerSetup
from controller.shield import Reason, Shielded, ShieldView, may_move, shield, unshielded
from controller.state import ControllerState, altered, initial_state
from controller.supervise import Supervised, counted, supervise
from controller.supervise_meta import note_decision

#: Bits of ``Shielded.reason``, plain for compiled code: moves that nobody chose, and moves that take longer.
_FORCED, _SLOWED = int(Reason.HARD | Reason.POOL | Reason.DARK), int(Reason.SLEW | Reason.DWELL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What one tick decided, for B fleets, with the evidence it stands on.

    plan: what to actuate (``plan.table``, ``plan.in_rotation``, ``plan.version``). moved: bool [B], table
    or rotation differ from the last plan. proposed: float64 [B, S, K + 1], the policy's own table.
    shield_delta: float64 [B, S, K + 1], change by shield and supervisor; shielded: what the shield did
    and why. held, degraded: bool [B].
    capacity_move: bool [B], the table changed for capacity alone. quarantined: bool [B, R] and
    quarantine_reason int64 [B, R] (``controller.quarantine.Reason``). replica_alarm: bool [B, R, S, C].
    judged, replica_judged: float64 [B, K or R, S, C, 4], the sums behind the verdicts on kernels and
    on replicas (``controller.detectors``).
    driven: float64 [B, S, K + 1], the table that entered the shield. Under a meta-contract: demoted: bool
    [B], the baseline drives; demotion_reason: int64 [B], place in ``contracts.compiled_meta.METRICS``;
    baseline_proposed: float64 [B, S, K + 1]; readings: float64 [B, M], what the supervisor read.
    changed: bool [B, R], replicas that are not what was certified (None: nobody compares).
    """

    plan: RoutingPlan
    moved: NDArray[np.bool_]
    proposed: NDArray[np.float64]
    shield_delta: NDArray[np.float64]
    shielded: Shielded
    held: NDArray[np.bool_]
    degraded: NDArray[np.bool_]
    capacity_move: NDArray[np.bool_]
    quarantined: NDArray[np.bool_]
    quarantine_reason: NDArray[np.int64]
    replica_alarm: NDArray[np.bool_]
    judged: NDArray[np.float64]
    replica_judged: NDArray[np.float64]
    judgement: Judgement
    observation: Observation
    driven: NDArray[np.float64]
    demoted: NDArray[np.bool_]
    demotion_reason: NDArray[np.int64]
    baseline_proposed: NDArray[np.float64] | None = None
    readings: NDArray[np.float64] | None = None
    changed: NDArray[np.bool_] | None = None

    @property
    def table(self) -> NDArray[np.float64]:
        """float64 [B, S, K + 1], in force from now on; last column shed."""
        return self.plan.table


@dataclass(frozen=True, slots=True, kw_only=True)
class Perception:
    """The first half of a tick: what is known before anybody proposes.

    after: the state with evidence and judgement of this tick; its table and policy memory are still those
    of the last tick. before, telemetry: what the tick began with. observation: what the policy may see.
    """

    before: ControllerState
    after: ControllerState
    telemetry: FleetTelemetry
    estimate: Estimate
    verdicts: Verdicts
    judgement: Judgement
    observation: Observation


def tick(
    state: ControllerState, telemetry: FleetTelemetry, setup: ControllerSetup, *, consume: bool = False
) -> tuple[ControllerState, Decision]:
    """Take in ``telemetry`` and decide: estimate, judge, propose, supervise, shield, plan.

    Pure, unless the caller gives ``state`` away with ``consume``: then evidence is added to its arrays in
    place, with equal results, and ``state`` and the sums in the decision before are of no use any more.
    """
    known = perceive(state, telemetry, setup, consume=consume)
    proposal, policy_state = setup.policy.propose(known.observation, known.after.policy)
    return resolve(known, proposal, policy_state, setup)


def perceive(
    state: ControllerState, telemetry: FleetTelemetry, setup: ControllerSetup, *, consume: bool = False
) -> Perception:
    """Estimate and judge; ends where a policy proposes. ``consume``: see ``tick``."""
    estimate = fold(state, telemetry, setup, consume=consume)
    arrived = replica_arrivals(state, estimate, telemetry, setup) if setup.detector.by_unit else None
    verdicts, memory = setup.detector.update(
        state.replica_detector, estimate.state.window, estimate.closed, setup.contract, arrived,
        consume=consume,
    )  # fmt: skip
    pooled = None
    if arrived is not None:
        pooled = pooled_verdicts(estimate, kernel_arrivals(state, arrived, setup), setup, consume=consume)
    after, apart = decide(estimate, telemetry, verdicts, memory, setup, pooled)
    after, judgement = judge(estimate, after, telemetry, verdicts, apart, setup, pooled, consume=consume)
    paired = paired_tick(state.paired, telemetry.probes, estimate.heard, setup.paired)
    after = next_window(after, estimate.closed)
    if paired is not after.paired:
        after = altered(after, paired=paired)
    return Perception(
        before=state,
        after=after,
        telemetry=telemetry,
        estimate=estimate,
        verdicts=verdicts,
        judgement=judgement,
        observation=observe(after, judgement, telemetry, setup),
    )


def resolve(
    known: Perception, proposal: Proposal, policy_state: PolicyState, setup: ControllerSetup
) -> tuple[ControllerState, Decision]:
    """Supervise and shield ``proposal`` and make it the plan."""
    state, judgement, verdicts = known.before, known.judgement, known.verdicts
    supervised = supervise(proposal, state, known.after, known.estimate, known.observation, setup)
    driving = supervised.driving
    shielded = _shielded(supervised, known.after, judgement, known.telemetry, setup)
    table = shielded.table
    followed = _follow(driving, state, known.after, shielded, setup)
    after = altered(
        known.after, policy=policy_state, baseline=supervised.baseline, ejected=driving.ejected,
        supervisor=counted(supervised, table, judgement, known.observation, setup), **followed.changes,
    )  # fmt: skip
    plan = RoutingPlan(
        table=table,
        in_rotation=followed.in_rotation,
        version=after.version,
        forbidden=forbidden_cells(judgement, known.observation.ready, setup),
        capacity_rows=followed.capacity_rows,
    )
    return after, Decision(
        plan=plan,
        moved=followed.moved,
        proposed=proposal.table,
        shield_delta=table - proposal.table,
        shielded=shielded,
        held=supervised.held,
        degraded=supervised.degraded,
        capacity_move=followed.capacity_move,
        quarantined=after.quarantined,
        quarantine_reason=after.quarantine_reason,
        replica_alarm=verdicts.alarm,
        judged=judgement.judged,
        replica_judged=verdicts.judged,
        judgement=judgement,
        observation=known.observation,
        driven=supervised.table,
        demoted=supervised.demoted,
        demotion_reason=supervised.reason,
        baseline_proposed=supervised.baseline_proposed,
        readings=supervised.read,
        changed=known.observation.changed,
    )


def _shielded(
    supervised: Supervised, after: ControllerState, judgement: Judgement, telemetry: FleetTelemetry,
    setup: ControllerSetup,
) -> Shielded:  # fmt: skip
    if not setup.options.shield:
        return unshielded(supervised.table)
    kernels, _, _ = setup.layout.shape
    limits, serving = setup.options.limits, rotation(after, supervised.driving.ejected, telemetry)
    view = ShieldView(
        last=after.table,
        hard_violated=judgement.hard_violated,
        certified=judgement.certified,
        ready=kernel_count(serving, setup.layout.replica_kernel, kernels),
        offered_rps=after.offered_rps,
        may_move=may_move(after.now_s, after.row_began_s, setup.fleet.tick_s, limits),
    )
    return shield(supervised.table, view, setup.fleet, limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Followed:
    """What a new table changes. changes: of the state; moved, capacity_move: bool [B]; in_rotation: bool
    [B, R]; capacity_rows: bool [B, S]. ``Decision`` and ``RoutingPlan`` say what they are.
    """

    changes: dict[str, NDArray[np.generic]]
    moved: NDArray[np.bool_]
    in_rotation: NDArray[np.bool_]
    capacity_move: NDArray[np.bool_]
    capacity_rows: NDArray[np.bool_]


def _follow(
    driving: Proposal, before: ControllerState, after: ControllerState, shielded: Shielded,
    setup: ControllerSetup,
) -> _Followed:  # fmt: skip
    """Put the table into the state; the version counts plans that differ from the one before.

    For capacity moves what the policy says moves for it, and what the shield moves for it of a row that the
    policy leaves as it is; but no row that was forced. A slowed move for another reason is owed until it is
    done: its later ticks are not for capacity.
    """
    plain, shape = np.ascontiguousarray, shielded.table.shape[:2]
    moved, for_capacity = np.empty((2, shape[0]), dtype=np.bool_)
    rows, owed = np.empty((2, *shape), dtype=np.bool_)
    row_moved_s, row_began_s = after.row_moved_s.copy(), before.row_began_s.copy()
    rest_s = setup.options.limits.min_dwell_s - 1e-6 * setup.fleet.tick_s
    follow_rows(
        rows, for_capacity, moved, owed, row_moved_s, row_began_s, plain(shielded.table), plain(before.table),
        plain(driving.table, dtype=np.float64), driving.for_capacity(), plain(shielded.reason),
        plain(shielded.voluntary), before.owed, after.now_s, rest_s, _FORCED, _SLOWED,
    )  # fmt: skip
    in_rotation = np.empty(after.quarantined.shape, dtype=np.bool_)
    turn(
        in_rotation, moved, after.quarantined, plain(driving.ejected), before.quarantined,
        plain(before.ejected),
    )  # fmt: skip
    changes = {
        "table": shielded.table, "row_moved_s": row_moved_s, "row_began_s": row_began_s,
        "version": after.version + moved, "owed": owed,
    }  # fmt: skip
    return _Followed(
        changes=changes, moved=moved, in_rotation=in_rotation, capacity_move=for_capacity, capacity_rows=rows
    )


def forbidden_cells(
    judgement: Judgement, ready: NDArray[np.int64], setup: ControllerSetup
) -> NDArray[np.bool_]:
    """bool [B, S, K]: a hard clause is known to be violated, and the contract does not serve there."""
    hard = judgement.hard_violated.transpose(0, 2, 1)
    if setup.contract.shed_when_uncertified or not bool(hard.any()):
        return hard
    sound = judgement.certified & ~judgement.hard_violated & (ready > 0)[:, :, None]
    chosen = np.zeros_like(hard)
    chosen[:, :, setup.layout.known_good] = ~sound.any(axis=1)
    return np.asarray(hard & ~chosen)


class Controller:
    """Holds the state between turns and talks to the ports; for worlds that want one call per tick."""

    def __init__(
        self, setup: ControllerSetup, *, batch: int = 1, state: ControllerState | None = None,
        clock: Clock | None = None,
    ) -> None:  # fmt: skip
        self.setup, self._clock = setup, clock
        self.state = initial_state(setup, batch) if state is None else state

    def turn(self, source: TelemetrySource, actuator: RouteActuator) -> tuple[Decision, bool]:
        """Read, tick, apply. The flag is the actuator's acknowledgement.

        A failed ``apply`` leaves the previous plan in force: the remembered table stays the old one, so
        the next turn proposes the move again.
        """
        before, telemetry = self.state, source.read()
        after, decision = self._timed(before, telemetry)
        acknowledged = actuator.apply(decision.plan)
        if not acknowledged:
            after = replace(
                after,
                table=before.table,
                row_moved_s=before.row_moved_s,
                row_began_s=before.row_began_s,
            )
        self.state = after
        return decision, acknowledged

    def _timed(self, before: ControllerState, telemetry: FleetTelemetry) -> tuple[ControllerState, Decision]:
        """One tick; how long it took is told to the supervisor, which has no clock."""
        if self._clock is None or self.setup.meta is None:
            return tick(before, telemetry, self.setup)
        began_ms = self._clock.now_ms()
        after, decision = tick(before, telemetry, self.setup)
        spent_ms = self._clock.now_ms() - began_ms
        return replace(after, supervisor=note_decision(after.supervisor, spent_ms)), decision
