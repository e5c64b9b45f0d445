"""Laws of the environment on arrays: exact seeds, independence of the batch, honest terms, no truth seen."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from contracts.compiled import Source
from controller.detectors import WindowDetector
from controller.loop import tick
from controller.ports import Observation, PolicyState, Proposal, RoutingPlan
from controller.setup import ControllerOptions, ControllerSetup
from controller.state import initial_state
from policies.baselines import make_arm
from simulator.drive import ControllerDriver
from simulator.env_core import ActionPolicy, EnvCore
from simulator.env_fleets import SteppedFleets
from simulator.env_terms import RewardWeights, Terms
from simulator.fleet import run_episodes
from simulator.randomise import EpisodeSpace
from tests.env_world import actions, config, scenario_path, smaller_pool_path
from tests.synthetic import scenario_document, write_world

STEPS = 50
STORMY = EpisodeSpace(calm_share=0.0, second_share=0.6, change_share=0.8, away_share=0.3)


def run(core: EnvCore, seed: int, steps: int = STEPS, first_fleet: int = 0) -> list[NDArray[np.floating]]:
    """Everything that ``steps`` steps tell, observations first."""
    told: list[NDArray[np.floating]] = [core.reset(seed)]
    for action in actions(core, steps, seed, first_fleet):
        step = core.step(action)
        told += [core.observation(), step.shielded, *(getattr(step.terms, f.name) for f in fields(Terms))]
    return told


def test_equal_seeds_give_equal_episodes() -> None:
    """Two copies with one seed agree exactly for 50 steps, in observations, rewards and costs."""
    first, second = EnvCore(config(), 3), EnvCore(config(), 3)
    for place, (one, other) in enumerate(zip(run(first, 7), run(second, 7), strict=True)):
        assert np.array_equal(one, other), f"entry {place}"
    assert not np.array_equal(run(first, 8)[-1], run(second, 7)[-1])


def test_a_fleet_does_not_depend_on_who_shares_the_batch() -> None:
    """Fleets 1 and 2 of four are, bit for bit, the fleets of a batch that begins with number 1."""
    told = run(EnvCore(config(space=STORMY), 4), 3)
    own = run(EnvCore(config(space=STORMY), 2, first_fleet=1), 3, first_fleet=1)
    for place, (whole, part) in enumerate(zip(told, own, strict=True)):
        assert np.array_equal(whole[1:3], part), f"entry {place}"


def test_the_next_episode_follows_from_the_seed_and_its_number() -> None:
    """A second episode differs from the first and is the same whatever was done in the first."""
    quiet, busy = EnvCore(config(), 2), EnvCore(config(), 2)
    first = quiet.reset(5)
    run(busy, 5)
    again, other = quiet.reset(), busy.reset()
    assert np.array_equal(again, other)
    assert not np.array_equal(first, again)


class _Script:
    """Proposes the tables it was given, one per tick."""

    policy_id = "environment"
    reads_running = True

    def __init__(self, tables: list[NDArray[np.float64]]) -> None:
        self._tables = iter(tables)

    def initial(self, batch: int) -> PolicyState:
        return {}

    def propose(self, seen: Observation, state: PolicyState) -> tuple[Proposal, PolicyState]:
        ejected = np.zeros(seen.in_rotation.shape, dtype=np.bool_)
        return Proposal(table=next(self._tables), ejected=ejected), state


def test_the_environment_is_the_simulated_fleet_under_its_controller() -> None:
    """The tables in force are those of ``run_episodes`` with a policy that proposes the same."""
    core = EnvCore(config(space=STORMY), 1)
    core.reset(2)
    kernels = len(core.setup.layout.kernels)
    wanted = [core.encoder.table(a, core.setup.fleet.home, kernels) for a in actions(core, STEPS)]
    in_force, rewards = [], []
    for table in wanted:
        step = core.step_table(table)
        in_force.append(step.decision.plan.table[0])
        rewards.append(step.terms.answered[0])
    scenario = core.episodes[0].scenario
    rest = [wanted[-1]] * (scenario.ticks - STEPS)
    setup = replace(core.setup, policy=_Script(wanted + rest))
    record = run_episodes(scenario, ControllerDriver(setup), [core.fleet_seeds[0]])[0]
    assert np.array_equal(record.table[1 : STEPS + 1], np.array(in_force, dtype=np.float32))
    assert np.array_equal(record.answered[1 : STEPS + 1].sum(axis=1), rewards)


def test_a_whole_tick_is_its_two_halves() -> None:
    """``tick`` decides what ``perceive`` and ``resolve`` decide with the policy's own proposal between."""
    core = EnvCore(config(), 2)
    core.reset(1)
    scenarios = [episode.scenario for episode in core.episodes]
    fleets = SteppedFleets(scenarios, core.fleet_seeds)
    state = initial_state(core.setup, 2)
    ready = np.ones((2, len(core.setup.layout.replicas)), dtype=np.bool_)
    plan = RoutingPlan(table=state.table, in_rotation=ready, version=state.version)
    for _ in range(5):
        state, decision = tick(state, fleets.advance(plan), core.setup)
        plan = decision.plan
        step = core.step_table(core.perception.observation.table)
        assert np.array_equal(step.decision.plan.table, decision.plan.table)
        assert np.array_equal(step.decision.judged, decision.judged)
    assert isinstance(core.setup, ControllerSetup)
    assert ActionPolicy().initial(2) == {}


