"""The benchmark of true capacities: its figures against the step-time model's, and their pages."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from shutil import copy

import pytest

from contracts.documents import Scenario
from contracts.loading.loader import load_as
from scripts.bench import capacity
from simulator.world.compiled_scenario import CompiledScenario
from simulator.world.scenario import compile_scenario
from tests.support.fleets.synthetic import scenario_document, write_world
from tests.support.paths import DOCS

FIGURES: dict[str, object] = {
    "seed": 1,
    "a/true_rps": 10.0,
    "a/model_rps": 9.5,
    "a/ratio": 0.95,
    "b/true_rps": 0.0,
    "b/model_rps": 2.0,
    "b/ratio": float("nan"),
}


def alone(folder: Path) -> CompiledScenario:
    """One replica of the first kernel of the synthetic pool."""
    file = write_world(folder, scenario_document())
    document = load_as(Scenario, file)
    pool, pool_file = capacity.pool_of(document, file)
    return compile_scenario(capacity.alone_on(document, pool.kernels[0], pool, pool_file), str(file))


def test_capacity_is_where_the_slo_breaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the capacity 99 % keep the SLO and 5 % above they do not; steps twice as long halve it or worse."""
    monkeypatch.setattr(capacity, "FLEETS", 2)
    scenario = alone(tmp_path)
    found = capacity.true_capacity_rps(scenario)
    assert capacity.kept_ratio(scenario, found) >= 0.99 > capacity.kept_ratio(scenario, 1.05 * found)
    slow = replace(scenario, engine=replace(scenario.engine, step_model=2.0 * scenario.engine.step_model))
    assert capacity.true_capacity_rps(slow) < 0.55 * found


def test_figures_name_every_kernel_with_what_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kernel of the shipped base has four figures; the told one is the model's if none is declared."""
    monkeypatch.setattr(capacity, "FLEETS", 2)
    figures = capacity.run()
    for kernel in ("bf16", "w8a8", "bf16-compiled", "fp16", "fp32"):
        assert figures[f"{kernel}/told_rps"] == figures[f"{kernel}/model_rps"]
        assert 0.7 < float(str(figures[f"{kernel}/ratio"])) < 1.3
    assert json.loads(json.dumps(figures)) == figures
    assert capacity.table(figures).row_count == 5


def test_the_tables_of_both_pages_are_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kernel has a row or a column; a kernel without capacity has no ratio."""
    for name in ("simulator.md", "capacity.md"):
        copy(DOCS / name, tmp_path / name)
    monkeypatch.setattr(capacity, "run", lambda _: FIGURES)
    capacity.main(tmp_path)
    assert "| a | 10.00 | 9.50 | 0.95 |\n| b | 0.00 | 2.00 | – |" in (tmp_path / "simulator.md").read_text()
    assert "| `e5-base` | 0.95 | – |\n| `e5-stress-half-mix` |" in (tmp_path / "capacity.md").read_text()
