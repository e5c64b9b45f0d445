"""Logs as a Minari dataset has them, read again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import minari
import numpy as np

from policies.offline.data import datasets_under
from policies.offline.transitions import TransitionHeader, Transitions


def read_minari(dataset_id: str, root: Path) -> list[Transitions]:
    """The logs that ``write_minari`` wrote, in their order."""
    with datasets_under(root):
        dataset = minari.load_dataset(dataset_id)
        headers = json.loads(dataset.storage.metadata["description"])
        episodes = list(dataset.iterate_episodes())
    return [_log(header, episode) for header, episode in zip(headers, episodes, strict=True)]


def _log(header: dict[str, Any], episode: Any) -> Transitions:
    return Transitions(
        header=TransitionHeader(**header),
        observation=np.asarray(episode.observations, dtype=np.float32),
        choice=np.asarray(episode.actions, dtype=np.int64),
        reward=np.asarray(episode.rewards, dtype=np.float64),
        cost=np.asarray(episode.infos["cost"], dtype=np.float64)[1:],
        log_probability=np.asarray(episode.infos["log_probability"], dtype=np.float64)[1:],
    )
