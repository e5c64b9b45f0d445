"""Loads near the true capacity, which is not known exactly: what is shed, and what waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contracts.loading.shipped import LIBRARY, SERVING_POOL
from contracts.scoring.episode import EpisodeRecord
from scripts.e5.configurations import parse_configurations
from scripts.studies.worlds.drawn import SLICES, Spec, scenario_of
from scripts.studies.worlds.harm import differences
from simulator.fleet import run_episodes
from simulator.truth.scenario import demand_at, true_rps
from simulator.world.compiled_scenario import CompiledScenario
from simulator.world.scenario import compile_scenario

SEEDS, HARM_POINTS = (3, 4), -0.5


def _spec(replicas: dict[str, int], tokens: tuple[float, float], gap_cv: float) -> Spec:
    """All slices are at home on the first kernel; ``replicas`` gives their number by profile."""
    kernels = [
        {"name": name, "profile": f"{LIBRARY}profiles/{name}.yaml", "replicas": count, "role": "serving"}
        for name, count in replicas.items()
    ]
    kernels[-1]["role"] = "known_good"
    prompts, answers = (
        {"distribution": "lognormal", "mean": mean, "sigma": 0.5, "max_tokens": most}
        for mean, most in zip(tokens, (4096, 1024), strict=True)
    )
    return {
        "description": "A fleet near what it carries.",
        "pool": {
            "kernels": kernels,
            "home": [{"slice": name, "kernel": kernels[0]["name"]} for name in SLICES],
        },
        "contract": SERVING_POOL,
        "horizon_s": 300.0,
        "workload": {
            "rate_rps": 1.0,
            "arrivals": "gamma",
            "gamma": {"gap_cv": gap_cv},
            "slice_mix": [{"slice": name, "share": 0.2} for name in SLICES],
            "prompt_tokens": prompts,
            "output_tokens": answers,
        },
        "telemetry": {"scrape_interval_s": 5.0, "scrape_delay_s": 0.5, "probes_per_s": 0.3},
    }


def _world(spec: Spec, load: float, *faults: dict[str, Any]) -> CompiledScenario:
    """The world of ``spec`` at ``load`` times the true capacity of its home."""
    calm = compile_scenario(scenario_of(0, spec), str(Path.cwd() / "world-0.yaml"))
    replicas = int(np.count_nonzero(calm.layout.replica_kernel == 0))
    spec["workload"]["rate_rps"] = load * replicas * float(true_rps(calm, demand_at(calm, 0.0))[0])
    spec["faults"] = [{"name": f"f{i}", "onset_s": 90.0, **fault} for i, fault in enumerate(faults)]
    return compile_scenario(scenario_of(0, spec), str(Path.cwd() / "world-0.yaml"))


def _records(world: CompiledScenario, policy: str = "sequential") -> list[EpisodeRecord]:
    driver = parse_configurations((policy,))[-1].driver(world)
    return run_episodes(world, driver, list(SEEDS), batch=len(SEEDS))


def _lost_points(world: CompiledScenario) -> float:
    """Useful tokens under ``sequential`` minus those of ``fixed-bare``, percentage points, mean of seeds."""
    ((_, found),) = differences(world, ("sequential",), SEEDS)
    return float(np.mean(found))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("profile", "tokens", "load"),
    [("fp32", (700.0, 60.0), 1.1), ("fp16", (600.0, 60.0), 1.25), ("bf16", (1500.0, 60.0), 1.15)],
)
def test_a_lone_kernel_sheds_nothing_that_it_answers_in_time(
    profile: str, tokens: tuple[float, float], load: float
) -> None:
    """Above the modelled capacity, where 98 % of all answers are in time if nothing is shed."""
    world = _world(_spec({profile: 5}, tokens, 1.5), load)
    for record, bare in zip(_records(world), _records(world, "fixed-bare"), strict=True):
        assert bare.slo_missed.sum() < 0.02 * bare.offered.sum()
        assert record.shed.sum() < 0.01 * record.offered.sum()


def _with_a_slow_one(tokens: tuple[float, float], load: float, shape: dict[str, Any]) -> CompiledScenario:
    """One of six takes four times as long for every step."""
    slow = {"kind": "slow", "dose": 4.0, "target": {"kernel": "fp32", "replica": 1}, **shape}
    return _world(_spec({"fp32": 6}, tokens, 1.2), load, slow)


NOW_AND_THEN = {"shape": "intermittent", "intermittent": {"period_s": 60.0, "duty_ratio": 0.3}}
SLOW_ONES = pytest.mark.parametrize(
    ("tokens", "shape"),
    [((1000.0, 80.0), {}), ((150.0, 40.0), NOW_AND_THEN)],
    ids=["lasts", "comes and goes"],
)


@pytest.mark.slow
@SLOW_ONES
def test_a_slow_replica_leaves_where_the_others_answer_everything(
    tokens: tuple[float, float], shape: dict[str, Any]
) -> None:
    """The others get a fifth more load, and answer it."""
    world = _with_a_slow_one(tokens, 0.8, shape)
    assert any(not record.in_rotation[:, 1].all() for record in _records(world))
    assert _lost_points(world) > HARM_POINTS


@pytest.mark.slow
@SLOW_ONES
def test_a_slow_replica_stays_where_more_would_be_shed_than_is_late(
    tokens: tuple[float, float], shape: dict[str, Any]
) -> None:
    """The fleet is short of capacity: late answers are better than none."""
    world = _with_a_slow_one(tokens, 1.05, shape)
    assert all(record.in_rotation[:, 1].all() for record in _records(world))
    assert _lost_points(world) > HARM_POINTS


@pytest.mark.slow
def test_a_bursts_queue_does_not_stay_on_the_target_kernel() -> None:
    """Home breaks its contract under bursts, and the other kernel takes only what it answers in time."""
    wrong = {"kind": "requantise", "condition": "requantise-w3", "target": {"kernel": "bf16"}}
    world = _world(_spec({"bf16": 3, "w8a8": 2}, (900.0, 350.0), 4.0), 0.8, wrong)
    for record in _records(world):
        assert record.slo_missed[120:].sum() < 0.1 * record.offered[120:].sum()


@pytest.mark.slow
def test_a_rolling_restart_near_capacity_sheds_nothing() -> None:
    """With one of six away for twenty seconds at a time the others answer a fifth more in time."""
    spec = _spec({"bf16": 6}, (512.0, 256.0), 1.2)
    restart = {
        "kind": "rolling_restart",
        "at_s": 100.0,
        "kernel": "bf16",
        "step_s": 30.0,
        "cold_start_s": 20.0,
    }
    spec["changes"] = [restart]
    assert _lost_points(_world(spec, 0.95)) > HARM_POINTS


@pytest.mark.slow
@pytest.mark.parametrize(
    ("profile", "tokens", "load"), [("fp16", (900.0, 40.0), 4.0), ("bf16", (600.0, 200.0), 1.3)]
)
def test_load_that_would_queue_is_shed(profile: str, tokens: tuple[float, float], load: float) -> None:
    """Beyond a kernel's capacity all answers would be late; shedding keeps many in time."""
    assert _lost_points(_world(_spec({profile: 3}, tokens, 1.0), load)) >= 10.0
