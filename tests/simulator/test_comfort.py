"""A policy that overfills one kernel while others idle does no harm behind the shield."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from contracts.documents import Scenario
from contracts.loading.loader import load_as
from contracts.scoring.episode import EpisodeRecord
from controller.ports import Observation, PolicyState, Proposal
from policies.registry import make_configuration
from policies.rules.fixed import home_table
from simulator.drive import ControllerDriver
from simulator.fleet import run_episodes
from simulator.world.scenario import compile_scenario
from tests.simulator.test_common_failures import HARM, SEEDS, in_time, write_scenario

LOAD, KNOWN_S = 1.5, 30.0


@dataclass(frozen=True, slots=True)
class OneKernel:
    """Proposes every slice on one kernel, whatever its capacity."""

    kernel: int
    policy_id: str = "one-kernel"

    def initial(self, batch: int) -> PolicyState:
        """No memory."""
        return {}

    def propose(self, observation: Observation, state: PolicyState) -> tuple[Proposal, PolicyState]:
        """All weight on the kernel from second 30 on; before, at home, while capacity is learned."""
        table = home_table(observation)
        table[observation.now_s >= KNOWN_S] = np.eye(table.shape[2])[self.kernel]
        return Proposal(table=table, ejected=np.zeros(observation.in_rotation.shape, dtype=np.bool_)), state


def episodes(folder: Path, kernel: str) -> list[EpisodeRecord]:
    """A healthy fleet at 1.5 times the declared rate under ``OneKernel``; "": under fixed-bare."""
    file = write_scenario(folder, [], LOAD)
    world = compile_scenario(load_as(Scenario, file), str(file))
    setup = make_configuration("hysteresis" if kernel else "fixed-bare", world.setup)
    if kernel:
        setup = replace(setup, policy=OneKernel(world.setup.layout.kernels.index(kernel)))
    return run_episodes(world, ControllerDriver(setup), SEEDS)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["bf16", "w8a8", "bf16-compiled", "fp16", "fp32"])
def test_answers_are_in_time_whichever_kernel_is_preferred(tmp_path: Path, kernel: str) -> None:
    """No fewer than under fixed-bare, although the policy proposes more on the kernel than it carries."""
    filled, bare = (in_time(episodes(tmp_path, name)) for name in (kernel, ""))
    assert filled >= bare - HARM / 2.0
