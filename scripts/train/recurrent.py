"""Recurrent PPO of sb3-contrib on the same choices: an option, for comparison.

It is a plain LSTM over the inputs: not shared between kernels, without warm start or checkpoint; its last
weights are kept for export. The memory in the policy's state makes recurrence unnecessary (docs/training.md);
this measures its benefit.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from sb3_contrib import RecurrentPPO

from contracts.loading.files import write_json, write_pinned
from policies.train.policy import one_thread
from policies.train.ppo import EachEpisode, PenalisedVecEnv, callbacks_of, settings_of
from policies.train.recipe import RecipeSpec
from policies.train.world import DriverScore, Inputs, score_acts
from scripts.train.env import ChoiceVecEnv, TrainingWorld

#: File of the actor's weights in a seed's folder, and prefixes of their names.
WEIGHTS = "actor.npz"
ACTOR = ("lstm_actor.", "mlp_extractor.policy_net.", "action_net.")


def train_recurrent(
    spec: RecipeSpec,
    file: str,
    seed: int,
    folder: Path,
    updates: int,
    stopped: Any,
    report: Callable[[int, int], None],
) -> tuple[int, DriverScore]:
    """``(env steps, score on validation)`` of ``seed`` after ``updates`` episodes of every fleet."""
    one_thread()
    env: Any = ChoiceVecEnv(TrainingWorld(spec, file))
    if spec.lagrangian is not None:
        env = PenalisedVecEnv(env, spec.reward.scale)
    steps = round(spec.episodes.horizon_s) - 1
    model = build_recurrent(env, spec, seed, steps)
    total = updates * steps * env.num_envs

    def between(done: int) -> bool:
        report(done, updates)
        return True

    model.learn(total, callback=[*callbacks_of(env, spec), EachEpisode(between, stopped)])
    check = spec.validation
    exam = TrainingWorld(spec, file, horizon_s=check.horizon_s, fleets=check.episodes)
    score = score_acts(exam, lambda: _player(model), check.seed, 1)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "score.json", asdict(score))
    buffer = io.BytesIO()
    np.savez(buffer, **actor_weights(model))
    write_pinned(folder / WEIGHTS, buffer.getvalue())
    return total, score


def actor_weights(model: Any) -> dict[str, Any]:
    """The actor's weights by name, as ``policies.learned.onnx_graph.recurrent_bytes`` takes them."""
    state = model.policy.state_dict().items()
    return {name: tensor.detach().cpu().numpy() for name, tensor in state if name.startswith(ACTOR)}


def build_recurrent(env: Any, spec: RecipeSpec, seed: int, steps: int) -> Any:
    """The untrained model; ``steps``: of an episode."""
    kwargs = {"lstm_hidden_size": spec.network.width, "net_arch": [spec.network.width]}
    settings = settings_of(spec, env.num_envs, steps)
    return RecurrentPPO("MlpLstmPolicy", env, policy_kwargs=kwargs, seed=seed, **settings)


def _player(model: Any) -> Callable[[Inputs], np.ndarray[tuple[int, ...], np.dtype[np.int64]]]:
    """Greedy choices with the LSTM's memory of one episode."""
    memory: list[Any] = [None, True]

    def act(inputs: Inputs) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        starts = np.full(len(inputs), memory[1])
        choices, memory[0] = model.predict(inputs, state=memory[0], episode_start=starts, deterministic=True)
        memory[1] = False
        return np.asarray(choices)

    return act
