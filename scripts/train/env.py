"""The lock-step fleets for training: choices in, inputs with memory out, rewards from the truth.

Beside the environment's reward count the time on kernels that break the contract and false switches, as E5
defines them (``policies.train.recipe.RewardRecipe``). A composition root: ``policies`` and ``simulator`` do
not know each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from contracts.loading.uris import resolve_uri
from contracts.scoring.incident_measures import breaking_ratio
from contracts.scoring.reward import RewardWeights
from contracts.scoring.switch_law import SETTLE_S
from contracts.units import SECONDS_PER_MONTH
from controller.detect.detector import Detector
from controller.fleet import FleetSetup
from controller.ports import Observation, PolicyState, Proposal
from policies.learned.choosing import Chooser, InputLayout
from policies.registry import make_configuration
from policies.rules.threshold import failover_order
from policies.train.recipe import RecipeSpec
from policies.train.world import padded
from scripts.train.sb3_env import LockStepVecEnv
from simulator.env.core import EnvConfig, EnvCore

#: A seed's streams for training and cloning; validation has its own seed in the recipe.
_NO_INFO: dict[str, Any] = {}


def make_core(
    recipe: RecipeSpec, file: str, *, horizon_s: float | None = None, fleets: int | None = None
) -> EnvCore:
    """The recipe's environment; ``file`` is the base of its URIs."""
    episodes, reward = recipe.episodes, recipe.reward
    config = EnvConfig(
        scenarios=tuple(resolve_uri(uri, file) for uri in episodes.scenarios),
        horizon_s=episodes.horizon_s if horizon_s is None else horizon_s,
        kernels_max=episodes.kernels_max,
        weights=RewardWeights(quality=reward.quality, move=reward.move, capacity=reward.capacity),
        detector=detector_of(episodes.detector),
    )
    return EnvCore(config, episodes.fleets if fleets is None else fleets)


def detector_of(configuration: str) -> Any:
    """The factory for ``EnvConfig.detector``: a fleet's detector as ``configuration`` has it."""

    def make(fleet: FleetSetup) -> Detector:
        return make_configuration(configuration, fleet).detector

    return make


def chooser_of(core: EnvCore) -> Chooser:
    """The chooser for the running episode's pool."""
    fleet = core.setup.fleet
    return Chooser.of(core.encoder, len(fleet.layout.kernels), fleet.home, fleet.contract)


class FalseSwitches:
    """Changes of choice that leave a kernel which keeps the contract, by the truth of the last minute."""

    def __init__(self, core: EnvCore) -> None:
        layout = core.setup.layout
        kernels, slices, _ = layout.shape
        self._owner = layout.replica_kernel
        self._bad_s = np.full((core.batch, kernels, slices), -np.inf)
        self._share = np.zeros((core.batch, kernels, slices))

    def watch(self, core: EnvCore, in_rotation: NDArray[np.bool_]) -> None:
        """Record the truth of the past tick; ``in_rotation`` bool [B, R]."""
        breaking, now_s = core.fleets.breaking, core.perception.observation.now_s
        kernels = self._share.shape[1]
        self._share = breaking_ratio(breaking, in_rotation, self._owner, kernels)
        for kernel in range(kernels):
            bad = breaking[:, self._owner == kernel].any(axis=1)
            self._bad_s[:, kernel] = np.where(bad, now_s[:, None], self._bad_s[:, kernel])

    def violating(self, table: NDArray[np.float64]) -> NDArray[np.float64]:
        """Float64 [B]: mean over slices of the weight on replicas that break the contract."""
        weight = table[:, :, :-1].transpose(0, 2, 1)
        return np.asarray((weight * self._share).sum(axis=1).mean(axis=1))

    def better(self, choice: NDArray[np.int64], observation: Observation) -> NDArray[np.int64]:
        """``choice`` [B, S], moved to the best failover target if the chosen kernel breaks the contract
        now.

        The failover target complies by observation and by truth; if there is none the choice stays.
        """
        kernels = self._share.shape[1]
        share = self._share.transpose(0, 2, 1)
        rank = np.where(share > 0.0, np.inf, failover_order(observation))
        best, chosen = rank.argmin(axis=2), np.minimum(choice, kernels - 1)
        found = np.isfinite(np.take_along_axis(rank, best[:, :, None], axis=2)[:, :, 0])
        broken = np.take_along_axis(share, chosen[:, :, None], axis=2)[:, :, 0] > 0.0
        return np.where(found & broken & (choice < kernels), best, choice)

    def false(self, before: NDArray[np.int64], after: NDArray[np.int64], now_s: float) -> NDArray[np.bool_]:
        """Bool [B, S]: the choice changed, and the kernel left was healthy."""
        kernels = self._bad_s.shape[1]
        left = np.minimum(before, kernels - 1)
        recent = np.take_along_axis(self._bad_s, left[:, None], axis=1)[:, 0] > now_s - SETTLE_S
        return np.asarray((before != after) & (before < kernels) & ~recent)


