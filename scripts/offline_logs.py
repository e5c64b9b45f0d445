"""Logs of simulated incidents as transitions: what a controller saw, asked for and got, tick by tick.

Nothing of the simulator's truth is written: reward and cost are what telemetry says of them, exactly as a
live controller would log them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from contracts.transitions import TransitionHeader, Transitions
from controller.features import ENCODING_VERSION, Encoder
from controller.loop import Decision
from controller.observed import observed_cost, observed_reward
from controller.setup import ControllerSetup
from controller.state import ControllerState
from policies.baselines import make_arm
from policies.exploring import ACTION, LOG_DENSITY, ExploringPolicy
from simulator.drive import ControllerDriver
from simulator.env_core import KERNELS_MAX
from simulator.fleet import run_episodes
from simulator.world import CompiledScenario

Floats = NDArray[np.float64]


@dataclass(slots=True, kw_only=True)
class TransitionRecorder:
    """Listens to the ticks of one batch of fleets; ``logs`` hands the episodes over."""

    setup: ControllerSetup
    encoder: Encoder
    _last: Decision | None = None
    _observations: list[NDArray[np.float32]] = field(default_factory=list)
    _actions: list[NDArray[np.float32]] = field(default_factory=list)
    _densities: list[Floats] = field(default_factory=list)
    _rewards: list[Floats] = field(default_factory=list)
    _costs: list[Floats] = field(default_factory=list)

    def take(self, before: ControllerState, after: ControllerState, decision: Decision) -> None:  # noqa: ARG002 - the driver's protocol
        """One tick: what the last action was worth, and what is asked for now."""
        self._observations.append(self.encoder.encode(decision.observation))
        if self._last is not None:
            self._rewards.append(observed_reward(self._last, decision, self.setup))
            self._costs.append(observed_cost(self._last, decision, self.setup))
        action, density = self._asked(after, decision)
        self._actions.append(action)
        self._densities.append(density)
        self._last = decision

    def _asked(self, after: ControllerState, decision: Decision) -> tuple[NDArray[np.float32], Floats]:
        if ACTION in after.policy:
            return after.policy[ACTION].astype(np.float32), after.policy[LOG_DENSITY].astype(np.float64)
        action = self.encoder.action(decision.proposed, self.setup.fleet.home)
        return action, np.full(len(action), np.nan)

    def logs(self, episode: str, seeds: Sequence[int]) -> list[Transitions]:
        """One log per fleet; the last tick's action has no outcome and is left out."""
        return [
            Transitions(
                header=self._header(episode, seed),
                observation=np.stack([row[b] for row in self._observations]),
                action=np.stack([row[b] for row in self._actions[:-1]]),
                reward=np.array([row[b] for row in self._rewards]),
                cost=np.array([row[b] for row in self._costs]),
                log_density=np.array([row[b] for row in self._densities[:-1]]),
            )
            for b, seed in enumerate(seeds)
        ]

    def _header(self, episode: str, seed: int) -> TransitionHeader:
        return TransitionHeader(
            world="simulation",
            episode=episode,
            policy_id=self.setup.policy.policy_id,
            seed=seed,
            reward_source="telemetry",
            encoding_version=ENCODING_VERSION,
            contract_sha256=self.setup.contract.sha256,
            tick_s=self.setup.fleet.tick_s,
        )


def record_incidents(
    scenario: CompiledScenario, spec: str, seeds: Sequence[int], std: float, noise_seed: int = 0
) -> list[Transitions]:
    """Logs of ``scenario`` under the arm ``spec``, explored with noise ``std`` (0: as it is)."""
    setup = make_arm(spec, scenario.setup)
    encoder = Encoder(kernels_max=KERNELS_MAX, slices=len(scenario.contract.slices))
    if std > 0.0:
        exploring = ExploringPolicy(base=setup.policy, encoder=encoder, std=std, seed=noise_seed)
        setup = replace(setup, policy=exploring)
    recorder = TransitionRecorder(setup=setup, encoder=encoder)
    run_episodes(scenario, ControllerDriver(setup, log=recorder.take), seeds, batch=max(1, len(seeds)))
    return recorder.logs(scenario.name, seeds)