@pytest.mark.parametrize("seed", [11, 12, 13])
def test_observations_stay_in_their_space_under_faults(seed: int) -> None:
    """Whatever faults, changes and random tables do, every number keeps its declared bounds."""
    core = EnvCore(config(space=STORMY), 6)
    low, high = core.encoder.bounds()
    core.reset(seed)
    for action in actions(core, STEPS, seed):
        seen = core.observation()
        assert np.isfinite(seen).all()
        assert ((seen >= low) & (seen <= high)).all()
        core.step(action)


def test_no_truth_reaches_the_observation() -> None:
    """With the qualities of all answers and the truth of all clauses shuffled, only the score changes."""
    honest, shuffled = EnvCore(config(space=STORMY), 3), EnvCore(config(space=STORMY), 3)
    base = shuffled.bases[0]
    rng = np.random.default_rng(0)
    engine = replace(base.compiled.engine, quality=rng.permuted(base.compiled.engine.quality, axis=2) * 0.5)
    compiled = replace(base.compiled, engine=engine, violating=~base.compiled.violating)
    shuffled.bases[0] = replace(base, compiled=compiled, shares=1.0 - base.shares)
    ends = []
    for core in (honest, shuffled):
        seen, score = [core.reset(4)], []
        for action in actions(core, STEPS, 4):
            step = core.step(action)
            seen.append(core.observation())
            score += [step.terms.reward, step.terms.cost, step.terms.exposed]
        ends.append((np.array(seen), np.array(score)))
    assert np.array_equal(ends[0][0], ends[1][0])
    assert not np.array_equal(ends[0][1], ends[1][1])


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
        answered, failed = by_replica.sum(axis=1), counters.failed_by_reason.sum(axis=(1, 2))
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
    """Every clause's cost is its exceeding units less its budget of them, from the truth of the tick."""
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
                exceed = counters.failed_by_reason[:, mine].sum(axis=(1, 2)).astype(float)
                units = units + exceed
            elif source == Source.FINGERPRINT:
                exceed = (answered.sum(axis=2) * board.wrong_fingerprint).sum(axis=1).astype(float)
            elif source == Source.TRACE_FIELDS:
                exceed = (answered.sum(axis=2) * board.trace_missing).sum(axis=1)
            np.testing.assert_allclose(step.terms.costs[:, c], exceed - limit[c] * units, atol=1e-9)
            assert (exceed <= units + 1e-9).all()
        soft = ~contract.hard & (contract.source != int(Source.OFFLINE))
        assert np.array_equal(step.terms.cost, step.terms.costs[:, soft].max(axis=1))


