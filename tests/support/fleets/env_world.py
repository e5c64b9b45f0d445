"""The synthetic fleet as an environment, for tests."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.rng import stream
from simulator.env.core import EnvConfig, EnvCore
from simulator.env.space import EpisodeSpace
from tests.support.documents.documents_written import write_yaml
from tests.support.fleets.synthetic import scenario_document, write_world
from tests.support.fleets.synthetic_kernels import KERNELS

HORIZON_S = 60.0
STEPS = 50
STORMY = EpisodeSpace(calm_share=0.0, second_share=0.6, change_share=0.8, away_share=0.3)


@cache
def scenario_path() -> Path:
    """The synthetic world, written once per process."""
    return write_world(Path(mkdtemp(prefix="env-world-")), scenario_document(horizon_s=HORIZON_S))


@cache
def smaller_pool_path() -> Path:
    """The same world with one kernel less, under the same contract."""
    document = scenario_document(horizon_s=HORIZON_S, kernels=KERNELS[:2])
    return write_yaml(scenario_path().with_name("smaller.yaml"), document)


def config(**changes: Any) -> EnvConfig:
    """Short episodes of the synthetic fleet."""
    fields: dict[str, Any] = {"scenarios": (scenario_path(),), "horizon_s": HORIZON_S}
    return EnvConfig(**{**fields, **changes})


def actions(core: EnvCore, steps: int, seed: int = 0, first_fleet: int = 0) -> NDArray[np.float32]:
    """Random actions [steps, B, action_size]; those of a fleet depend on its number alone."""
    size = core.encoder.action_size
    own = [
        stream(seed, "test-actions", first_fleet + b).uniform(-1, 1, (steps, size)) for b in range(core.batch)
    ]
    return np.stack(own, axis=1).astype(np.float32)
