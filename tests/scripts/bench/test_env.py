"""The benchmark of the environment times its named parts and leaves everything unchanged."""

from __future__ import annotations

from pathlib import Path

from contracts.loading.shipped import LIBRARY
from scripts.bench import env as bench_env
from scripts.studies.training.measured_env import write_scenario
from simulator.engine.api import FleetEngine
from simulator.env.core import EnvCore
from tests.support.fleets.env_world import config


def test_parts_are_timed_and_put_back() -> None:
    """Every part of a step gets its time, and no wrapper stays."""
    before = [getattr(place, name) for _, place, name in bench_env.PARTS]
    core = EnvCore(config(), 2)
    with bench_env.timed_parts() as spent_s:
        assert bench_env.steps_per_cpu_s(core, 1, 20) > 0.0
    assert [getattr(place, name) for _, place, name in bench_env.PARTS] == before
    assert set(spent_s) == {label for label, _, _ in bench_env.PARTS}
    assert all(seconds > 0.0 for seconds in spent_s.values())
    assert FleetEngine._advance.__name__ == "_advance"


def test_the_scenario_of_the_benchmark_is_written_with_its_load(tmp_path: Path) -> None:
    """The document that the benchmark runs has 60 requests/s and refers to shipped files alone."""
    text = write_scenario(tmp_path, f"{LIBRARY}suites/e5-pool.yaml").read_text()
    assert "rate_rps: 60" in text
    assert text.count("package:contracts/library") == 2
