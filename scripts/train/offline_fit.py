"""Train a policy from logs, evaluate it from logs, and write it as an artefact without a certificate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from contracts.documents import FileRef
from contracts.documents.artifact import Training
from contracts.loading.files import json_text, sha256_of, write_pinned
from policies.certify.artifact_files import write_artefact
from policies.learned.choosing import InputLayout
from policies.learned.onnx_graph import network_bytes
from policies.learned.runner import ScoreRunner
from policies.offline.evaluate import fitted_value, weighted_value
from policies.offline.recipes import ConservativeRecipe, FittedRecipe
from policies.offline.train import ConservativeTrainer, stack
from policies.offline.transitions import Transitions
from policies.train.policy import ChoicePolicy, one_thread, scorer_state

#: Rows per call when computing scores.
_ROWS = 4096


def untrained(layout: InputLayout, seed: int, learning_rate: float) -> ChoicePolicy:
    """The scoring network before training; equal seeds give equal weights."""
    torch.manual_seed(seed)
    seen = spaces.Box(-np.inf, np.inf, (layout.size,), np.float32)
    choices = spaces.MultiDiscrete([layout.choices] * layout.encoder.slices)
    return ChoicePolicy(seen, choices, lambda _: learning_rate, layout=layout)


def fit(
    logs: Sequence[Transitions],
    layout: InputLayout,
    recipe: ConservativeRecipe,
    progress: Callable[[int], None] | None = None,
) -> tuple[bytes, list[dict[str, float]]]:
    """ONNX file of the policy learned from ``logs``, and the losses during training."""
    one_thread()
    policy = untrained(layout, recipe.seed, recipe.learning_rate)
    data = stack(logs, recipe.cost_weight)
    history = ConservativeTrainer(policy, data, layout.choices, recipe).run(recipe.steps, progress)
    weights = {name: tensor.numpy() for name, tensor in scorer_state(policy).items()}
    return network_bytes(weights, layout), history


def judge(content: bytes, logs: Sequence[Transitions], recipe: FittedRecipe) -> dict[str, Any]:
    """Estimated rewards of the network from the logs, with their reliability."""
    one_thread()
    runner = ScoreRunner(content)

    def scores(seen: NDArray[np.float32]) -> NDArray[np.float32]:
        parts = [runner(seen[first : first + _ROWS]) for first in range(0, len(seen), _ROWS)]
        return np.concatenate(parts)

    def act(seen: NDArray[np.float32]) -> NDArray[np.int64]:
        return np.asarray(scores(seen).argmax(axis=2), dtype=np.int64)

    def drawn(seen: NDArray[np.float32], choice: NDArray[np.int64]) -> NDArray[np.float64]:
        return log_softmax(scores(seen), choice)

    weighted = weighted_value(drawn, logs, recipe.gamma)
    return {
        "fitted_q": asdict(fitted_value(act, logs, runner.choices, recipe)),
        "importance_sampling": None if weighted is None else asdict(weighted),
        "logged": {
            "reward": float(np.concatenate([log.reward for log in logs]).mean()),
            "cost": float(np.concatenate([log.cost for log in logs]).mean()),
        },
        "episodes": len(logs),
        "gamma": recipe.gamma,
    }


def log_softmax(scores: NDArray[np.float32], choice: NDArray[np.int64]) -> NDArray[np.float64]:
    """Log probability float64 [N] of ``choice`` [N, S] if each slice draws by softmax of its scores."""
    shifted = scores.astype(np.float64) - scores.max(axis=2, keepdims=True)
    total = np.log(np.exp(shifted).sum(axis=2))
    picked = np.take_along_axis(shifted, choice[:, :, None], axis=2)[:, :, 0]
    return np.asarray((picked - total).sum(axis=1))


def write_offline(
    out: Path,
    name: str,
    content: bytes,
    logs: dict[str, str],
    evaluation: dict[str, Any],
    seed: int,
    command: str,
) -> Path:
    """The artefact, with the hashes of its logs and its off-policy evaluation beside it; its manifest.

    logs: file name -> sha256. It drives nowhere before it is certified.
    """
    index = json_text({"logs": logs}, indent=1).encode()
    verdict = json_text(evaluation, indent=1).encode()
    out.mkdir(parents=True, exist_ok=True)
    data = tuple(
        FileRef(uri=file, sha256=write_pinned(out / file, text))
        for file, text in ((f"{name}-logs.json", index), (f"{name}-evaluation.json", verdict))
    )
    training = Training(command=command, seeds=(seed,), data=data)
    return write_artefact(out, name, content, "Learned from logged incidents alone.", training)


def hashes(folder: Path) -> dict[str, str]:
    """File name -> sha256 of the logs in ``folder``: those of a decision log, else transitions."""
    files = sorted(folder.glob("decisions-*.jsonl")) or sorted(folder.glob("*.npz"))
    return {path.name: sha256_of(path) for path in files}
