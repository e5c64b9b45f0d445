"""Estimates the reward of a policy from logs that another policy wrote.

Two estimators, each with a measure of its reliability:

* *fitted Q* (Le, Voloshin, Yue 2019): an ensemble of networks fitted to r + gamma Q(s', pi(s')). Its spread
  measures how far the networks disagree, not how far all of them are wrong: where the logs hold no such
  choices the value is extrapolated; ``support`` measures how often.
* *weighted per-decision importance sampling* (Precup 2000): needs propensities. ``effective_episodes`` says
  how many episodes still count after weighting; below a handful the estimate rests on one of them.

If the logged policy was deterministic there are no propensities, and no estimator identifies the value of
another policy from the log alone: ``identified`` is False, and a simulator or a drill is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.torch_layers import create_mlp
from stable_baselines3.common.utils import polyak_update
from torch import nn

from contracts.rng import stream
from policies.offline.recipes import FittedRecipe
from policies.offline.train import q_inputs
from policies.offline.transitions import Transitions

#: Deterministic choices int64 [N, S] of observations float32 [N, O].
Act = Callable[[NDArray[np.float32]], NDArray[np.int64]]
Floats = NDArray[np.float64]
_TARGET_RATE = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedValue:
    """Mean reward and cost per tick, discounted: mean and spread over the ensemble.

    support: share of the policy's choices (over slices and ticks) that are the logged ones.
    identified: every logged choice has a propensity.
    """

    reward: float
    reward_spread: float
    cost: float
    cost_spread: float
    support: float
    identified: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedValue:
    """Mean discounted reward per tick by importance sampling; effective_episodes: (sum w)^2 / sum w^2."""

    reward: float
    effective_episodes: float


def fitted_value(act: Act, logs: Sequence[Transitions], choices: int, recipe: FittedRecipe) -> FittedValue:
    """Value of the deterministic policy ``act`` from the first observation of every log."""
    first = np.stack([log.observation[0] for log in logs])
    members = [_member(_Pairing(act, choices), logs, recipe, number) for number in range(recipe.members)]
    with torch.no_grad():
        start = _Pairing(act, choices).would(first)
        values = np.stack([member(start).mean(dim=0).numpy() for member in members]) * (1.0 - recipe.gamma)
    spread = values.std(axis=0, ddof=1) if len(members) > 1 else np.full(2, np.nan)
    return FittedValue(
        reward=float(values[:, 0].mean()),
        reward_spread=float(spread[0]),
        cost=float(values[:, 1].mean()),
        cost_spread=float(spread[1]),
        support=support(act, logs),
        identified=all(log.has_propensity for log in logs),
    )


def _member(pairing: _Pairing, logs: Sequence[Transitions], recipe: FittedRecipe, number: int) -> nn.Module:
    """One network, pairs -> [N, 2] (reward, cost), on its own bootstrap of the episodes."""
    rng = stream(recipe.seed, "fitted", number)
    torch.manual_seed(int(rng.integers(2**31)))
    drawn = [logs[index] for index in rng.integers(0, len(logs), len(logs))]
    here, after, earned = pairing.of(drawn)
    network = nn.Sequential(*create_mlp(here.shape[1], 2, list(recipe.hidden)))
    slow = nn.Sequential(*create_mlp(here.shape[1], 2, list(recipe.hidden)))
    slow.load_state_dict(network.state_dict())
    optimiser = torch.optim.Adam(network.parameters(), lr=recipe.learning_rate)
    # Networks see values of unit size: targets are centred and scaled, and values scaled back afterwards.
    centre, scale = earned.mean(dim=0), earned.std(dim=0).clamp(min=1e-6)
    for _ in range(recipe.steps):
        chosen = torch.from_numpy(rng.integers(0, len(here), recipe.batch_size))
        with torch.no_grad():
            target = (earned[chosen] - centre) / scale + recipe.gamma * slow(after[chosen])
        loss = ((network(here[chosen]) - target) ** 2).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        polyak_update(network.parameters(), slow.parameters(), _TARGET_RATE)
    return _Unscaled(network, scale, centre / (1.0 - recipe.gamma))


class _Unscaled(nn.Module):
    """Values in the unit of the rewards and costs."""

    def __init__(self, network: nn.Module, scale: torch.Tensor, offset: torch.Tensor) -> None:
        super().__init__()
        self._network, self._scale, self._offset = network, scale, offset

    def forward(self, pairs: torch.Tensor) -> torch.Tensor:
        return self._network(pairs) * self._scale + self._offset


@dataclass(frozen=True, slots=True)
class _Pairing:
    """Joins observations with choices: those logged, or those of the policy."""

    act: Act
    choices: int

    def of(self, logs: Sequence[Transitions]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Logged pairs, next observations with the policy's choices, and (reward, cost) [N, 2]."""
        seen = torch.from_numpy(np.concatenate([log.observation[:-1] for log in logs]))
        done = torch.from_numpy(np.concatenate([log.choice for log in logs]))
        earned = np.concatenate([np.stack([log.reward, log.cost], axis=1) for log in logs])
        after = self.would(np.concatenate([log.observation[1:] for log in logs]))
        return q_inputs(seen, done, self.choices), after, torch.from_numpy(earned.astype(np.float32))

    def would(self, seen: NDArray[np.float32]) -> torch.Tensor:
        """Observations paired with the policy's choices."""
        return q_inputs(torch.from_numpy(seen), torch.from_numpy(self.act(seen)), self.choices)


def support(act: Act, logs: Sequence[Transitions]) -> float:
    """Share of (tick, slice) pairs in which the policy's choice is the logged one."""
    same = [act(log.observation[:-1]) == log.choice for log in logs]
    return float(np.concatenate([agreed.ravel() for agreed in same]).mean())


def weighted_value(
    log_probability: Callable[[NDArray[np.float32], NDArray[np.int64]], Floats],
    logs: Sequence[Transitions],
    gamma: float,
) -> WeightedValue | None:
    """Value of the random policy with ``log_probability(seen, choice)`` [N]; None without propensities.

    Logs are cut to the shortest. Weights of every tick are normalised over the episodes.
    """
    if not logs or not all(log.has_propensity for log in logs):
        return None
    ticks = min(log.ticks for log in logs)
    ratios = np.stack(
        [
            np.cumsum((log_probability(log.observation[:-1], log.choice) - log.log_probability)[:ticks])
            for log in logs
        ]
    )
    weights = np.exp(ratios - ratios.max(axis=0))
    weights /= weights.sum(axis=0)
    rewards = np.stack([log.reward[:ticks] for log in logs])
    discount = gamma ** np.arange(ticks)
    value = float(((weights * rewards).sum(axis=0) * discount).sum() / discount.sum())
    last = weights[:, -1]
    return WeightedValue(reward=value, effective_episodes=float(1.0 / (last**2).sum()))
