"""One control tick: telemetry in, decision out; the only module in which all parts of the controller meet.

The steps run in this order, each once: perceive, detect, judge, encode, the policy, supervise, shield.
``tick`` is pure and batched: it decides for B fleets at once, and the result of a fleet does not depend on B.
``Controller`` wraps it for worlds that provide ports.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from contracts.telemetry import FleetTelemetry
from controller.decision import Decision, Perception, unreadable_answers
from controller.detect.tick import Comparisons, Memories, detect
from controller.encoding.observe import observe
from controller.initial import initial_state
from controller.judge.judge import judge
from controller.options import ControllerSetup
from controller.perceive.estimate import accumulate
from controller.perceive.evidence import gather
from controller.plan import Planned, make_plan, without_plan
from controller.ports import Clock, PolicyState, Proposal, RouteActuator, TelemetrySource
from controller.shield.apply_plan import count_ready
from controller.shield.gate import Shielded, ShieldView, may_move, shield, unshielded
from controller.shield.load import LoadLaw, LoadSeen, let_in, load_law
from controller.state import ControllerState, altered, next_window, planned
from controller.supervise.gate import Supervised, counted, supervise
from controller.supervise.harm import count_harm, tolerated_late
from controller.supervise.meta import note_decision
from controller.supervise.own_moves import OwnMoves, unwatched, watch_own_moves


def tick(
    state: ControllerState, telemetry: FleetTelemetry, setup: ControllerSetup, *, consume: bool = False
) -> tuple[ControllerState, Decision]:
    """The new state and the decision after ``telemetry``: estimate, judge, propose, supervise, shield, plan.

    Pure by default. With ``consume`` evidence is added to the arrays of ``state`` in place, with equal
    results: ``state`` and the sums in the previous decision must not be used afterwards.
    """
    known = perceive(state, telemetry, setup, consume=consume)
    proposal, policy_state = setup.policy.propose(known.observation, known.after.policy)
    return resolve(known, proposal, policy_state, setup)


def perceive(
    state: ControllerState, telemetry: FleetTelemetry, setup: ControllerSetup, *, consume: bool = False
) -> Perception:
    """The first half of a tick, up to the policy's proposal. consume: as for ``tick``; resolve it once."""
    estimate = accumulate(state, telemetry, setup, consume=consume)
    evidence = gather(state, estimate, telemetry, setup)
    memories = Memories(state.replica_detector, state.kernel_detector, state.drift, state.bounds)
    plans = Comparisons(drift=setup.drift, bounds=setup.bounds)
    verdicts = detect(evidence, memories, setup.detector, setup.contract, plans, consume=consume)
    after, judgement = judge(estimate, telemetry, verdicts, setup, consume=consume)
    after = next_window(after, estimate.closed)
    if verdicts.drift is not after.drift or verdicts.bounds is not after.bounds:
        after = altered(after, drift=verdicts.drift, bounds=verdicts.bounds)
    return Perception(
        before=state,
        after=after,
        telemetry=telemetry,
        estimate=estimate,
        verdicts=verdicts.replicas,
        judgement=judgement,
        observation=observe(after, judgement, telemetry, setup),
    )


def resolve(
    known: Perception, proposal: Proposal, policy_state: PolicyState, setup: ControllerSetup
) -> tuple[ControllerState, Decision]:
    """The second half of a tick: supervise and shield ``proposal``, undo harmful moves, make the plan."""
    chosen = supervise(proposal, known.before, known.after, known.estimate, known.observation, setup)
    watched = _watched(chosen, known, setup)
    supervised = watched.supervised
    ready = _ready(known, supervised.driving.ejected, setup)
    load, most_rps = let_in(known.after.load, _load_seen(known, watched, ready, setup), _load_law(setup))
    shielded = _shielded(supervised, known, setup, ready, most_rps)
    planned = make_plan(supervised.driving, known, shielded, setup)
    after = altered(
        known.after,
        policy=policy_state,
        baseline=supervised.baseline,
        load=load,
        supervisor=_counted(watched, shielded, known, setup),
        own_moves={**watched.memory, "capacity_rows": planned.plan.capacity_rows},
        **planned.changes,
    )
    return after, _decision(proposal, known, watched, shielded, planned)


def _counted(watched: OwnMoves, shielded: Shielded, known: Perception, setup: ControllerSetup) -> PolicyState:
    """The supervisor's memory with the table now in force and the outcome of the previous one."""
    memory = counted(watched.supervised, shielded, known.judgement, known.observation, setup)
    return count_harm(memory, watched.block, known.after, known.observation, setup)


def _watched(chosen: Supervised, known: Perception, setup: ControllerSetup) -> OwnMoves:
    """The driving proposal without moves that made things worse; without a shield it is left as it is."""
    if not setup.options.shield:
        return unwatched(chosen, known.before)
    estimate, telemetry = known.estimate, known.telemetry
    return watch_own_moves(
        chosen, known.before, estimate, telemetry, known.judgement, known.observation, setup
    )


def _load_law(setup: ControllerSetup) -> LoadLaw:
    """The settings of ``let_in``."""
    interval_s = setup.fleet.rates.scrape_interval_s
    return load_law(tolerated_late(setup.contract), setup.options.limits.max_load_ratio, interval_s)


