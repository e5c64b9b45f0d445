"""Shared fixtures of the simulator's tests."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from contracts.documents.scenario import Scenario
from contracts.loading.loader import load_text
from simulator.world.compiled_scenario import CompiledScenario
from simulator.world.scenario import compile_scenario, load_scenario
from tests.support.fleets.simulated_fleets import HORIZON_S, Build
from tests.support.fleets.synthetic import scenario_document, write_world


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> CompiledScenario:
    """The synthetic scenario."""
    return load_scenario(write_world(tmp_path_factory.mktemp("world")))


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Compiles scenarios over one synthetic world."""
    folder = tmp_path_factory.mktemp("world")
    path = write_world(folder)

    def compiled(**changes: Any) -> CompiledScenario:
        document = scenario_document(**({"horizon_s": HORIZON_S} | changes))
        text = yaml.safe_dump(document)
        scenario = load_text(text, str(path))
        assert isinstance(scenario, Scenario)
        return compile_scenario(scenario, str(path))

    return compiled
