"""Behaviour cloning: the warm start, imitation of a policy without learning. EDGE: imports torch.

In the first round the teacher drives; in the others the pupil drives, and the teacher, run beside it with
its own memory, gives its choice (DAgger). The teacher's state machines follow verdicts and time, not the
table in force, so its choice on the pupil's path is what it would do there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from contracts.rng import stream
from policies.learned.choosing import BOUND
from policies.learned.network import Scorer, rows_in_use, take_apart
from policies.registry import make_configuration
from policies.train.recipe import BehaviourCloningRecipe, PrivilegedTeacherRecipe
from policies.train.world import Choices, Inputs, LearningWorld, Shadow, padded

#: One in this many of the ticks without a move of the teacher is kept: they are many and similar.
KEEP_EVERY = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Lessons:
    """The choices of a teacher in N situations."""

    inputs: Inputs  # [N, size]
    labels: Choices  # [N, S], the teacher's choices
    weights: NDArray[np.float32]  # [N, S]


@dataclass(frozen=True, slots=True, kw_only=True)
class BehaviourCloningResult:
    """Loss and share of agreement on moves, of the last epoch of each round."""

    losses: tuple[float, ...]
    agreement: float


def scores_of(scorer: Scorer) -> Callable[[Inputs], NDArray[np.float32]]:
    """Scores of inputs as arrays."""

    def scores(inputs: Inputs) -> NDArray[np.float32]:
        with torch.no_grad():
            given = torch.from_numpy(inputs)
            out: NDArray[np.float32] = scorer(given, rows_in_use(given, scorer.layout)).numpy()
        return out

    return scores


def clone(
    world: LearningWorld,
    scorer: Scorer,
    recipe: BehaviourCloningRecipe,
    seed: int,
    report: Callable[[int, float], None] = lambda *_: None,
) -> BehaviourCloningResult:
    """Fit ``scorer`` in place; ``report`` is called with each round's number and loss."""
    optimiser = torch.optim.Adam(scorer.parameters(), lr=recipe.learning_rate)
    lessons: list[Lessons] = []
    losses: list[float] = []
    agreement = 1.0
    for number in range(recipe.rounds):
        for episode in range(recipe.episodes):
            pupil = None if number == 0 else scores_of(scorer)
            lessons.append(_lesson(world, pupil, recipe, seed, number * recipe.episodes + episode))
        loss, agreement = fit(scorer, optimiser, _joined(lessons), recipe, seed + number)
        losses.append(loss)
        report(number, loss)
    return BehaviourCloningResult(losses=tuple(losses), agreement=agreement)


def _lesson(
    world: LearningWorld,
    pupil: Callable[[Inputs], NDArray[np.float32]] | None,
    recipe: BehaviourCloningRecipe,
    seed: int,
    episode: int,
) -> Lessons:
    """One episode of every fleet, driven by the teacher (``pupil`` None) or by the pupil."""
    inputs = world.begin_at(seed, episode)
    teacher = Shadow(make_configuration(recipe.teacher, world.fleet).policy, len(inputs))
    kernels, tick = len(world.fleet.layout.kernels), 0
    kept: list[tuple[Inputs, Choices, NDArray[np.float32]]] = []
    while not world.over:
        proposal, wanted = teacher.propose(world.seen)
        moves = wanted != world.choice
        turn = (np.arange(len(inputs)) + tick) % KEEP_EVERY == 0
        keep, tick = turn | moves.any(axis=1), tick + 1
        weight = np.where(moves, recipe.change_weight, np.where(turn, KEEP_EVERY, 1.0)[:, None])
        label = padded(wanted, kernels, world.layout)
        kept.append((inputs[keep], label[keep], weight[keep].astype(np.float32)))
        inputs = world.drive(proposal, wanted) if pupil is None else world.step(pupil(inputs).argmax(axis=2))
    parts = [np.concatenate(column) for column in zip(*kept, strict=True)]
    return Lessons(inputs=parts[0], labels=parts[1], weights=parts[2])


def _joined(lessons: list[Lessons]) -> Lessons:
    return Lessons(
        inputs=np.concatenate([lesson.inputs for lesson in lessons]),
        labels=np.concatenate([lesson.labels for lesson in lessons]),
        weights=np.concatenate([lesson.weights for lesson in lessons]),
    )


