"""The environment on arrays: exact seeds, independence of the batch, no ground truth in observations."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from controller.detect.window import WindowDetector
from controller.initial import initial_state
from controller.loop import tick
from controller.options import ControllerOptions, ControllerSetup
from controller.ports import Observation, PolicyState, Proposal, RoutingPlan
from policies.registry import make_configuration
from simulator.drive import ControllerDriver
from simulator.env.core import ActionPolicy, EnvCore
from simulator.env.fleets import SteppedFleets
from simulator.env.reward import RewardTerms
from simulator.env.space import EpisodeSpace
from simulator.fleet import run_episodes
from tests.support.fleets.env_world import STEPS, STORMY, actions, config, scenario_path, smaller_pool_path
from tests.support.fleets.synthetic import scenario_document, write_world


def run(core: EnvCore, seed: int, steps: int = STEPS, first_fleet: int = 0) -> list[NDArray[np.floating]]:
    """All outputs of ``steps`` steps, observations first."""
    told: list[NDArray[np.floating]] = [core.reset(seed)]
    for action in actions(core, steps, seed, first_fleet):
        step = core.step(action)
        told += [
            core.observation(),
            step.shielded,
            *(getattr(step.terms, f.name) for f in fields(RewardTerms)),
        ]
    return told


def home_action(core: EnvCore) -> NDArray[np.float32]:
    """Every slice at home, float32 [B, action_size]."""
    return np.zeros((core.batch, core.encoder.action_size), dtype=np.float32)


def test_equal_seeds_give_equal_episodes() -> None:
    """Two copies with one seed agree exactly for 50 steps, in observations, rewards and costs."""
    first, second = EnvCore(config(), 3), EnvCore(config(), 3)
    for place, (one, other) in enumerate(zip(run(first, 7), run(second, 7), strict=True)):
        assert np.array_equal(one, other), f"entry {place}"
    pairs = zip(run(first, 8), run(second, 7), strict=True)
    assert any(not np.array_equal(one, other) for one, other in pairs)


def test_a_fleet_does_not_depend_on_its_batch() -> None:
    """Fleets 1 and 2 of four equal, bit for bit, the fleets of a batch that starts with number 1."""
    told = run(EnvCore(config(space=STORMY), 4), 3)
    own = run(EnvCore(config(space=STORMY), 2, first_fleet=1), 3, first_fleet=1)
    for place, (whole, part) in enumerate(zip(told, own, strict=True)):
        assert np.array_equal(whole[1:3], part), f"entry {place}"


def test_the_next_episode_follows_from_the_seed_and_its_number() -> None:
    """A second episode differs from the first and does not depend on the actions in the first."""
    quiet, busy = EnvCore(config(), 2), EnvCore(config(), 2)
    first = quiet.reset(5)
    run(busy, 5)
    again, other = quiet.reset(), busy.reset()
    assert np.array_equal(again, other)
    assert not np.array_equal(first, again)


class _Script:
    """Proposes the given tables, one per tick."""

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


def test_a_tick_equals_its_two_halves() -> None:
    """``tick`` equals ``perceive`` and ``resolve`` with the policy's own proposal between them."""
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
    """Under any faults, changes and random tables every number stays within its declared bounds."""
    core = EnvCore(config(space=STORMY), 6)
    low, high = core.encoder.bounds()
    core.reset(seed)
    for action in actions(core, STEPS, seed):
        seen = core.observation()
        assert np.isfinite(seen).all()
        assert ((seen >= low) & (seen <= high)).all()
        core.step(action)


def test_no_truth_reaches_the_observation() -> None:
    """With the quality of all answers and the truth of all clauses shuffled, only the score changes."""
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


def test_shed_slices_are_not_answered() -> None:
    """With every slice shed, requests are refused and none is routed."""
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
    """The last step reports it, and a step beyond it is refused."""
    core = EnvCore(config(horizon_s=20.0), 1)
    core.reset(0)
    over = [core.step(home_action(core)).over for _ in range(19)]
    assert over == [False] * 18 + [True]
    with pytest.raises(RuntimeError, match="reset comes first"):
        core.step(home_action(core))


def test_a_baseline_decides_as_in_its_own_episode() -> None:
    """Hysteresis, called tick by tick through the environment, puts the same tables in force."""
    core = EnvCore(config(space=STORMY), 1)
    core.reset(14)
    configuration = make_configuration("hysteresis", core.setup.fleet)
    memory, in_force = configuration.policy.initial(1), []
    for _ in range(STEPS):
        proposal, memory = configuration.policy.propose(core.perception.observation, memory)
        in_force.append(core.step_proposal(proposal).decision.plan.table[0])
    driver = ControllerDriver(replace(configuration, detector=core.setup.detector))
    # The first interval of an environment is served at home, before any policy is asked.
    record = run_episodes(core.episodes[0].scenario, driver, core.fleet_seeds)[0]
    assert np.array_equal(record.table[1 : STEPS + 1], np.array(in_force, dtype=np.float32))


def test_the_controller_inside_can_have_another_detector() -> None:
    """The detector of the configuration is made for the fleet and used in it."""
    own = WindowDetector(carry_windows=1)
    core = EnvCore(config(detector=lambda fleet: own), 1)
    core.reset(0)
    assert core.setup.detector is own


def test_pools_of_different_size_share_one_policy() -> None:
    """Base scenarios alternate; the encoding keeps its length and shows the smaller pool as padding."""
    core = EnvCore(config(scenarios=(scenario_path(), smaller_pool_path())), 2)
    kernels = []
    for seed in (1, None, None):
        rows, _ = core.encoder.split(core.reset(seed))
        kernels.append(len(core.setup.layout.kernels))
        assert np.array_equal(rows[0, :, 0], np.arange(core.encoder.kernels_max) < kernels[-1])
        core.step(home_action(core))
    assert kernels == [3, 2, 3]


def test_scenarios_of_other_contracts_are_refused(tmp_path: Path) -> None:
    """Scenarios that alternate must share a contract; the error names the one that does not."""
    other = write_world(tmp_path, scenario_document(horizon_s=60.0))
    contract = tmp_path / "contract.yaml"
    contract.write_text(contract.read_text().replace("name: ", "name: other-", 1))
    with pytest.raises(ValueError, match="scenarios: expected one contract and horizon"):
        EnvCore(config(scenarios=(scenario_path(), other)), 1)
