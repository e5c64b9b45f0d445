"""The interface between training and a world: a protocol, and the scoring of drivers in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from controller.fleet import FleetSetup
from controller.ports import Observation, Policy, Proposal
from policies.learned.choosing import InputLayout

Inputs = NDArray[np.float32]
Choices = NDArray[np.int64]
#: Scores [B, S, choices] of inputs [B, size].
Scores = Callable[[Inputs], NDArray[np.float32]]


class LearningWorld(Protocol):
    """Fleets in lock-step; arrays are [B, ...]. Everything below ``step`` refers to the last tick."""

    @property
    def layout(self) -> InputLayout:
        """Layout of the inputs."""

    @property
    def fleet(self) -> FleetSetup:
        """The fleet of the running episode."""

    @property
    def seen(self) -> Observation:
        """The controller's present observation."""

    @property
    def choice(self) -> Choices:
        """The present choices: kernels, or number K for shed."""

    @property
    def over(self) -> bool:
        """Whether the horizon is reached."""

    def begin_at(self, seed: int, episode: int) -> Inputs:
        """Begin the episodes with this number."""

    def step(self, choice: NDArray[np.integer]) -> Inputs:
        """One tick under ``choice``."""

    def drive(self, proposal: Proposal, wanted: Choices) -> Inputs:
        """One tick under another policy's ``proposal``; ``wanted``: its choices, int64 [B, S]."""

    def privileged_teacher(self) -> Choices:
        """Choices of a teacher that knows the ground truth: away from a kernel that breaks the contract."""

    def worth(self) -> dict[str, NDArray[np.float64]]:
        """Reward and its parts, each float64 [B]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverScore:
    """Means over fleets and ticks, in the units of the reward's terms (``policies.train.recipe``).

    false_switches: per slice and month. reward: per tick, unscaled; rewards: the same episode by episode, so
    that drivers can be compared in pairs.
    """

    reward: float
    violating: float
    false_switches: float
    quality: float
    goodput: float
    failed: float
    moved: float
    cost: float
    rewards: tuple[float, ...] = ()

    def plain(self) -> dict[str, float]:
        """The means by name."""
        return {name: value for name, value in asdict(self).items() if name != "rewards"}


def score_choices(world: LearningWorld, scores: Scores, seed: int, episodes: int) -> DriverScore:
    """The greedy policy of ``scores`` on the first ``episodes`` episodes of ``seed``."""

    def begin() -> Callable[[Inputs], Inputs]:
        return lambda inputs: world.step(scores(inputs).argmax(axis=2))

    return _score(world, begin, seed, episodes)


def score_acts(
    world: LearningWorld, player: Callable[[], Callable[[Inputs], Choices]], seed: int, episodes: int
) -> DriverScore:
    """Any function from inputs to choices, made anew for every episode, on the same episodes."""

    def begin() -> Callable[[Inputs], Inputs]:
        act = player()
        return lambda inputs: world.step(act(inputs))

    return _score(world, begin, seed, episodes)


def score_policy(
    world: LearningWorld, policy_of: Callable[[FleetSetup], Policy], seed: int, episodes: int
) -> DriverScore:
    """A policy without learning that keeps ``wanted`` in its memory, on the same episodes."""

    def begin() -> Callable[[Inputs], Inputs]:
        teacher = Shadow(policy_of(world.fleet), len(world.seen.now_s))
        return lambda _: world.drive(*teacher.propose(world.seen))

    return _score(world, begin, seed, episodes)


class Shadow:
    """A policy run beside the driving one, tick by tick; its choice is the heaviest column of its row."""

    def __init__(self, policy: Policy, batch: int) -> None:
        self._policy, self._memory = policy, policy.initial(batch)

    def propose(self, observation: Observation) -> tuple[Proposal, Choices]:
        """Its proposal and its choice int64 [B, S]: kernels, or number K for shed."""
        proposal, self._memory = self._policy.propose(observation, self._memory)
        wanted = np.asarray(self._memory.get("wanted", proposal.table))
        return proposal, wanted.argmax(axis=2)


def padded(choice: Choices, kernels: int, layout: InputLayout) -> Choices:
    """``choice`` with shed (number ``kernels``) as the last of the padded columns."""
    return np.where(choice == kernels, layout.encoder.kernels_max, choice)


def _score(
    world: LearningWorld, begin: Callable[[], Callable[[Inputs], Inputs]], seed: int, episodes: int
) -> DriverScore:
    totals: dict[str, list[NDArray[np.float64]]] = {}
    for episode in range(episodes):
        inputs = world.begin_at(seed, episode)
        step, worth = begin(), []
        while not world.over:
            inputs = step(inputs)
            worth.append(world.worth())
        for name in worth[0]:
            totals.setdefault(name, []).append(np.mean([tick[name] for tick in worth], axis=0))
    fleets = {name: np.concatenate(values) for name, values in totals.items()}
    means = {name: float(values.mean()) for name, values in fleets.items()}
    return DriverScore(**means, rewards=tuple(float(value) for value in fleets["reward"]))
