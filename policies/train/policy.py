"""The scoring network as a policy that PPO trains. EDGE: imports torch and Stable-Baselines3.

One categorical choice per slice; Stable-Baselines3 owns the loop, the clipping and the optimiser.
"""

from __future__ import annotations

from typing import Any

import torch
from stable_baselines3.common.policies import ActorCriticPolicy
from torch import Tensor
from torch.distributions import Categorical

from policies.learned.choosing import InputLayout
from policies.learned.network import Critic, Scorer, rows_in_use


class ChoicePolicy(ActorCriticPolicy):
    """Actor and critic over one ``InputLayout``; actions are int64 [B, S], a choice per slice."""

    def __init__(
        self,
        observation_space: Any,
        action_space: Any,
        lr_schedule: Any,
        *,
        layout: InputLayout,
        width: int = 32,
        stay_bonus: float = 8.0,
        **others: Any,
    ) -> None:
        self._layout, self._width, self._stay_bonus = layout, width, stay_bonus
        super().__init__(observation_space, action_space, lr_schedule, **others)

    def _build(self, lr_schedule: Any) -> None:
        self.scorer = Scorer(self._layout, self._width, self._stay_bonus)
        self.critic = Critic(self._layout, self._width)
        self.optimizer = self.optimizer_class(
            [*self.scorer.parameters(), *self.critic.parameters()], lr=lr_schedule(1), **self.optimizer_kwargs
        )

    def _get_constructor_parameters(self) -> dict[str, Any]:
        own = {"layout": self._layout, "width": self._width, "stay_bonus": self._stay_bonus}
        return {**super()._get_constructor_parameters(), **own}

    def choices(self, obs: Tensor) -> Categorical:
        """The distribution of each slice's choice, logits [B, S, choices]."""
        return Categorical(logits=self.scorer(obs, rows_in_use(obs, self._layout)), validate_args=False)

    def forward(self, obs: Tensor, deterministic: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        """``(actions [B, S], values [B, 1], log probabilities [B])``."""
        drawn = self.choices(obs)
        actions = drawn.logits.argmax(dim=2) if deterministic else drawn.sample()
        return actions, self.predict_values(obs), drawn.log_prob(actions).sum(dim=1)

    def evaluate_actions(self, obs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """``(values [B, 1], log probabilities [B], entropies [B])``."""
        drawn = self.choices(obs)
        log_prob = drawn.log_prob(actions.long()).sum(dim=1)
        return self.predict_values(obs), log_prob, drawn.entropy().sum(dim=1)

    def predict_values(self, obs: Tensor) -> Tensor:
        """Values [B, 1]."""
        values: Tensor = self.critic(obs, rows_in_use(obs, self._layout))[:, None]
        return values

    def _predict(self, observation: Tensor, deterministic: bool = False) -> Tensor:
        drawn = self.choices(observation)
        return drawn.logits.argmax(dim=2) if deterministic else drawn.sample()


def scorer_state(policy: ChoicePolicy) -> dict[str, Tensor]:
    """The actor's weights by name, on the CPU, as an artefact needs them."""
    return {name: tensor.detach().cpu() for name, tensor in policy.scorer.state_dict().items()}


def one_thread() -> None:
    """One torch thread: on two cores a second thread costs more than a second seed."""
    torch.set_num_threads(1)
