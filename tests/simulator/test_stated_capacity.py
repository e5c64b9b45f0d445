"""Capacities that a pool states wrongly end harmless beside measured step times."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from contracts.documents import Scenario
from contracts.loading.loader import load_as
from contracts.loading.uris import resolve_uri
from contracts.scoring.episode import EpisodeRecord
from policies.registry import make_configuration
from simulator.drive import ControllerDriver
from simulator.fleet import run_episodes
from simulator.world.scenario import compile_scenario
from tests.simulator.test_common_failures import HARM, LIBRARY, SEEDS, base, in_time

#: Requests per second that a replica carries in truth; of five kernels, ``selvage bench capacity``.
TRUE_RPS = {"bf16": 10.36, "w8a8": 10.12, "bf16-compiled": 10.0, "fp16": 2.19, "fp32": 8.71}
STRUCK = {
    "name": "bits",
    "kind": "requantise",
    "target": {"kernel": "bf16"},
    "condition": "requantise-w3",
    "onset_s": 60.0,
}


def _episodes(folder: Path, factor: float, *, struck: bool) -> list[EpisodeRecord]:
    """E5's fleet under ``sequential``, whose pool states ``factor`` times what replicas carry; struck: the
    home kernel's numbers are wrong from second 60 on.
    """
    pool = yaml.safe_load(resolve_uri(f"{LIBRARY}/suites/e5-pool.yaml", "tests").read_text())["spec"]
    for kernel in pool["kernels"]:
        kernel["profile"] = f"{LIBRARY}/profiles/{kernel['profile'].rpartition('/')[2]}"
        if factor:
            kernel["capacity_rps"] = factor * TRUE_RPS[kernel["name"]]
    spec = {**base()["spec"], "pool": pool, "faults": [STRUCK] if struck else []}
    del spec["pool_uri"]
    file = folder / f"{factor}-{struck}.yaml"
    file.write_text(yaml.safe_dump(base() | {"spec": spec}))
    world = compile_scenario(load_as(Scenario, file), str(file))
    return run_episodes(world, ControllerDriver(make_configuration("sequential", world.setup)), SEEDS)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("struck", [False, True])
def test_capacities_that_are_stated_wrongly_cost_next_to_nothing(tmp_path: Path, struck: bool) -> None:
    """Too low, twice as high, a hundred times as high: as many answers in time as where nothing is stated."""
    unstated = in_time(_episodes(tmp_path, 0.0, struck=struck))
    found = {factor: in_time(_episodes(tmp_path, factor, struck=struck)) for factor in (1e-3, 0.5, 2.0, 1e2)}
    assert found[2.0] == found[1e2] == unstated
    assert min(found[1e-3], found[0.5]) >= unstated - HARM
