"""The base scenario that random episodes vary, loaded once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from contracts.documents.scenario import Scenario, ScenarioSpec
from contracts.loading.loader import load_as
from simulator.env.exceedance import exceedance
from simulator.world.compiled_scenario import CompiledScenario
from simulator.world.pool import MeasuredPool, load_pool
from simulator.world.scenario import compile_scenario
from simulator.world.tables import is_measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """A base scenario with what was measured of its pool."""

    spec: ScenarioSpec
    file: str
    pool: MeasuredPool
    compiled: CompiledScenario
    shares: NDArray[np.float64]
    """``simulator.env.exceedance`` of its kernels."""
    menu: tuple[tuple[str, str, str], ...]
    """Kind, kernel and condition of every measured fault."""


def load_base(path: Path | str, horizon_s: float | None = None) -> Base:
    """The base scenario at ``path``; its own faults and changes are left out."""
    document = load_as(Scenario, path)
    horizon_s = document.spec.horizon_s if horizon_s is None else horizon_s
    quiet = {"faults": (), "changes": (), "horizon_s": horizon_s}
    document = document.model_copy(update={"spec": document.spec.model_copy(update=quiet)})
    spec, file = document.spec, str(path)
    pool, compiled = load_pool(spec, file), compile_scenario(document, file)
    menu = tuple(
        (condition.fault, kernel.entry.name, condition.name)
        for kernel in pool.kernels
        for condition in kernel.profile.spec.conditions
        if condition.fault in ("requantise", "noise", "bit_flips", "kernel_regression")
        and is_measured(kernel.samples, condition.name, pool.by)
    )
    shares = exceedance(compiled, pool)
    return Base(spec=spec, file=file, pool=pool, compiled=compiled, shares=shares, menu=menu)
