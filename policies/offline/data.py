"""Logged transitions as a Minari dataset, the format in which offline learners exchange data.

Infos are kept, because they contain the cost and the propensity of every choice. An episode of Minari is
one log; it is truncated at its end, never terminated. An action is one choice per slice.
"""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import minari
import numpy as np
from gymnasium import spaces
from minari.data_collector import EpisodeBuffer
from minari.dataset.minari_dataset import parse_dataset_id

from contracts.errors import DocumentError, refusal
from contracts.loading.files import json_text
from policies.learned.choosing import InputLayout
from policies.offline.transitions import Transitions

#: Environment variable by which Minari finds its datasets.
_ROOT = "MINARI_DATASETS_PATH"


def write_minari(logs: Sequence[Transitions], dataset_id: str, root: Path, layout: InputLayout) -> Path:
    """Write ``logs`` as the dataset ``dataset_id`` (e.g. "selvage/incidents-v0") under ``root``.

    Returns the dataset's folder. DocumentError if it exists, for an invalid id, and for logs of another
    encoding.
    """
    numbers = logs[0].observation.shape[1]
    if numbers != layout.size:
        raise _refusal(dataset_id, f"observations of {layout.size} numbers", str(numbers))
    try:
        parse_dataset_id(dataset_id)
    except (ValueError, TypeError):  # TypeError: no version in it
        raise _refusal(
            dataset_id, "an id such as selvage/incidents-v0", "one that Minari does not take"
        ) from None
    if (root / dataset_id).exists():
        raise _refusal(dataset_id, "a name that is free", f"{root / dataset_id} exists")
    with datasets_under(root), warnings.catch_warnings(), _whole_or_none(root / dataset_id):
        # Minari asks for author, link and environment; a log of a live fleet has none of them.
        warnings.simplefilter("ignore", UserWarning)
        minari.create_dataset_from_buffers(
            dataset_id=dataset_id,
            buffer=[_buffer(number, log) for number, log in enumerate(logs)],
            observation_space=spaces.Box(-np.inf, np.inf, (layout.size,), dtype=np.float32),
            action_space=spaces.MultiDiscrete([layout.choices] * layout.encoder.slices),
            algorithm_name=", ".join(sorted({log.header.policy_id for log in logs})),
            description=json_text([asdict(log.header) for log in logs]),
        )
    return root / dataset_id


@contextmanager
def datasets_under(root: Path) -> Iterator[None]:
    """Minari has one root for all datasets, in the environment of the process."""
    before = os.environ.get(_ROOT)
    os.environ[_ROOT] = str(root)
    try:
        yield
    finally:
        if before is None:
            del os.environ[_ROOT]
        else:
            os.environ[_ROOT] = before


@contextmanager
def _whole_or_none(folder: Path) -> Iterator[None]:
    """Delete an unfinished dataset: it would occupy its name, and look complete."""
    try:
        yield
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _buffer(number: int, log: Transitions) -> EpisodeBuffer:
    """One episode; infos also have a row for the first observation, without reward."""
    ended = np.arange(log.ticks) == log.ticks - 1
    infos = {"cost": np.append(0.0, log.cost), "log_probability": np.append(np.nan, log.log_probability)}
    return EpisodeBuffer(
        id=number,
        seed=max(log.header.seed, 0),
        observations=list(log.observation),
        actions=list(log.choice),
        rewards=log.reward.tolist(),
        terminations=[False] * log.ticks,
        truncations=ended.tolist(),
        infos=infos,
    )


def _refusal(name: str, expected: str, actual: str) -> DocumentError:
    return refusal(
        "selvage offline",
        expected,
        actual,
        "choose another name, or record logs of this encoding",
        path=f"dataset {name!r}",
    )
