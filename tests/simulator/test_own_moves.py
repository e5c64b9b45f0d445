"""In the simulated world too, a move that a fleet cannot carry is taken back, at a cost of seconds."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from contracts.scoring.measures import measure_service
from controller.options import OwnMoveOptions
from controller.ports import Observation, PolicyState, Proposal
from policies.registry import make_configuration
from simulator.drive import ControllerDriver
from simulator.fleet import run_episodes
from simulator.world.compiled_scenario import CompiledScenario
from tests.support.fleets.simulated_fleets import Build

HORIZON_S, MOVED_S = 400.0, 130.0
#: More than the known-good kernel carries, and easy for the homes.
RATE_RPS = 140.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stubborn:
    """Sends everything to one kernel from ``MOVED_S`` on, and never changes its mind."""

    kernel: int
    policy_id: str = "stubborn"

    def initial(self, batch: int) -> PolicyState:
        """No memory."""
        return {}

    def propose(self, observation: Observation, state: PolicyState) -> tuple[Proposal, PolicyState]:
        """Home first, then the one kernel."""
        table = np.zeros(observation.table.shape)
        table[:, np.arange(len(observation.home)), observation.home] = 1.0
        moved = (observation.now_s >= MOVED_S)[:, None, None]
        there = np.zeros_like(table)
        there[:, :, self.kernel] = 1.0
        none = np.zeros(observation.in_rotation.shape, dtype=np.bool_)
        return Proposal(table=np.where(moved, there, table), ejected=none), state


def useful(world: CompiledScenario, *, error: float) -> tuple[float, float]:
    """Useful tokens per offered one, and the weight on the stubborn policy's kernel in the last minute.

    error: of the watch; with 0 nothing is ever taken back. The declared capacities are unlimited, as where no
    engine is certified.
    """
    fleet = replace(world.setup, engine=None, capacity_rps=np.full(len(world.layout.kernels), 1e4))
    setup = make_configuration("threshold", fleet)
    options = replace(setup.options, own_moves=OwnMoveOptions(error=error))
    policy = Stubborn(kernel=world.layout.known_good)
    (record,) = run_episodes(world, ControllerDriver(replace(setup, policy=policy, options=options)), [5])
    there = record.table[-60:, :, record.known_good].mean()
    return measure_service(record).useful_ratio, float(there)


def test_a_load_that_a_kernel_cannot_carry_comes_back(build: Build) -> None:
    """With the watch most of the move's cost is avoided, although the policy keeps proposing it."""
    world = build(horizon_s=HORIZON_S, rate_rps=RATE_RPS)
    watched, bare = useful(world, error=0.01), useful(world, error=0.0)
    assert bare[1] == 1.0
    assert watched[1] < 0.5
    assert watched[0] > bare[0] + 0.2
