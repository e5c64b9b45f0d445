"""A fleet that cannot do without the kernel that is ill: what it serves then and after."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contracts.scoring.episode import EpisodeRecord
from scripts.e5.configurations import parse_configurations
from scripts.studies.worlds.drawn import LIBRARY, SLICES, scenario_of
from simulator.fleet import run_episodes
from simulator.world.scenario import compile_scenario

SEEDS = (1, 2)
ONSET_S, CLEARED_S = 60.0, 120.0


def spec_of(
    faults: list[dict[str, Any]], rate_rps: float, replicas: int = 8, **others: Any
) -> dict[str, Any]:
    """Everybody at home on ``replicas`` of bf16; the known-good kernel is one replica of fp16."""
    kernels = [
        {"name": f"k-{name}", "profile": f"{LIBRARY}/profiles/{name}.yaml", "replicas": count, "role": role}
        for name, count, role in (("bf16", replicas, "serving"), ("fp16", 1, "known_good"))
    ]
    lengths = {"distribution": "lognormal", "sigma": 0.6}
    workload = {
        "rate_rps": rate_rps,
        "slice_mix": [{"slice": name, "share": 0.2} for name in SLICES],
        "prompt_tokens": {**lengths, "mean": 512.0, "max_tokens": 4096},
        "output_tokens": {**lengths, "mean": 256.0, "max_tokens": 1024},
    }
    seen = {"scrape_interval_s": 5.0, "scrape_delay_s": 0.5, "scrape_loss_ratio": 0.0, "probes_per_s": 1.0}
    return {
        "description": "One kernel carries it all.",
        "pool": {"kernels": kernels, "home": [{"slice": name, "kernel": "k-bf16"} for name in SLICES]},
        "contract": f"{LIBRARY}/serving-pool.yaml",
        "horizon_s": 300.0,
        "workload": workload,
        "telemetry": seen,
        "faults": [
            {"name": "f", "onset_s": ONSET_S, "target": {"kernel": "k-bf16"}, **one} for one in faults
        ],
        **others,
    }


def episodes(policy: str, spec: dict[str, Any], seeds: int = len(SEEDS)) -> list[EpisodeRecord]:
    """An episode of each seed."""
    world = compile_scenario(scenario_of(0, spec), str(Path.cwd() / "world-0.yaml"))
    return run_episodes(world, parse_configurations((policy,))[-1].driver(world), list(range(1, seeds + 1)))


WRONG = {"kind": "requantise", "condition": "requantise-w3", "duration_s": CLEARED_S - ONSET_S}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("policy", ["sequential", "learned"])
def test_the_only_large_kernel_is_let_in_as_soon_as_its_numbers_are_right(policy: str) -> None:
    """Wrong numbers for a minute: shed while they last, and half a minute after hardly anybody is."""
    for record in episodes(policy, spec_of([WRONG], 25.0)):
        during, after = (
            record.shed[rows].sum() / record.offered[rows].sum() for rows in (slice(90, 120), slice(150, 300))
        )
        assert during > 0.5
        assert after < 0.02


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_pauses_of_wrong_numbers_are_used() -> None:
    """Twenty of eighty seconds wrong: of what is useful without healing most is so, and little is exposed."""
    spec = spec_of([with_pauses(20.0, 80.0)], 25.0)
    for record, nobody in zip(episodes("sequential", spec), episodes("fixed-bare", spec), strict=True):
        assert record.useful_tokens.sum() > 0.85 * nobody.useful_tokens.sum()
        assert record.exposed.sum() < 0.5 * nobody.exposed.sum()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("replicas", "rate_rps"), [(8, 25.0), (2, 6.25)])
@pytest.mark.parametrize("policy", ["sequential", "learned"])
def test_pauses_of_seconds_are_used(policy: str, replicas: int, rate_rps: float) -> None:
    """Wrong for six of twenty seconds: a wait for 29 matches would use up the pauses."""
    spec = spec_of([with_pauses(6.0, 20.0)], rate_rps, replicas)
    for record, nobody in zip(episodes(policy, spec), episodes("fixed-bare", spec), strict=True):
        assert record.useful_tokens.sum() > 0.88 * nobody.useful_tokens.sum()
        assert record.exposed.sum() < 0.7 * nobody.exposed.sum()


def with_pauses(wrong_s: float, period_s: float) -> dict[str, Any]:
    """Wrong numbers for so long of every period."""
    lasting = {name: value for name, value in WRONG.items() if name != "duration_s"}
    pauses = {"period_s": period_s, "duty_ratio": wrong_s / period_s}
    return lasting | {"shape": "intermittent", "intermittent": pauses}
