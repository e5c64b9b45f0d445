"""True capacity of one replica of each kernel: ``selvage bench capacity --scenario FILE``.

The highest rate at which 99 % of the requests keep every objective of their slice over ten simulated minutes
of the scenario's traffic: its lengths (at its start, where they drift), gaps, slices, sessions and gateway,
without faults and changes, on one replica that stands alone. Found by bisection on the request engine that E5
runs, with common random numbers over the rates, and over kernels; several fleets at once, each with a seed of
its own, whose requests count together. Requests in flight at the end are followed to completion.

Beside it ``model_rps``, the certified step-time model's figure for the same mean request
(``contracts.compiled.carried``), their ratio, and ``told_rps``, the capacity that the scenario's
controller is given: the pool's ``capacity_rps``, else the model's figure for the declared mean request.

``python -m scripts.bench.capacity docs`` fills ``docs/simulator.md`` and ``docs/capacity.md``, in a quarter
of a minute of processor time. Seeds determine the figures, clocks do not: equal sources write equal tables.
"""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.table import Table

from contracts.documents import KernelPool, Scenario
from contracts.documents.pool import PoolKernel, PoolSpec
from contracts.loading.loader import load_as
from contracts.loading.shipped import LIBRARY
from contracts.loading.uris import resolve_uri
from contracts.scoring.quality import ratio_of
from contracts.workload.arrivals import constant_rate
from scripts import output
from scripts.bisection import bisect_highest
from simulator.engine.api import FleetEngine
from simulator.world.compiled_scenario import CompiledScenario
from simulator.world.scenario import compile_scenario
from simulator.world.workload import WorkloadStream

SEED, FLEETS = 1, 8
SPAN_S = 600.0
KEPT_RATIO = 0.99
#: Start of the search at least: halving from there finds every capacity of interest.
FIRST_RPS = 1.0
SUITES, BASE = f"{LIBRARY}suites", "e5-base"
SCENARIO = f"{SUITES}/{BASE}.yaml"
#: Bases beside it, on the pages.
OTHERS = ("e5-stress-half-mix", "e5-stress-double-mix", "e5-stress-reproduction")
#: Figures of a kernel with their column heads.
COLUMNS = {"true_rps": "true", "model_rps": "model", "ratio": "model / true", "told_rps": "told"}


def run(scenario: str = SCENARIO) -> dict[str, object]:
    """Figures of every kernel of the pool of ``scenario``, a path or URI, flat."""
    file = resolve_uri(scenario, Path.cwd() / "selvage bench")
    document = load_as(Scenario, file)
    pool, pool_file = pool_of(document, file)
    flat: dict[str, object] = {
        "seed": SEED,
        "fleets": FLEETS,
        "span_s": SPAN_S,
        "kept_ratio": KEPT_RATIO,
        "scenario": document.metadata.name,
    }
    told = compile_scenario(document, str(file))
    for kernel, told_rps in zip(pool.kernels, told.capacity_rps, strict=True):
        alone = compile_scenario(alone_on(document, kernel, pool, pool_file), str(file))
        true_rps, model_rps = true_capacity_rps(alone), float(alone.capacity_rps[0])
        found = {"true_rps": true_rps, "model_rps": model_rps, "told_rps": float(told_rps)}
        found["ratio"] = model_rps / true_rps if true_rps > 0.0 else math.nan
        flat |= {f"{kernel.name}/{name}": round(found[name], 3) for name in COLUMNS}
    return flat


def table(figures: dict[str, Any]) -> Table:
    """One row per kernel."""
    title = f"requests/s of one replica, {figures['scenario']}; seeds from {figures['seed']}"
    shown = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    shown.add_column("kernel")
    for head in COLUMNS.values():
        shown.add_column(head, justify="right")
    for kernel in (key.partition("/")[0] for key in figures if key.endswith("/true_rps")):
        shown.add_row(kernel, *(f"{figures[f'{kernel}/{name}']:.2f}" for name in COLUMNS))
    return shown


def pool_of(document: Scenario, file: Path) -> tuple[PoolSpec, Path]:
    """The scenario's pool, and the file that holds it."""
    if document.spec.pool is not None:
        return document.spec.pool, file
    pool_file = resolve_uri(str(document.spec.pool_uri), file)
    return load_as(KernelPool, pool_file).spec, pool_file