def test_shielded_is_the_distance_between_wish_and_table() -> None:
    """A wish that the shield leaves alone costs nothing; one it must change shows by how much."""
    core = EnvCore(config(space=STORMY), 3)
    core.reset(21)
    for action in actions(core, STEPS, 21):
        step = core.step(action)
        distance = 0.5 * np.abs(step.decision.plan.table - step.decision.proposed).sum(axis=2).mean(axis=1)
        np.testing.assert_allclose(step.shielded, distance, atol=1e-12)
        assert ((step.shielded >= 0.0) & (step.shielded <= 1.0 + 1e-12)).all()


def test_shedding_answers_nobody() -> None:
    """With every slice shed, requests are refused and none is routed any more."""
    calm, bare = EpisodeSpace(calm_share=1.0, change_share=0.0), ControllerOptions(shield=False)
    core = EnvCore(config(space=calm, options=bare), 2)
    core.reset(3)
    kernels = len(core.setup.layout.kernels)
    table = np.zeros((2, len(core.slices), kernels + 1))
    table[:, :, -1] = 1.0
    for _ in range(10):
        step = core.step_table(table)
        assert np.array_equal(step.terms.shed, step.terms.offered)
    assert (step.terms.reward <= 1.0).all()


def test_an_episode_is_over_at_its_horizon() -> None:
    """The last step says so, and a step beyond it is refused."""
    core = EnvCore(config(horizon_s=20.0), 1)
    core.reset(0)
    over = [core.step(core.home_action()).over for _ in range(19)]
    assert over == [False] * 18 + [True]
    with pytest.raises(RuntimeError, match="reset comes first"):
        core.step(core.home_action())


def test_a_baseline_decides_as_in_an_episode_of_its_own() -> None:
    """Hysteresis, asked tick by tick through the environment, puts the same tables in force."""
    core = EnvCore(config(space=STORMY), 1)
    core.reset(14)
    arm = make_arm("hysteresis", core.setup.fleet)
    memory, in_force = arm.policy.initial(1), []
    for _ in range(STEPS):
        proposal, memory = arm.policy.propose(core.perception.observation, memory)
        in_force.append(core.step_proposal(proposal).decision.plan.table[0])
    driver = ControllerDriver(replace(arm, detector=core.setup.detector))
    # The first interval of an environment is served at home, before anybody is asked.
    record = run_episodes(core.episodes[0].scenario, driver, core.fleet_seeds)[0]
    assert np.array_equal(record.table[1 : STEPS + 1], np.array(in_force, dtype=np.float32))


def test_the_controller_inside_can_have_another_detector() -> None:
    """The detector of the configuration is made for the fleet and judges in it."""
    own = WindowDetector(carry_windows=1)
    core = EnvCore(config(detector=lambda fleet: own), 1)
    core.reset(0)
    assert core.setup.detector is own


def test_pools_of_different_size_share_one_policy() -> None:
    """Base scenarios take turns; the encoding keeps its length and shows the smaller pool as padding."""
    core = EnvCore(config(scenarios=(scenario_path(), smaller_pool_path())), 2)
    kernels = []
    for seed in (1, None, None):
        rows, _ = core.encoder.split(core.reset(seed))
        kernels.append(len(core.setup.layout.kernels))
        assert np.array_equal(rows[0, :, 0], np.arange(core.encoder.kernels_max) < kernels[-1])
        core.step(core.home_action())
    assert kernels == [3, 2, 3]


def test_scenarios_of_other_contracts_are_refused(tmp_path: Path) -> None:
    """Scenarios that take turns must share a contract; the error names the one that does not."""
    other = write_world(tmp_path, scenario_document(horizon_s=60.0))
    contract = tmp_path / "contract.yaml"
    contract.write_text(contract.read_text().replace("name: ", "name: other-", 1))
    with pytest.raises(ValueError, match="scenarios: expected one contract and horizon"):
        EnvCore(config(scenarios=(scenario_path(), other)), 1)


def test_bad_weights_are_refused() -> None:
    """A negative weight names itself, what was expected and what was given."""
    with pytest.raises(ValueError, match="reward weight move: expected a number >= 0, got -1"):
        RewardWeights(move=-1.0)
