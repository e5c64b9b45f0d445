"""The environment's reward, costs and distance to the table in force."""

from __future__ import annotations

import numpy as np
import pytest

from contracts.scoring.reward import RewardWeights
from contracts.telemetry import Source
from simulator.engine.counters import FIRST_REASON
from simulator.env.core import EnvCore
from tests.support.fleets.env_world import STEPS, STORMY, actions, config


def test_reward_follows_its_definition() -> None:
    """Reward and terms, recomputed from the engine's counters and the tables, within their bounds."""
    weights = RewardWeights(quality=3.0, move=0.1, capacity=0.2)
    core = EnvCore(config(space=STORMY, weights=weights), 3)
    core.reset(9)
    table = core.perception.before.table
    cap = core.setup.fleet.capacity_rps
    owner = core.setup.layout.replica_kernel
    for action in actions(core, STEPS, 9):
        step = core.step(action)
        terms, counters, last, table = step.terms, core.fleets.counters, table, step.decision.plan.table
        by_replica = counters.answered.sum(axis=2)
        answered, failed = by_replica.sum(axis=1), counters.per_slice[..., FIRST_REASON:].sum(axis=(1, 2))
        ended = answered + failed + counters.shed.sum(axis=1)
        goodput = (answered - counters.slo_missed.sum(axis=1)) / np.maximum(1, ended)
        drift = counters.excess_tv_tokens.sum(axis=1) / np.maximum(1.0, counters.answered_tokens.sum(axis=1))
        quality = np.maximum(0.0, 1.0 - 3.0 * drift)
        moved = 0.5 * np.abs(table - last).sum(axis=2).mean(axis=1)
        capacity = (by_replica * (cap.min() / cap)[owner]).sum(axis=1) / np.maximum(1, answered)
        for name, value in (
            ("goodput", goodput),
            ("quality", quality),
            ("moved", moved),
            ("capacity", capacity),
        ):
            np.testing.assert_allclose(getattr(terms, name), value, rtol=1e-12, atol=1e-12)
            assert ((value >= 0.0) & (value <= 1.0)).all()
        np.testing.assert_allclose(terms.reward, goodput * quality - 0.1 * moved - 0.2 * capacity, atol=1e-12)
        assert ((terms.reward >= -0.3) & (terms.reward <= 1.0)).all()


def test_costs_follow_their_definition() -> None:
    """Every clause's cost is its exceeding units minus its budget of them, from the truth of the tick."""
    core = EnvCore(config(space=STORMY), 3)
    core.reset(6)
    contract, owner = core.setup.contract, core.setup.layout.replica_kernel
    limit = np.where(contract.is_rate, contract.rate_limit, contract.budget)
    before = core.fleets.latency_counts.copy()
    for action in actions(core, STEPS, 6):
        step, counters, board = core.step(action), core.fleets.counters, core.fleets.board
        latency, before = core.fleets.latency_counts - before, core.fleets.latency_counts.copy()
        for c, source in enumerate(contract.source):
            mine = contract.applies[c]
            answered = counters.answered[:, :, mine]
            units = answered.sum(axis=(1, 2)).astype(float)
            exceed = np.zeros(3)
            if source == Source.PROBE:
                shares = core.bases[0].shares[owner[None, :], board.condition][:, :, mine, c]
                exceed = (answered * shares).sum(axis=(1, 2))
            elif source == Source.LATENCY and contract.edge[c] >= 0:
                above = latency[:, :, mine, contract.column[c], contract.edge[c] + 1 :]
                exceed = above.sum(axis=(1, 2, 3)).astype(float)
            elif source == Source.FAILED:
                exceed = counters.per_slice[:, mine, FIRST_REASON:].sum(axis=(1, 2)).astype(float)
                units = units + exceed
            elif source == Source.FINGERPRINT:
                exceed = (answered.sum(axis=2) * board.wrong_fingerprint).sum(axis=1).astype(float)
            elif source == Source.TRACE_FIELDS:
                exceed = (answered.sum(axis=2) * board.trace_missing).sum(axis=1)
            np.testing.assert_allclose(step.terms.costs[:, c], exceed - limit[c] * units, atol=1e-9)
            assert (exceed <= units + 1e-9).all()
        soft = ~contract.hard & (contract.source != int(Source.OFFLINE))
        assert np.array_equal(step.terms.cost, step.terms.costs[:, soft].max(axis=1))


def test_shielded_is_the_distance_between_proposal_and_table() -> None:
    """A proposal that the shield leaves unchanged costs nothing; a changed one costs the distance."""
    core = EnvCore(config(space=STORMY), 3)
    core.reset(21)
    for action in actions(core, STEPS, 21):
        step = core.step(action)
        distance = 0.5 * np.abs(step.decision.plan.table - step.decision.proposed).sum(axis=2).mean(axis=1)
        np.testing.assert_allclose(step.shielded, distance, atol=1e-12)
        assert ((step.shielded >= 0.0) & (step.shielded <= 1.0 + 1e-12)).all()


def test_bad_weights_are_refused() -> None:
    """A negative weight is reported with its name, what was expected and what was given."""
    with pytest.raises(ValueError, match="reward weight move: expected a number >= 0, got -1"):
        RewardWeights(move=-1.0)
