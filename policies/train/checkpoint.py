"""EDGE (torch): a training run on disk, without pickle: tensors as ``npz``, everything else as JSON.

A checkpoint is taken between two rollouts, each of which is one episode of every fleet; what it holds
(weights, optimiser, torch's generator, multiplier, number of the next episode) decides all that follows,
so a run that goes on from it ends with the weights of a run that never stopped.
"""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3 import PPO

from contracts.errors import DocumentError, Problem
from contracts.loading.files import sha256_of, write_pinned
from contracts.regular_files import ARCHIVE_BYTES, TEXT_BYTES, read_regular
from policies.train.lagrangian import Multiplier

FORMAT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a run stands. inputs_sha256: of the recipe and all that it leads to. updates: finished rollouts.
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


def save(folder: Path, model: PPO, best: dict[str, NDArray[np.float32]], progress: Progress) -> None:
    """Write ``checkpoint.npz`` and ``checkpoint.json``, each whole; the JSON names the other's hash."""
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
    # No ``write_json``: the best score is -inf until the first candidate, and comes back as that.
    write_pinned(folder / "checkpoint.json", json.dumps(plain, sort_keys=True).encode())


def load(folder: Path, model: PPO, inputs_sha256: str) -> tuple[dict[str, NDArray[np.float32]], Progress]:
    """Put the checkpoint of ``folder`` into ``model`` and torch's generator; ``(best weights, progress)``.

    Raises DocumentError where it belongs to another recipe or other scenarios, or its two files do not belong
    together.
    """
    try:
        plain = json.loads(read_regular(folder / "checkpoint.json", TEXT_BYTES))
        arrays = _stored(folder)
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise _refused(folder, "a whole checkpoint", f"{error}"[:200]) from None
    found = plain.pop("format"), plain.get("inputs_sha256")
    if found != (FORMAT, inputs_sha256):
        expected = f"format {FORMAT} of recipe and scenarios {inputs_sha256}"
        raise _refused(folder, expected, f"format {found[0]} of {found[1]}")
    _check_pair(folder, str(plain.pop("arrays_sha256")))
    model.policy.load_state_dict({n: torch.from_numpy(v) for n, v in _under(arrays, "policy/").items()})
    _load_adam(model, _under(arrays, "adam/"))
    torch.set_rng_state(torch.from_numpy(arrays["generator"]))
    position = int(arrays["shuffle/position"])
    np.random.set_state(("MT19937", arrays["shuffle/keys"], position, 0, 0.0))  # noqa: NPY002
    multiplier = Multiplier(**plain.pop("multiplier"))
    plain |= {name: tuple(plain[name]) for name in ("curve", "best_rewards")}
    progress = Progress(multiplier=multiplier, **plain)
    return _under(arrays, "best/"), progress


def _stored(folder: Path) -> dict[str, NDArray[Any]]:
    content = io.BytesIO(read_regular(folder / "checkpoint.npz", ARCHIVE_BYTES))
    with np.load(content, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def exists(folder: Path) -> bool:
    """A checkpoint was taken here."""
    return (folder / "checkpoint.json").exists()


def _check_pair(folder: Path, expected: str) -> None:
    found = sha256_of(folder / "checkpoint.npz")
    if found != expected:
        raise _refused(folder, f"arrays with sha256 {expected}", found)


def _load_adam(model: PPO, arrays: dict[str, NDArray[Any]]) -> None:
    state: dict[int, dict[str, torch.Tensor]] = {}
    for name, values in arrays.items():
        index, moment = name.split("/")
        state.setdefault(int(index), {})[moment] = torch.from_numpy(np.asarray(values))
    groups = model.policy.optimizer.state_dict()["param_groups"]
    model.policy.optimizer.load_state_dict({"state": state, "param_groups": groups})


def _under(arrays: dict[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    return {name.removeprefix(prefix): values for name, values in arrays.items() if name.startswith(prefix)}


def _refused(folder: Path, expected: str, actual: str) -> DocumentError:
    hint = "train into another folder, or remove this one"
    return DocumentError([Problem(str(folder), 0, "checkpoint", expected, actual, hint)])