def _load_seen(
    known: Perception, watched: OwnMoves, ready: NDArray[np.int64], setup: ControllerSetup
) -> LoadSeen:
    """Observations of each kernel at its load. ready: int64 [B, K], replicas that will serve."""
    after, block, plain = known.after, watched.block, np.ascontiguousarray
    reported = after.now_s[:, None] - after.scraped_at_s <= setup.contract.stale_after_s
    return LoadSeen(
        now_s=after.now_s,
        passed_s=known.estimate.since_s,
        last=plain(after.table),
        offered_rps=plain(planned(after, "offered_rps")),
        ready=ready,
        replica_rps=plain(planned(after, "replica_rps")),
        too_many=plain(after.too_many),
        surely_too_many=plain(after.surely_too_many),
        filled_ratio=plain(after.filled_ratio),
        closed=block.closed,
        ended=plain(block.ended),
        bad=plain(block.bad),
        fresh=known.estimate.fresh,
        telling=plain(known.observation.in_rotation & reported),
        owner=setup.layout.replica_kernel,
    )


def _shielded(
    supervised: Supervised,
    known: Perception,
    setup: ControllerSetup,
    ready: NDArray[np.int64],
    most_rps: NDArray[np.float64],
) -> Shielded:
    """The allowed table closest to the driving one."""
    if not setup.options.shield:
        return unshielded(supervised.table)
    after, judgement, limits = known.after, known.judgement, setup.options.limits
    view = ShieldView(
        last=after.table,
        hard_violated=judgement.hard_violated,
        certified=judgement.certified,
        ready=ready,
        offered_rps=planned(after, "offered_rps"),
        replica_rps=planned(after, "replica_rps"),
        most_rps=most_rps,
        loss=judgement.loss,
        may_move=may_move(after.now_s, after.row_move_began_at_s, setup.fleet.tick_s, limits),
    )
    return shield(supervised.table, view, setup.fleet, limits)


def _ready(known: Perception, ejected: NDArray[np.bool_], setup: ControllerSetup) -> NDArray[np.int64]:
    """int64 [B, K]: number of replicas that will serve: ready, neither quarantined nor ``ejected``."""
    plain, count = np.ascontiguousarray, np.zeros(known.observation.ready.shape, dtype=np.int64)
    state, away = plain(known.telemetry.replica_state), (known.after.quarantined, plain(ejected))
    count_ready(count, state, *away, setup.layout.replica_kernel)
    return count


def _decision(
    proposal: Proposal, known: Perception, watched: OwnMoves, shielded: Shielded, planned: Planned
) -> Decision:
    """The record of the decision with the evidence that it rests on."""
    supervised = watched.supervised
    return Decision(
        plan=planned.plan,
        moved=planned.moved,
        capacity_move=planned.capacity_move,
        proposed=proposal.table,
        driven=supervised.table,
        shield_delta=shielded.table - proposal.table,
        shielded=shielded,
        held=supervised.held,
        degraded=supervised.degraded,
        quarantined=known.after.quarantined,
        quarantine_reason=known.after.quarantine_reason,
        replica_alarm=known.verdicts.alarm,
        judged=known.judgement.judged,
        replica_judged=known.verdicts.judged,
        judgement=known.judgement,
        observation=known.observation,
        drifted=known.observation.drifted,
        unreadable=unreadable_answers(known.telemetry),
        demoted=supervised.demoted,
        demotion_reason=supervised.reason,
        baseline_proposed=supervised.baseline_proposed,
        readings=supervised.read,
        own_moves=watched.action,
    )


class Controller:
    """A controller with its state, for worlds that make one call per tick through ports.

    setup: fleet, policy and options. batch: number of fleets. state: to go on from (None: the initial one).
    clock: measures how long a decision takes, for the meta-contract (None: not measured).
    """

    def __init__(
        self,
        setup: ControllerSetup,
        *,
        batch: int = 1,
        state: ControllerState | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.setup, self._clock = setup, clock
        self.state = initial_state(setup, batch) if state is None else state

    def turn(self, source: TelemetrySource, actuator: RouteActuator) -> tuple[Decision, bool]:
        """Read telemetry, decide, apply the plan; returns the decision and whether it was acknowledged.

        A failed ``apply`` leaves the previous plan in force: the plan's changes of the state are taken back,
        so the next turn proposes the move again.
        """
        before, telemetry = self.state, source.read()
        after, decision = self._timed(before, telemetry)
        acknowledged = actuator.apply(decision.plan)
        if not acknowledged:
            after = without_plan(before, after)
        self.state = after
        return decision, acknowledged

    def _timed(self, before: ControllerState, telemetry: FleetTelemetry) -> tuple[ControllerState, Decision]:
        """One tick; its duration is noted for the supervisor, which has no clock."""
        if self._clock is None or self.setup.meta is None:
            return tick(before, telemetry, self.setup)
        began_ms = self._clock.now_ms()
        after, decision = tick(before, telemetry, self.setup)
        spent_ms = self._clock.now_ms() - began_ms
        return replace(after, supervisor=note_decision(after.supervisor, spent_ms)), decision
