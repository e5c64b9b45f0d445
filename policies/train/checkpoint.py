"""Checkpoints of a training run, without pickle: tensors as ``npz``, the rest as JSON. EDGE: imports torch.

A checkpoint is taken between two rollouts, each of which is one episode of every fleet. Its contents
(weights, optimiser, torch's generator, multiplier, number of the next episode) determine everything that
follows, so a resumed run ends with the weights of a run that never stopped.
"""

from __future__ import annotations

import hashlib
import io
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import TypeAdapter
from stable_baselines3 import PPO

from contracts.errors import DocumentError, refusal
from contracts.loading.files import write_pinned
from contracts.loading.untrusted import MALFORMED, arrays_of, json_of
from contracts.regular_files import ARCHIVE_BYTES, TEXT_BYTES, read_regular
from policies.train.ppo import Multiplier

FORMAT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingProgress:
    """Progress of a run. inputs_sha256: of the recipe and all files it names. updates: finished rollouts.
    best_*: the kept candidate, rewards by validation episode. curve: rows so far.
    """

    inputs_sha256: str
    seed: int
    updates: int
    env_steps: int
    multiplier: Multiplier
    best_at: int
    best_score: float
    best_rewards: tuple[float, ...] = ()
    curve: tuple[dict[str, float], ...] = ()


_PROGRESS = TypeAdapter(TrainingProgress)


def save(folder: Path, model: PPO, best: dict[str, NDArray[np.float32]], progress: TrainingProgress) -> None:
    """Write ``checkpoint.npz`` and ``checkpoint.json`` atomically; the JSON holds the other's hash."""
    arrays = {f"policy/{name}": tensor.detach().numpy() for name, tensor in model.policy.state_dict().items()}
    for index, moments in model.policy.optimizer.state_dict()["state"].items():
        arrays |= {f"adam/{index}/{name}": np.asarray(value) for name, value in moments.items()}
    arrays |= {f"best/{name}": values for name, values in best.items()}
    arrays["generator"] = torch.get_rng_state().numpy()
    # SB3 shuffles its minibatches with numpy's global generator.
    kind, keys, position, *_ = np.random.get_state()  # noqa: NPY002
    arrays |= {"shuffle/keys": np.asarray(keys), "shuffle/position": np.asarray(position)}
    assert kind == "MT19937"
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    folder.mkdir(parents=True, exist_ok=True)
    sha256 = write_pinned(folder / "checkpoint.npz", buffer.getvalue())
    plain = {"format": FORMAT, "arrays_sha256": sha256, **asdict(progress)}
    # No ``write_json``: the best score is -inf until the first candidate, and must be read back as -inf.
    write_pinned(folder / "checkpoint.json", json.dumps(plain, sort_keys=True).encode())


def load(
    folder: Path, model: PPO, inputs_sha256: str
) -> tuple[dict[str, NDArray[np.float32]], TrainingProgress]:
    """Put the checkpoint of ``folder`` into ``model`` and torch's generator; ``(best weights, progress)``.

    Raises DocumentError if it belongs to another recipe or other scenarios, or its two files do not belong
    together.
    """
    content = read_regular(folder / "checkpoint.npz", ARCHIVE_BYTES)
    try:
        plain = json_of(read_regular(folder / "checkpoint.json", TEXT_BYTES))
        _refuse_others(folder, plain, inputs_sha256, hashlib.sha256(content).hexdigest())
        return _restored(model, dict(arrays_of(content)), plain)
    except (*MALFORMED, RuntimeError) as error:  # torch raises RuntimeError for shapes that do not fit
        raise _refusal(folder, "a whole checkpoint", f"{type(error).__name__}: {error}"[:200]) from None


def _restored(
    model: PPO, arrays: dict[str, NDArray[Any]], plain: dict[str, Any]
) -> tuple[dict[str, NDArray[np.float32]], TrainingProgress]:
    if any(one.dtype.kind == "c" for one in arrays.values()):
        raise ValueError("complex numbers, of which torch would keep half")
    _PROGRESS.validate_python(plain)  # only to validate; its result has floats for a curve's integers
    model.policy.load_state_dict({n: torch.from_numpy(v) for n, v in _under(arrays, "policy/").items()})
    _load_adam(model, _under(arrays, "adam/"))
    torch.set_rng_state(torch.from_numpy(arrays["generator"]))
    position = int(arrays["shuffle/position"])
    np.random.set_state(("MT19937", arrays["shuffle/keys"], position, 0, 0.0))  # noqa: NPY002
    multiplier = Multiplier(**plain.pop("multiplier"))
    plain |= {name: tuple(plain[name]) for name in ("curve", "best_rewards")}
    progress = TrainingProgress(multiplier=multiplier, **plain)
    return _under(arrays, "best/"), progress


def exists(folder: Path) -> bool:
    """Whether a checkpoint was taken here."""
    return (folder / "checkpoint.json").exists()


def _refuse_others(folder: Path, plain: dict[str, Any], inputs_sha256: str, arrays_sha256: str) -> None:
    """DocumentError unless ``plain`` is of this format, these inputs and these arrays."""
    found = plain.pop("format"), plain.get("inputs_sha256")
    if found != (FORMAT, inputs_sha256):
        raise _refusal(
            folder,
            f"format {FORMAT} of recipe and scenarios {inputs_sha256}",
            f"format {found[0]!r:.40} of {found[1]!r:.80}",
        )
    if (expected := plain.pop("arrays_sha256")) != arrays_sha256:
        raise _refusal(folder, f"arrays with sha256 {expected!r:.80}", arrays_sha256)


def _load_adam(model: PPO, arrays: dict[str, NDArray[Any]]) -> None:
    state: dict[int, dict[str, torch.Tensor]] = {}
    for name, values in arrays.items():
        index, moment = name.split("/")
        state.setdefault(int(index), {})[moment] = torch.from_numpy(np.asarray(values))
    _refuse_foreign(model, state)
    groups = model.policy.optimizer.state_dict()["param_groups"]
    model.policy.optimizer.load_state_dict({"state": state, "param_groups": groups})


def _refuse_foreign(model: PPO, state: dict[int, dict[str, torch.Tensor]]) -> None:
    """ValueError if the optimiser's moments do not fit the weights: a later step would raise."""
    weights = model.policy.optimizer.param_groups[0]["params"]
    for index, moments in state.items():
        if not 0 <= index < len(weights):
            raise ValueError(f"moments of weight {index}; there are {len(weights)}")
        for name, found in moments.items():
            wanted = torch.Size() if name == "step" else weights[index].shape
            if found.shape != wanted or not found.is_floating_point():
                raise ValueError(f"adam/{index}/{name}: expected shape {tuple(wanted)}")


def _under(arrays: dict[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    return {name.removeprefix(prefix): values for name, values in arrays.items() if name.startswith(prefix)}


def _refusal(folder: Path, expected: str, actual: str) -> DocumentError:
    hint = "train into another folder, or remove this one"
    return refusal(folder, expected, actual, hint, path="checkpoint")
