"""Fleets with few kernels, one of which is wrong now and then: ``python -m scripts.studies.worlds.short``.

All slices have the same home kernel, and the known-good kernel is one replica beside it. A row per world:
useful tokens, and failed or exposed requests, against ``fixed-bare`` in percentage points, by seed. With
``--page docs/harm.md`` the table goes there.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import typer

from contracts.loading.shipped import LIBRARY, SERVING_POOL
from contracts.scoring.episode import EpisodeRecord
from contracts.scoring.measures import measure_service
from scripts.e5.configurations import BASELINE_CONFIGURATION, parse_configurations
from scripts.output import fill, table
from scripts.studies.worlds.drawn import SLICES, Spec, scenario_of
from simulator.fleet import run_episodes
from simulator.world.scenario import compile_scenario

MARK = "short"
HEAD = ("replicas", "probes/s", "wrong, s", "useful tokens", "failed or exposed")
ONSET_S, HORIZON_S = 60.0, 300.0
#: Offered for each replica.
REPLICA_RPS = 3.125
REPLICAS, PROBES_PER_S = (8, 2), (1.0, 0.3)
#: Duration of the fault in each period, s; the last one ends early.
PAUSES = ((6.0, 20.0), (18.0, 60.0), (60.0, 240.0))


def even_workload(rate_rps: float) -> Spec:
    """Equal load on every slice; prompts of 512 and answers of 256 tokens on average."""
    lengths = {"distribution": "lognormal", "sigma": 0.6}
    return {
        "rate_rps": rate_rps,
        "slice_mix": [{"slice": name, "share": 0.2} for name in SLICES],
        "prompt_tokens": {**lengths, "mean": 512.0, "max_tokens": 4096},
        "output_tokens": {**lengths, "mean": 256.0, "max_tokens": 1024},
    }


def short_spec(
    faults: list[dict[str, Any]], rate_rps: float, replicas: int = 8, probes_per_s: float = 1.0
) -> Spec:
    """Every slice at home on ``replicas`` of bf16; the known-good kernel is one replica of fp16."""
    kernels = [
        {"name": f"k-{name}", "profile": f"{LIBRARY}profiles/{name}.yaml", "replicas": count, "role": role}
        for name, count, role in (("bf16", replicas, "serving"), ("fp16", 1, "known_good"))
    ]
    seen = {"scrape_interval_s": 5.0, "scrape_delay_s": 0.5, "scrape_loss_ratio": 0.0}
    return {
        "description": "One kernel carries it all.",
        "pool": {"kernels": kernels, "home": [{"slice": name, "kernel": "k-bf16"} for name in SLICES]},
        "contract": SERVING_POOL,
        "horizon_s": HORIZON_S,
        "workload": even_workload(rate_rps),
        "telemetry": {**seen, "probes_per_s": probes_per_s},
        "faults": [
            {"name": "f", "onset_s": ONSET_S, "target": {"kernel": "k-bf16"}, **one} for one in faults
        ],
    }


def wrong_numbers(wrong_s: float, period_s: float) -> dict[str, Any]:
    """Three bits for ``wrong_s`` of every ``period_s``."""
    pauses = {"period_s": period_s, "duty_ratio": wrong_s / period_s}
    return {
        "kind": "requantise",
        "condition": "requantise-w3",
        "shape": "intermittent",
        "intermittent": pauses,
    }


def short_episodes(policy: str, spec: Spec, seeds: int) -> list[EpisodeRecord]:
    """An episode of each seed from 1 on."""
    world = compile_scenario(scenario_of(0, spec), str(Path.cwd() / "world-0.yaml"))
    return run_episodes(world, parse_configurations((policy,))[-1].driver(world), list(range(1, seeds + 1)))


def rows(policy: str, seeds: int) -> Iterator[list[str]]:
    """Rows of the table."""
    for replicas, probes, (wrong_s, period_s) in product(REPLICAS, PROBES_PER_S, PAUSES):
        faults = [wrong_numbers(wrong_s, period_s)]
        spec = short_spec(faults, REPLICA_RPS * replicas, replicas, probes)
        mine, bare = (
            [measure_service(record) for record in short_episodes(name, spec, seeds)]
            for name in (policy, BASELINE_CONFIGURATION)
        )
        useful = [100.0 * (a.useful_ratio - b.useful_ratio) for a, b in zip(mine, bare, strict=True)]
        hit = [
            100.0 * (a.failed_or_exposed_ratio - b.failed_or_exposed_ratio)
            for a, b in zip(mine, bare, strict=True)
        ]
        told = (", ".join(f"{each:+.1f}".replace("-", "−") for each in values) for values in (useful, hit))
        yield [str(replicas), f"{probes:g}", f"{wrong_s:g} of {period_s:g}", *told]


def main(
    policy: str = "sequential",
    seeds: int = 3,
    page: Annotated[Path | None, typer.Option(help="Page that the table goes to.")] = None,
) -> None:
    """Print the table, or put it on a page."""
    lines = table(HEAD, rows(policy, seeds), numbers=True)
    if page is None:
        typer.echo("\n".join(lines))
    else:
        fill(page, {MARK: lines})


if __name__ == "__main__":
    typer.run(main)