class TrainingWorld:
    """Lock-step fleets with choices for actions; ``step`` takes choices int [B, S].

    After ``step``, float64 [B]: ``reward``; ``cost``, the environment's per offered request; ``false``, share
    of slices that switched falsely; ``violating``.
    """

    def __init__(
        self, recipe: RecipeSpec, file: str, *, horizon_s: float | None = None, fleets: int | None = None
    ) -> None:
        self.core, self._recipe = make_core(recipe, file, horizon_s=horizon_s, fleets=fleets), recipe.reward
        self.layout = InputLayout(encoder=self.core.encoder)

    @property
    def seen(self) -> Observation:
        """The controller's present observation."""
        return self.core.perception.observation

    @property
    def fleet(self) -> FleetSetup:
        """Fixed facts of the running episode's fleets."""
        return self.core.setup.fleet

    @property
    def choice(self) -> NDArray[np.int64]:
        """Int64 [B, S]: the present choices."""
        return np.asarray(self.memory["choice"])

    @property
    def over(self) -> bool:
        """Whether the horizon is reached."""
        return self.core.fleets.over

    def reset(self) -> NDArray[np.float32]:
        """Begin the next episodes; inputs float32 [B, size]."""
        self.core.reset()
        self.chooser = chooser_of(self.core)
        self._truth = FalseSwitches(self.core)
        self.memory: PolicyState = self.chooser.initial(self.core.batch)
        return self._look()

    def begin_at(self, seed: int, episode: int) -> NDArray[np.float32]:
        """Begin the episodes number ``episode`` of ``seed``, as if the earlier ones had run."""
        self.begin_before(seed, episode)
        return self.reset()

    def begin_before(self, seed: int, episode: int) -> None:
        """Let the next ``reset`` begin the episodes number ``episode`` of ``seed``."""
        self.core.next_episode(seed, episode)

    def step(self, choice: NDArray[np.integer]) -> NDArray[np.float32]:
        """One tick under ``choice``; returns inputs as ``reset``, after the horizon of the old episodes."""
        before = self.choice.copy()
        proposal, self.memory = self.chooser.propose(choice, self.seen, self.memory)
        return self._advance(proposal, before)

    def drive(self, proposal: Proposal, wanted: NDArray[np.int64]) -> NDArray[np.float32]:
        """One tick under another policy's ``proposal``; wanted: int64 [B, S], its choices (K: shed)."""
        before = self.choice.copy()
        choice = padded(wanted, self.chooser.kernels, self.layout)
        _, self.memory = self.chooser.propose(choice, self.seen, self.memory)
        return self._advance(proposal, before)

    def privileged_teacher(self) -> NDArray[np.int64]:
        """int64 [B, S], the choices of a teacher that knows the ground truth."""
        return self._truth.better(self.choice, self.seen)

    def worth(self) -> dict[str, NDArray[np.float64]]:
        """Reward and parts of the last tick, float64 [B]; names of ``policies.train.world.DriverScore``."""
        terms, month_ticks = self.terms, SECONDS_PER_MONTH / self.core.setup.fleet.tick_s
        failed = (terms.failed + terms.shed) / np.maximum(terms.offered, 1.0)
        return {
            "reward": self.reward / self._recipe.scale,
            "violating": self.violating,
            "false_switches": self.false * month_ticks,
            "quality": terms.quality,
            "goodput": terms.goodput,
            "failed": failed,
            "moved": terms.moved,
            "cost": self.cost,
        }

    def _advance(self, proposal: Proposal, before: NDArray[np.int64]) -> NDArray[np.float32]:
        now_s = float(self.seen.now_s[0])
        self.false = self._truth.false(before, self.choice, now_s).mean(axis=1)
        step = self.core.step_proposal(proposal)
        plan = step.decision.plan
        self._truth.watch(self.core, plan.in_rotation)
        self.terms = step.terms
        self.violating = self._truth.violating(plan.table)
        self.reward = self._recipe.of_ticks(step.terms.reward, self.violating, self.false)
        self.cost = step.terms.cost / np.maximum(step.terms.offered, 1.0)
        return self._look()

    def _look(self) -> NDArray[np.float32]:
        inputs, self.memory = self.chooser.look(self.seen, self.memory)
        return inputs


class ChoiceVecEnv(LockStepVecEnv):
    """``TrainingWorld`` for Stable-Baselines3; ``costs`` float64 [B] are those of the last step."""

    def __init__(self, world: TrainingWorld) -> None:
        self.world = world
        size, slices = world.layout.size, world.core.encoder.slices
        seen = spaces.Box(-np.inf, np.inf, (size,), dtype=np.float32)
        super().__init__(world, world.core.batch, seen, spaces.MultiDiscrete([world.layout.choices] * slices))

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Let the next reset begin the first episodes of ``seed``."""
        if seed is not None:
            self.world.begin_before(seed, 0)
        return [seed] * self.num_envs

    def reset(self) -> NDArray[np.float32]:
        """First inputs, float32 [B, size]."""
        return self.world.reset()

    def step_wait(
        self,
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        """One tick of every fleet."""
        inputs = self.world.step(self._actions)
        reward, over = self.world.reward.astype(np.float32), self.world.over
        self.costs = self.world.cost
        infos = [_NO_INFO] * self.num_envs
        if over:
            infos = [{"terminal_observation": last, "TimeLimit.truncated": True} for last in inputs]
            inputs = self.world.reset()
        return inputs, reward, np.full(self.num_envs, over), infos
