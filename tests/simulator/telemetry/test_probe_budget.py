"""Every policy gets the same probes: none can obtain more evidence than another."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pytest
from numpy.typing import NDArray

from policies.registry import BASELINES
from scripts.e5.configurations import parse_configuration
from simulator.fleet import run_episodes
from simulator.world.compiled_scenario import CompiledScenario
from simulator.world.scenario import load_scenario
from tests.support.fleets.synthetic import scenario_document, write_world

FAULT = {
    "name": "wrong",
    "kind": "requantise",
    "target": {"kernel": "bf16"},
    "condition": "requantise-w4",
    "onset_s": 17.0,
}


@cache
def scenario() -> CompiledScenario:
    """A build goes wrong early in a short episode."""
    folder = Path(mkdtemp(prefix="probe-budget-"))
    return load_scenario(write_world(folder, scenario_document(horizon_s=60.0, faults=[FAULT])))


@cache
def probe_tokens(configuration: str) -> NDArray[np.float64]:
    """Probe tokens by tick and kernel, float64 [T, K], under ``configuration``."""
    (record,) = run_episodes(scenario(), parse_configuration(configuration).driver(scenario()), [1])
    return record.probe_tokens


@pytest.mark.parametrize("configuration", sorted(BASELINES))
def test_probe_tokens_are_the_same_under_every_policy(configuration: str) -> None:
    """Whatever it routes or ejects, a policy's fleet computes the same probes tick by tick."""
    assert probe_tokens("fixed-bare").sum() > 0.0
    np.testing.assert_array_equal(probe_tokens(configuration), probe_tokens("fixed-bare"))
