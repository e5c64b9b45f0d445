"""Accuracy of learned capacity: ``selvage bench learned``.

Worlds about which the controller has wrong facts: step-time coefficients drawn within 30 % of the certified
ones, each by itself, prompts half to twice and answers half to one and a half times as long as declared, at
30 to 90 % of what the home kernels then carry. After two minutes under a policy that moves nothing, the
estimate of each kernel is compared with its true capacity, which ``scripts.bench.capacity`` finds by
bisection at the true coefficients with the true requests.

``busy_*``: kernels that carry 30 % of that or more; ``idle_*``: those without traffic. ``error``: of the best
estimate, ``covered``: share of kernels whose true figure is at least the lower limit (one-sided 95 %),
``width``: how far the limit lies below the estimate.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from contracts.documents import Scenario
from contracts.documents.workload import DeclaredTokens
from contracts.loading.loader import load_as
from contracts.loading.shipped import E5_BASE
from contracts.loading.uris import resolve_uri
from contracts.rng import stream
from controller.decision import Decision
from controller.state import ControllerState
from policies.registry import make_configuration
from scripts.bench.capacity import alone_on, pool_of, true_capacity_rps
from scripts.bisection import LEAST_RPS
from simulator.drive import ControllerDriver
from simulator.fleet import run_episodes
from simulator.world.scenario import compile_scenario

SEED, WORLDS = 1, 60
SPAN_S = 120.0
BUSY_RATIO = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCapacities:
    """Kernels of one world, each [K]."""

    true_rps: NDArray[np.float64]  # [K]
    estimate_rps: NDArray[np.float64]  # [K]
    least_rps: NDArray[np.float64]  # [K]
    load_ratio: NDArray[np.float64]  # [K], a replica's answered rate over its capacity


def run() -> dict[str, object]:
    """Flat figures over ``WORLDS`` worlds."""
    file = resolve_uri(E5_BASE, Path.cwd() / "selvage bench")
    document = load_as(Scenario, file)
    found = [_world(document, str(file), seed) for seed in range(SEED, SEED + WORLDS)]
    every = {
        name: np.concatenate([getattr(one, name) for one in found]) for name in KernelCapacities.__slots__
    }
    parts = {"busy": every["load_ratio"] >= BUSY_RATIO, "idle": every["load_ratio"] == 0.0}
    flat: dict[str, object] = {"seed": SEED, "worlds": WORLDS, "span_s": SPAN_S}
    for name, chosen in parts.items():
        flat |= {f"{name}_{key}": value for key, value in _figures(every, chosen).items()}
    return flat


def _figures(every: dict[str, NDArray[np.float64]], chosen: NDArray[np.bool_]) -> dict[str, float]:
    true_rps, estimate_rps, least_rps = (
        every[name][chosen] for name in ("true_rps", "estimate_rps", "least_rps")
    )
    error = estimate_rps / true_rps - 1.0
    return {
        "kernels": int(chosen.sum()),
        "error_median": round(float(np.median(np.abs(error))), 4),
        "error_mean": round(float(error.mean()), 4),
        "covered_ratio": round(float((least_rps <= true_rps).mean()), 4),
        "width_median": round(float(np.median(1.0 - least_rps / estimate_rps)), 4),
    }


def _world(document: Scenario, file: str, seed: int) -> KernelCapacities:
    """One world, drawn from ``seed``, with the learned capacities."""
    rng = stream(seed, "bench_learned")
    prompt, output = np.exp(rng.uniform(np.log(0.5), np.log(2.0))), rng.uniform(0.5, 1.5)
    told = compile_scenario(_with_tokens(document, prompt, output, 1.0), file)
    step_s = told.engine.step_model * rng.uniform(0.7, 1.3, told.engine.step_model.shape)
    true_rps = _true_rps(_with_tokens(document, prompt, output, 1.0), file, step_s)
    # Load refers to the home kernel that is fullest without faults.
    fullest = float((told.fair_rps / true_rps).max())
    rate_rps = document.spec.workload.rate_rps * rng.uniform(0.3, 0.9) / fullest
    world = compile_scenario(_with_tokens(document, prompt, output, rate_rps), file)
    world = replace(world, engine=replace(world.engine, step_model=step_s))
    last: list[ControllerState] = []

    def log(_before: ControllerState, after: ControllerState, _decision: Decision) -> None:
        last[:] = [after]

    run_episodes(world, ControllerDriver(make_configuration("fixed-bare", world.setup), log=log), [seed])
    served = np.bincount(world.layout.replica_kernel, last[0].answered_rps[0])
    return KernelCapacities(
        true_rps=true_rps,
        estimate_rps=last[0].replica_rps[0],
        least_rps=last[0].least_rps[0],
        load_ratio=served / np.bincount(world.layout.replica_kernel) / true_rps,
    )


def _with_tokens(document: Scenario, prompt: float, output: float, rate_rps: float) -> Scenario:
    """``document`` with longer or shorter requests than it declares, at ``rate_rps``, for two minutes."""
    work = document.spec.workload
    declared = DeclaredTokens(prompt_tokens=work.prompt_tokens.mean, output_tokens=work.output_tokens.mean)
    changed = {
        "declared": declared,
        "rate_rps": rate_rps,
        "prompt_tokens": work.prompt_tokens.model_copy(update={"mean": work.prompt_tokens.mean * prompt}),
        "output_tokens": work.output_tokens.model_copy(update={"mean": work.output_tokens.mean * output}),
    }
    spec = {"workload": work.model_copy(update=changed), "horizon_s": SPAN_S}
    return document.model_copy(update={"spec": document.spec.model_copy(update=spec)})


def _true_rps(document: Scenario, file: str, step_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """True capacity of one replica of every kernel whose steps have ``step_s`` [K, 4], by bisection, [K]."""
    pool, pool_file = pool_of(document, Path(file))
    found = []
    for kernel, step in zip(pool.kernels, step_s, strict=True):
        alone = compile_scenario(alone_on(document, kernel, pool, pool_file), file)
        alone = replace(alone, engine=replace(alone.engine, step_model=step[None]))
        found.append(max(true_capacity_rps(alone), LEAST_RPS))
    return np.array(found)
