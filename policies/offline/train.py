"""Trains a policy from logs alone, conservatively: implicit Q-learning on parts of Stable-Baselines3.

Kostrikov, Nair, Levine: Offline Reinforcement Learning with Implicit Q-Learning (2021). Choices that the
logs do not hold are never evaluated: V is the upper expectile of Q over logged choices, Q is fitted to
r + gamma V, and the policy imitates logged choices weighted by exp(beta (Q - V)), so it stays where there
are data. The libraries that offer this pin other versions of Gymnasium, so the update is implemented
here.

The learned reward is ``reward - cost_weight * max(0, cost)``: a fixed price per request beyond a soft
clause's budget, because in offline training no new costs arrive to steer a multiplier.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import create_mlp
from stable_baselines3.common.utils import polyak_update
from torch import nn

from contracts.rng import stream
from policies.offline.recipes import ConservativeRecipe
from policies.offline.transitions import Transitions

#: Imitation weights are capped, as in the paper.
_MOST_WEIGHT = 100.0
#: Number of steps between two reports of the losses.
_REPORT_EVERY = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """seen, after: float32 [N, O]; choice: int64 [N, S]; reward: float32 [N]."""

    seen: torch.Tensor
    choice: torch.Tensor
    reward: torch.Tensor
    after: torch.Tensor

    def rows(self, chosen: NDArray[np.int64]) -> Batch:
        """A subset of the transitions."""
        index = torch.from_numpy(chosen)
        return Batch(
            seen=self.seen[index],
            choice=self.choice[index],
            reward=self.reward[index],
            after=self.after[index],
        )


def stack(logs: Sequence[Transitions], cost_weight: float) -> Batch:
    """All transitions of ``logs`` with the priced reward."""
    reward = np.concatenate([log.reward - cost_weight * np.maximum(log.cost, 0.0) for log in logs])
    return Batch(
        seen=torch.from_numpy(np.concatenate([log.observation[:-1] for log in logs])),
        choice=torch.from_numpy(np.concatenate([log.choice for log in logs])),
        reward=torch.from_numpy(reward.astype(np.float32)),
        after=torch.from_numpy(np.concatenate([log.observation[1:] for log in logs])),
    )


def q_inputs(seen: torch.Tensor, choice: torch.Tensor, choices: int) -> torch.Tensor:
    """Input of a Q network, float32 [N, O + S choices]: the observation and the choices as one-hot rows."""
    marked = nn.functional.one_hot(choice, choices).flatten(1)
    return torch.cat([seen, marked.to(seen.dtype)], dim=1)


class TwinQ(nn.Module):
    """Two estimates [N] of the value of choices; the smaller one is used."""

    def __init__(self, width: int, hidden: Sequence[int]) -> None:
        super().__init__()
        self.first = nn.Sequential(*create_mlp(width, 1, list(hidden)))
        self.second = nn.Sequential(*create_mlp(width, 1, list(hidden)))

    def both(self, pairs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Both estimates."""
        return self.first(pairs).squeeze(1), self.second(pairs).squeeze(1)

    def forward(self, pairs: torch.Tensor) -> torch.Tensor:
        """The smaller estimate."""
        return torch.minimum(*self.both(pairs))


class ConservativeTrainer:
    """Trains ``policy`` in place on ``data``; ``run`` may be called again to continue.

    choices: number of values that a choice may take.
    """

    def __init__(
        self, policy: ActorCriticPolicy, data: Batch, choices: int, recipe: ConservativeRecipe
    ) -> None:
        torch.manual_seed(recipe.seed)
        self._policy, self._data, self._recipe, self._choices = policy, _scaled(data), recipe, choices
        seen, slices = data.seen.shape[1], data.choice.shape[1]
        self._q = TwinQ(seen + slices * choices, recipe.hidden)
        self._slow_q = TwinQ(seen + slices * choices, recipe.hidden)
        self._slow_q.load_state_dict(self._q.state_dict())
        self._value = nn.Sequential(*create_mlp(seen, 1, list(recipe.hidden)))
        self._optimisers = {
            name: torch.optim.Adam(module.parameters(), lr=recipe.learning_rate)
            for name, module in (("q", self._q), ("v", self._value), ("policy", policy))
        }
        self._rng = stream(recipe.seed, "offline", "batches")

    def run(self, steps: int, progress: Callable[[int], None] | None = None) -> list[dict[str, float]]:
        """Take ``steps`` gradient steps; losses of every 50th."""
        history = []
        for step in range(steps):
            chosen = self._rng.integers(0, len(self._data.reward), self._recipe.batch_size)
            losses = self._step(self._data.rows(chosen))
            if step % _REPORT_EVERY == 0:
                history.append({"step": float(step), **{name: loss.item() for name, loss in losses.items()}})
            if progress is not None:
                progress(step + 1)
        return history

    def _step(self, batch: Batch) -> dict[str, torch.Tensor]:
        recipe = self._recipe
        pairs = q_inputs(batch.seen, batch.choice, self._choices)
        with torch.no_grad():
            believed = self._slow_q(pairs)
        value = self._value(batch.seen).squeeze(1)
        v_loss = expectile_loss(believed - value, recipe.expectile)
        with torch.no_grad():
            target = batch.reward + recipe.gamma * self._value(batch.after).squeeze(1)
            weight = torch.exp(recipe.beta * (believed - value)).clamp(max=_MOST_WEIGHT)
        q_loss = sum(((q - target) ** 2).mean() for q in self._q.both(pairs))
        _, log_probability, _ = self._policy.evaluate_actions(batch.seen, batch.choice)
        policy_loss = -(weight * log_probability).mean() / batch.choice.shape[1]
        for name, loss in (("v", v_loss), ("q", q_loss), ("policy", policy_loss)):
            self._optimisers[name].zero_grad()
            loss.backward()
            self._optimisers[name].step()
        polyak_update(self._q.parameters(), self._slow_q.parameters(), recipe.target_rate)
        losses = {"v_loss": v_loss, "q_loss": q_loss, "policy_loss": policy_loss, "weight": weight.mean()}
        return {name: loss.detach() for name, loss in losses.items()}


def expectile_loss(distance: torch.Tensor, expectile: float) -> torch.Tensor:
    """Mean of |expectile - [d < 0]| d^2; minimal if the value is that expectile."""
    weight = torch.where(distance < 0.0, 1.0 - expectile, expectile)
    return (weight * distance**2).mean()


def _scaled(data: Batch) -> Batch:
    """Rewards centred and scaled to unit spread, so that one temperature fits every fleet."""
    spread = data.reward.std().clamp(min=1e-6)
    return replace(data, reward=(data.reward - data.reward.mean()) / spread)
