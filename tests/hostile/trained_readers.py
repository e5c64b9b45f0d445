"""Readers of stored runs and trainings: jobs of E5, checkpoints, networks of two libraries."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator

from live.measure.checkpoint import read_tokenizer
from scripts.e5.configurations import parse_configuration
from scripts.e5.run import kept as kept_jobs
from scripts.e5.run.jobs import Job, run_job
from scripts.e5.suite import expand_suite, load_suite
from scripts.sb3 import bytes_of_zip
from scripts.train.exported import network_of
from tests.hostile import mutations
from tests.hostile.mutations import Mutation
from tests.hostile.readers import Reader
from tests.hostile.stored_readers import in_folder, kept, weights
from tests.support.fleets.e5_world import write_suite

_LEARNING = ("rl",)
_JOBS: list[Job] = []


def e5_job(plain: Any) -> object:
    """A job of E5 with its scenario."""
    return kept_jobs.read_result(plain, _JOBS[-1])


def e5_jobs(folder: Path) -> list[Path]:
    """One episode of a small scenario."""
    (folder / "world").mkdir(exist_ok=True)
    entry = expand_suite(*load_suite(write_suite(folder / "world")))[-1]
    _JOBS.append(Job(entry=entry, configuration=parse_configuration("fixed-bare"), seeds=(0,), batch=1))
    place = folder / "job.json"
    place.write_text(json.dumps(kept_jobs.plain_result(run_job(_JOBS[-1]))))
    return [place]


@cache
def model() -> Any:
    """A policy of another library, after a few steps."""
    import gymnasium
    from stable_baselines3 import PPO

    class Still(gymnasium.Env):  # type: ignore[misc]
        observation_space = gymnasium.spaces.Box(-1.0, 1.0, (3,), np.float32)
        action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)

        def reset(self, **_: object) -> tuple[np.ndarray, dict[str, Any]]:
            return np.zeros(3, np.float32), {}

        def step(self, _: object) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
            return np.zeros(3, np.float32), 0.0, True, False, {}

    given = {"net_arch": [4]}
    return PPO("MlpPolicy", Still(), device="cpu", n_steps=4, batch_size=4, policy_kwargs=given).learn(4)


def checkpoint(folder: Path, name: str) -> list[Path]:
    """A copy of the file ``name`` of a checkpoint of that policy, which lies in ``good``."""
    from policies.train.checkpoint import TrainingProgress, save
    from policies.train.ppo import Multiplier

    best = {"action_net.weight": np.zeros((2, 4), np.float32)}
    progress = TrainingProgress(
        inputs_sha256="0" * 64,
        seed=1,
        updates=2,
        env_steps=8,
        multiplier=Multiplier(value=0.5, last_cost=0.1),
        best_at=1,
        best_score=float("-inf"),
        best_rewards=(0.5, 1.0),
        curve=({"updates": 1, "reward": 0.5},),
    )
    save(folder / "good", model(), best, progress)
    shutil.copyfile(folder / "good" / name, folder / name)
    return [folder / name]


def progress_of(path: Path) -> object:
    """A checkpoint's progress, beside arrays that fit."""
    from policies.train.checkpoint import load

    folder = path.parent / "said"
    folder.mkdir(exist_ok=True)
    shutil.copyfile(path.parent / "good" / "checkpoint.npz", folder / "checkpoint.npz")
    shutil.copyfile(path, folder / "checkpoint.json")
    return load(folder, model(), "0" * 64)


def arrays_of_checkpoint(path: Path) -> object:
    """The arrays of a checkpoint, under their own hash."""
    from policies.train.checkpoint import load

    folder = path.parent / "arrays"
    folder.mkdir(exist_ok=True)
    told = json.loads((path.parent / "good" / "checkpoint.json").read_text())
    told["arrays_sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    (folder / "checkpoint.json").write_text(json.dumps(told))
    shutil.copyfile(path, folder / "checkpoint.npz")
    return load(folder, model(), "0" * 64)


@cache
def layout() -> Any:
    """Of a small fleet."""
    from controller.encoding.encoder import Encoder
    from policies.learned.choosing import InputLayout

    return InputLayout(encoder=Encoder(kernels_max=3, slices=2))


def trained_weights(folder: Path) -> list[Path]:
    """Weights in the form of a training's best ones."""
    from policies.train.policy import scorer_state
    from scripts.train.offline_fit import untrained

    found = {f"best/{name}": one.numpy() for name, one in scorer_state(untrained(layout(), 1, 1e-3)).items()}
    np.savez(folder / "weights.npz", **found)
    return [folder / "weights.npz"]


def weights_to_quantise(folder: Path) -> object:
    """The tensors of a checkpoint."""
    from live.measure.backends.quantize import _load

    return _load(folder)


def tokenizer(folder: Path) -> list[Path]:
    """A tokenizer of a few words."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    found = Tokenizer(models.WordLevel({"a": 0, "b": 1, "[UNK]": 2}, unk_token="[UNK]"))
    found.pre_tokenizer = pre_tokenizers.Whitespace()
    found.save(str(folder / "tokenizer.json"))
    return [folder / "tokenizer.json"]


def sb3(folder: Path) -> list[Path]:
    """That policy as saved by its library."""
    model().save(folder / "model.zip")
    return [folder / "model.zip"]


def inside_zip(content: bytes, rng: Generator) -> bytes:
    """Changes the metadata of a saved policy, or a member of its weights' archive."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        found = {name: archive.read(name) for name in archive.namelist()}
    if rng.random() < 0.5:
        found["data"] = mutations.json_value(found["data"], rng)
    else:
        found["policy.pth"] = mutations.pick(rng, (mutations.members, mutations.flip, mutations.cut))(
            found["policy.pth"], rng
        )
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, inner in found.items():
            archive.writestr(name, inner)
    return buffer.getvalue()


SB3: tuple[Mutation, ...] = (*mutations.BYTES, mutations.members, *(inside_zip,) * 4)
TRAINED: dict[str, Reader] = {
    "kept jobs of E5": Reader(read=kept(e5_job), originals=e5_jobs, kinds=mutations.JSON),
    "checkpoints of trainings": Reader(
        read=progress_of,
        originals=lambda folder: checkpoint(folder, "checkpoint.json"),
        kinds=mutations.JSON,
        needs=_LEARNING,
    ),
    "arrays of checkpoints": Reader(
        read=arrays_of_checkpoint,
        originals=lambda folder: checkpoint(folder, "checkpoint.npz"),
        kinds=mutations.ARCHIVE,
        needs=_LEARNING,
    ),
    "weights of trainings": Reader(
        read=lambda path: network_of(path, "best/", layout()),
        originals=trained_weights,
        kinds=mutations.ARCHIVE,
        needs=_LEARNING,
    ),
    "weights to be quantised": Reader(
        read=in_folder("model.safetensors", weights_to_quantise),
        originals=weights,
        kinds=(*mutations.BYTES, mutations.inside_header, mutations.inside_header),
        needs=("torch",),
    ),
    "tokenizers": Reader(
        read=in_folder("tokenizer.json", read_tokenizer),
        originals=tokenizer,
        kinds=mutations.JSON,
        needs=("transformers",),
    ),
    "policies of another library": Reader(read=bytes_of_zip, originals=sb3, kinds=SB3, needs=_LEARNING),
}