def fit(
    scorer: Scorer,
    optimiser: torch.optim.Optimizer,
    lessons: Lessons,
    recipe: BehaviourCloningRecipe | PrivilegedTeacherRecipe,
    seed: int,
) -> tuple[float, float]:
    """``(loss, agreement)``: weighted cross-entropy of the last epoch, and agreement on moves."""
    inputs, labels = torch.from_numpy(lessons.inputs), torch.from_numpy(lessons.labels)
    weights, rng = torch.from_numpy(lessons.weights), stream(seed, "clone-order")
    rows = rows_in_use(inputs, scorer.layout)
    total, agreed, moves = 0.0, 0.0, 0.0
    for _ in range(recipe.epochs):
        order = torch.from_numpy(rng.permutation(len(inputs)))
        total, agreed, moves = 0.0, 0.0, 0.0
        for part in order.split(recipe.minibatch):
            scores = scorer(inputs[part], rows)
            loss = _loss(scores, labels[part], weights[part] * _possible(scores, labels[part]))
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(scorer.parameters(), 1.0)
            optimiser.step()
            moving = labels[part] != _chosen(inputs[part], scorer)
            right = scores.argmax(dim=2) == labels[part]
            total += float(loss.detach()) * len(part) / len(inputs)
            agreed, moves = agreed + float((right & moving).sum()), moves + float(moving.sum())
    return total, agreed / max(moves, 1.0)


def _chosen(inputs: Tensor, scorer: Scorer) -> Tensor:
    """The choices so far, int64 [B, S], from the memory in the inputs."""
    parts = take_apart(inputs, scorer.layout)
    return torch.cat([parts.chosen.transpose(1, 2), parts.shed_chosen[..., None]], dim=2).argmax(dim=2)


def _possible(scores: Tensor, labels: Tensor) -> Tensor:
    """1 where the rules of the network allow it to choose the label, else 0: nothing can be learned there."""
    best = scores.detach().amax(dim=2)
    mine = scores.detach().gather(2, labels[..., None])[..., 0]
    return (mine > best - BOUND / 2).float()


def _loss(scores: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    losses = torch.nn.functional.cross_entropy(scores.flatten(0, 1), labels.flatten(), reduction="none")
    return (losses * weights.flatten()).sum() / weights.sum().clamp(min=1.0)


def learn_from_teacher(
    world: LearningWorld,
    scorer: Scorer,
    recipe: PrivilegedTeacherRecipe,
    seed: int,
    report: Callable[[int, float], None] = lambda *_: None,
) -> tuple[float, ...]:
    """Fit ``scorer`` in place to the privileged teacher on its own path; returns the losses of the rounds.

    The scorer is left with the recipe's first caution added to its stay bonus.
    """
    optimiser = torch.optim.Adam(scorer.parameters(), lr=recipe.learning_rate)
    lessons: list[Lessons] = []
    losses: list[float] = []
    caution = 0.0
    for number in range(recipe.rounds):
        lessons += [
            _privileged_teacher(world, scores_of(scorer), seed, number * recipe.episodes + episode)
            for episode in range(recipe.episodes)
        ]
        add_caution(scorer, -caution)
        losses.append(fit(scorer, optimiser, _joined(lessons), recipe, seed + number)[0])
        caution = recipe.caution[0]
        add_caution(scorer, caution)
        report(number, losses[-1])
    return tuple(losses)


def add_caution(scorer: Scorer, nats: float) -> None:
    """Add ``nats`` to the bonus of staying."""
    with torch.no_grad():
        scorer.stay.add_(nats)


def _privileged_teacher(
    world: LearningWorld, pupil: Callable[[Inputs], NDArray[np.float32]], seed: int, episode: int
) -> Lessons:
    """One episode of every fleet, driven by the pupil and labelled by the ground truth."""
    inputs, tick = world.begin_at(seed, episode), 0
    kernels = len(world.fleet.layout.kernels)
    kept: list[tuple[Inputs, Choices, NDArray[np.float32]]] = []
    while not world.over:
        label = world.privileged_teacher()
        turn = (np.arange(len(inputs)) + tick) % KEEP_EVERY == 0
        keep, tick = turn | (label != world.choice).any(axis=1), tick + 1
        # A row that would have been kept anyway counts once, any other also for the rows left out.
        weight = np.where((label != world.choice).any(axis=1), 1.0, KEEP_EVERY)
        weights = np.repeat(weight[keep, None], label.shape[1], axis=1).astype(np.float32)
        kept.append((inputs[keep], padded(label, kernels, world.layout)[keep], weights))
        inputs = world.step(pupil(inputs).argmax(axis=2))
    parts = [np.concatenate(column) for column in zip(*kept, strict=True)]
    return Lessons(inputs=parts[0], labels=parts[1], weights=parts[2])
