"""``TrainingRecipe``: everything that decides what a training run learns, as one document.

A run is a recipe and a seed; the recipe's hash is in the manifest of the result. Not a cluster resource, so
not among ``contracts.documents.KINDS``; loaded and validated with the same messages.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from contracts.documents.envelope import (
    Count,
    Document,
    Name,
    NonNegative,
    Positive,
    PositiveCount,
    Ratio,
    Strict,
    Text,
    Uri,
)
from contracts.loading.loader import load_text, read_text
from contracts.scoring.reward import RewardWeights

Floats = NDArray[np.float64]

_WEIGHTS = RewardWeights()


class EpisodeRecipe(Strict):
    """The training environment: ``fleets`` episodes at once, from the training split of fault families."""

    scenarios: Annotated[tuple[Uri, ...], Field(min_length=1, max_length=16)]
    """Base scenarios that are used in turn, episode by episode; each may have its own pool."""
    horizon_s: Positive = 301.0
    fleets: PositiveCount = 64
    kernels_max: PositiveCount = 8
    detector: Text = "sequential"
    """Configuration whose detector judges, as the policy's own configuration will."""


class RewardRecipe(Strict):
    """The environment's reward, and two terms of the truth that E5 scores.

    ``reward - 1 - violating * v - false_switch * f``, where v is the mean over slices of the weight on
    kernels whose true state breaks the contract there (share of their replicas in rotation), and f the share
    of slices whose choice left a kernel that did not break it within the last minute.
    ``false_switch / violating`` is the price of a false switch, in seconds of a slice on a violating kernel.
    """

    quality: NonNegative = _WEIGHTS.quality
    move: NonNegative = _WEIGHTS.move
    capacity: NonNegative = _WEIGHTS.capacity
    violating: NonNegative = 1.0
    false_switch: NonNegative = 60.0
    scale: Positive = 0.1
    """Scale of the whole, so that values are of the order of 1."""

    def of_ticks(self, reward: Floats, violating: Floats, false: Floats) -> Floats:
        """The formula, scaled: the training reward of one tick of each fleet [B]."""
        worth = reward - 1.0 - self.violating * violating - self.false_switch * false
        return np.asarray(self.scale * worth)

    def objective(self, reward: float, violating: float, false: float) -> float:
        """The negated formula on means over ticks: the objective of choices, lower is better.

        Its terms are added in a fixed order of their own, so that stored numbers stay reproducible.
        """
        return 1.0 - reward + (self.violating * violating + self.false_switch * false)


class NetworkRecipe(Strict):
    """Size of the network and its bonus for staying with its choice before training."""

    width: PositiveCount = 32
    stay_bonus: NonNegative = 8.0


class BehaviourCloningRecipe(Strict):
    """The warm start: imitate ``teacher``, first on its own path, then on the pupil's (DAgger)."""

    teacher: Text = "sequential"
    rounds: Count = 2
    """0: no warm start. In the first round the teacher drives, in the others the pupil."""
    episodes: PositiveCount = 1
    """Episodes of every fleet per round."""
    epochs: PositiveCount = 4
    minibatch: PositiveCount = 2048
    learning_rate: Positive = 2e-3
    change_weight: Positive = 3.0
    """Weight of a tick at which the teacher's choice differs from the pupil's; that of staying is 1."""


class PrivilegedTeacherRecipe(Strict):
    """Imitation of the truth: at every tick the label is to leave a kernel that breaks the contract now.

    The pupil drives and sees telemetry alone, so what it learns is how likely its kernel breaks the contract
    given all inputs: log-odds, to which ``caution`` is added in favour of staying.
    """

    rounds: PositiveCount = 3
    episodes: PositiveCount = 1
    """Episodes of every fleet per round."""
    epochs: PositiveCount = 6
    minibatch: PositiveCount = 2048
    learning_rate: Positive = 3e-3
    caution: tuple[NonNegative, ...] = (1.0, 2.0, 3.0, 4.0)
    """In nats; the first drives during the rounds, and validation chooses."""


class PpoRecipe(Strict):
    """Settings by Stable-Baselines3's names. One rollout is one episode of every fleet."""

    algorithm: Literal["ppo", "recurrent-ppo"] = "ppo"
    episodes: Count = 20
    epochs: PositiveCount = 3
    minibatches: PositiveCount = 6
    """Parts of a rollout, each one step of the optimiser."""
    learning_rate: Positive = 5e-4
    clip_range: Positive = 0.2
    gamma: Ratio = 0.995
    gae_lambda: Ratio = 0.95
    entropy: NonNegative = 0.0
    value: NonNegative = 0.5
    target_kl: Positive | None = 0.03
    max_grad_norm: Positive = 0.5


class LagrangianRecipe(Strict):
    """Multiplier of the clause costs: of the environment's ``cost`` over the requests offered, by PID."""

    limit: float = 0.0
    proportional: NonNegative = 0.5
    integral: NonNegative = 0.05
    derivative: NonNegative = 0.1
    most: NonNegative = 2.0


class ValidationRecipe(Strict):
    """How a seed's candidates are chosen: drawn episodes of the training split with other seeds."""

    seed: Count = 10_000
    episodes: PositiveCount = 32
    horizon_s: Positive = 600.0
    every: PositiveCount = 5
    """PPO episodes between two validations; the warm start is a candidate too."""


class RecipeSpec(Strict):
    """One way to train a policy."""

    description: Text
    episodes: EpisodeRecipe
    reward: RewardRecipe = RewardRecipe()
    network: NetworkRecipe = NetworkRecipe()
    behaviour_cloning: BehaviourCloningRecipe = BehaviourCloningRecipe()
    privileged_teacher: PrivilegedTeacherRecipe | None = None
    """None: no imitation of the truth."""
    ppo: PpoRecipe = PpoRecipe()
    lagrangian: LagrangianRecipe | None = None
    """None: plain PPO."""
    validation: ValidationRecipe = ValidationRecipe()
    baselines: Annotated[tuple[Name, ...], Field(max_length=8)] = ("hysteresis",)
    """Configurations validated beside the policy, for the curves."""


class TrainingRecipe(Document):
    """See the module."""

    kind: Literal["TrainingRecipe"] = "TrainingRecipe"
    spec: RecipeSpec


def load_recipe(path: Path | str) -> TrainingRecipe:
    """The recipe at ``path``; DocumentError with file, line and dotted path for anything else."""
    document = load_text(read_text(path), str(path), kinds=(TrainingRecipe,))
    assert isinstance(document, TrainingRecipe)  # no other kind was requested
    return document


def seed_folder(out: Path, seed: int) -> Path:
    """Folder with the files of one seed of a run."""
    return out / f"seed-{seed}"