def alone_on(document: Scenario, kernel: PoolKernel, pool: PoolSpec, pool_file: Path) -> Scenario:
    """``document`` on one replica of ``kernel``: no fault, no change, nothing declared, no drift."""
    zones = {"zone": None, "zones": None}
    profile = str(resolve_uri(kernel.profile, pool_file).absolute())
    own = {"profile": profile, "replicas": 1, "role": "known_good", "capacity_rps": None}
    entry = kernel.model_copy(update=zones | own)
    home = tuple(one.model_copy(update={"kernel": kernel.name}) for one in pool.home)
    only = PoolSpec(kernels=(entry,), home=home)
    workload = document.spec.workload.model_copy(update={"declared": None, "drift": None})
    bare: dict[str, object] = {"pool": only, "pool_uri": None, "faults": (), "changes": ()}
    bare["workload"] = workload
    return document.model_copy(update={"spec": document.spec.model_copy(update=bare)})


def true_capacity_rps(scenario: CompiledScenario) -> float:
    """Highest rate that the one replica of ``scenario`` carries; 0 if it carries none."""
    guess = max(float(scenario.capacity_rps[0]), FIRST_RPS)
    return bisect_highest(lambda rate_rps: kept_ratio(scenario, rate_rps) >= KEPT_RATIO, guess)


def kept_ratio(scenario: CompiledScenario, rate_rps: float) -> float:
    """Share of the requests at ``rate_rps`` over ``SPAN_S`` that one replica answers inside the SLO."""
    workload = replace(scenario.workload, profile=constant_rate(rate_rps))
    engine = FleetEngine(scenario.engine, FLEETS)
    whole = np.zeros((FLEETS, scenario.engine.slices, 2))
    whole[:, :, 0] = 1.0
    engine.set_table(whole)
    offered = 0
    for fleet in range(FLEETS):
        arrivals = WorkloadStream(workload, SEED + fleet).until(SPAN_S)
        engine.feed(fleet, arrivals)
        offered += len(arrivals)
    # A request is not served after its timeout.
    engine.advance(SPAN_S + float(scenario.engine.timeout_s.max()) + 1.0)
    found = engine.drain_counters()
    return ratio_of(float(found.answered.sum() - found.slo_missed.sum()), float(offered))


def base_table(figures: dict[str, object]) -> list[str]:
    """Rows of kernels: measured capacity of one replica, the model's figure, and their ratio."""
    head = ("kernel", "true, requests/s", "model, requests/s", "model / true")
    rows = []
    for kernel in kernels(figures):
        true_rps, model_rps = (_number(figures, kernel, name) for name in ("true_rps", "model_rps"))
        rows.append([kernel, f"{true_rps:.2f}", f"{model_rps:.2f}", _ratio(figures, kernel)])
    return output.table(head, rows, numbers=True)


def ratio_table(figures: dict[str, dict[str, object]]) -> list[str]:
    """Rows of bases, by name: the model's capacity over the true one of each kernel."""
    columns = kernels(next(iter(figures.values())))
    rows = [[f"`{base}`", *(_ratio(found, kernel) for kernel in columns)] for base, found in figures.items()]
    return output.table(("base", *columns), rows, numbers=True)


def kernels(figures: dict[str, object]) -> list[str]:
    """Names in the order of the pool."""
    return [key.removesuffix("/ratio") for key in figures if key.endswith("/ratio")]


def _ratio(figures: dict[str, object], kernel: str) -> str:
    true_rps = _number(figures, kernel, "true_rps")
    return f"{_number(figures, kernel, 'model_rps') / true_rps:.2f}" if true_rps > 0.0 else "–"


def _number(figures: dict[str, object], kernel: str, name: str) -> float:
    return float(str(figures[f"{kernel}/{name}"]))


def main(folder: Path) -> None:
    """Fill the tables of both pages in ``folder``."""
    found = {base: run(f"{SUITES}/{base}.yaml") for base in (BASE, *OTHERS)}
    output.fill(folder / "simulator.md", {"capacity": base_table(found[BASE])})
    output.fill(folder / "capacity.md", {"capacity-ratios": ratio_table(found)})


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs"))
