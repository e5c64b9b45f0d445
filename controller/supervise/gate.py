"""The supervisor: which policy drives, and which table applies while telemetry is silent.

A policy that breaks its meta-contract is demoted to the baseline, which runs beside it
(``controller.supervise.meta``). A policy that does harm is demoted to the home table, because any other
policy might do harm as well. If telemetry of the whole fleet is missing for longer than the contract's
``stale_after_s``, the last table is held: missing telemetry is no evidence against a kernel. After
``degrade_after_s`` without telemetry, every slice goes to the known-good kernel, which is certified for this
case. The times of the meta-contract apply where they are shorter. The shield runs afterwards, so a held table
still respects known facts (hard violations, replicas that discovery reports gone).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from controller.cells import some_in
from controller.judge.judge import Judgement
from controller.options import ControllerSetup
from controller.perceive.estimate import Estimate
from controller.ports import Observation, PolicyState, Proposal
from controller.shield.gate import Shielded
from controller.shield.rows import normalise
from controller.state import ControllerState
from controller.supervise.harm import home_table
from controller.supervise.meta import HARM, Executed, capped_ejections, count, judge_policy, readings


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervised:
    """Result of the supervisor for B fleets: the driving proposal, its table, and why."""

    table: NDArray[np.float64]  #: [B, S, K + 1], for the shield
    driving: Proposal  #: the proposal behind the table, of the policy or of the baseline
    held: NDArray[np.bool_]  #: [B], the last table stays
    degraded: NDArray[np.bool_]  #: [B], the known-good kernel serves
    own: NDArray[np.float64]  #: [B, S, K + 1], the policy's usable proposal
    demoted: NDArray[np.bool_]  #: [B], the baseline drives
    sent_home: NDArray[np.bool_]  #: [B], the home table stands, because the policy did harm
    reason: NDArray[np.int64]  #: [B], see ``controller.supervise.meta.initial_memory``
    memory: PolicyState  #: of the supervisor; empty without a meta-contract, like the next
    baseline: PolicyState  #: memory of the baseline
    read: NDArray[np.float64] | None = None  #: [B, M], readings under a meta-contract
    baseline_proposed: NDArray[np.float64] | None = None  #: [B, S, K + 1], under a meta-contract


def supervise(
    proposal: Proposal,
    before: ControllerState,
    after: ControllerState,
    estimate: Estimate,
    observation: Observation,
    setup: ControllerSetup,
) -> Supervised:
    """Choose the policy or the baseline, then hold or degrade by the time without telemetry."""
    last = before.table
    own = normalise(proposal.table, last)
    if setup.meta is None:
        chosen = _unsupervised(proposal, own)
    else:
        chosen = _choose(proposal, own, before, after, estimate, observation, setup)
    stale, degraded = _silence(estimate, setup)
    if not some_in(stale):
        return chosen
    baseline = np.zeros_like(own)
    baseline[:, :, setup.layout.known_good] = 1.0
    table = np.where(stale[:, None, None], last, chosen.table)
    table = np.where(degraded[:, None, None], baseline, table)
    return replace(chosen, table=table, held=stale & ~degraded, degraded=degraded)


def counted(
    supervised: Supervised,
    shielded: Shielded,
    judgement: Judgement,
    observation: Observation,
    setup: ControllerSetup,
) -> PolicyState:
    """The supervisor's memory after the shield's table was put in force."""
    if setup.meta is None:
        return supervised.memory
    done = Executed(
        table=shielded.table,
        reason=shielded.reason,
        proposed=supervised.own,
        hard_violated=judgement.hard_violated,
        certified=judgement.certified,
        ready=observation.ready,
        seen=observation,
    )
    return count(supervised.memory, done, setup)


def _silence(estimate: Estimate, setup: ControllerSetup) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """(stale, degraded), both bool [B]."""
    stale, degrade_after_s = estimate.stale, setup.options.degrade_after_s
    if setup.meta is not None:
        stale = stale | (estimate.silent_s > setup.meta.most("telemetry_age_s"))
        degrade_after_s = min(degrade_after_s, setup.meta.most("telemetry_age_before_fallback_s"))
    return stale, stale & (estimate.silent_s > degrade_after_s)


def _unsupervised(proposal: Proposal, own: NDArray[np.float64]) -> Supervised:
    """The policy drives every fleet, as without a meta-contract."""
    no_fleet = np.zeros(len(own), dtype=np.bool_)
    return Supervised(
        table=own,
        driving=proposal,
        held=no_fleet,
        degraded=no_fleet,
        own=own,
        demoted=no_fleet,
        sent_home=no_fleet,
        reason=np.full(len(own), -1, dtype=np.int64),
        memory={},
        baseline={},
    )


def _choose(
    proposal: Proposal,
    own: NDArray[np.float64],
    before: ControllerState,
    after: ControllerState,
    estimate: Estimate,
    observation: Observation,
    setup: ControllerSetup,
) -> Supervised:
    """Judge the policy by what was executed so far; the baseline proposes in any case."""
    assert setup.baseline is not None
    out = after.quarantined | before.ejected
    read = readings(before.supervisor, out, estimate.silent_s, observation.now_s, setup)
    memory = judge_policy(before.supervisor, read, observation.now_s, setup)
    shadow, baseline = setup.baseline.propose(observation, before.baseline)
    demoted = np.asarray(memory["demoted"], dtype=np.bool_)
    sent_home = demoted & (np.asarray(memory["reason"], dtype=np.int64) == HARM)
    shadow = _or_home(shadow, sent_home, setup)
    driving = _driving(proposal, shadow, demoted)
    table = np.where(demoted[:, None, None], normalise(shadow.table, before.table), own)
    ejected = capped_ejections(driving, before.ejected, after.quarantined, setup)
    no_fleet = np.zeros(len(own), dtype=np.bool_)
    return Supervised(
        table=table,
        driving=replace(driving, ejected=ejected),
        held=no_fleet,
        degraded=no_fleet,
        own=own,
        demoted=demoted,
        sent_home=sent_home,
        reason=np.asarray(memory["reason"], dtype=np.int64),
        memory=memory,
        baseline=baseline,
        read=read,
        baseline_proposed=shadow.table,
    )


def _or_home(shadow: Proposal, sent_home: NDArray[np.bool_], setup: ControllerSetup) -> Proposal:
    """The baseline's proposal; after harm every slice goes home, and the shield closes cells in alarm."""
    if not some_in(sent_home):
        return shadow
    table = np.where(sent_home[:, None, None], home_table(setup.fleet, len(sent_home)), shadow.table)
    return Proposal(table=table, ejected=shadow.ejected, capacity_rows=shadow.for_capacity())


def _driving(proposal: Proposal, shadow: Proposal, demoted: NDArray[np.bool_]) -> Proposal:
    """The policy's proposal, or where it is demoted the baseline's."""
    if not some_in(demoted):
        return proposal
    return Proposal(
        table=np.where(demoted[:, None, None], shadow.table, proposal.table),
        ejected=np.where(demoted[:, None], shadow.ejected, proposal.ejected),
        capacity_rows=np.where(demoted[:, None], shadow.for_capacity(), proposal.for_capacity()),
    )
