"""Observations for policy tests: all healthy unless changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from contracts.compiled.contract import Level
from controller.fleet import FleetSetup
from controller.ports import Observation


def calm(fleet: FleetSetup, now_s: float = 0.0, batch: int = 1, **changes: Any) -> Observation:
    """Everything certified, ready and lightly loaded, capacities known surely; ``changes`` replace fields."""
    kernels, slices, replicas = fleet.layout.shape
    owner = fleet.layout.replica_kernel
    ready = np.tile(np.bincount(owner, minlength=kernels), (batch, 1))
    table = np.zeros((batch, slices, kernels + 1))
    table[:, np.arange(slices), fleet.home] = 1.0
    cells = (batch, kernels, slices)
    seen = Observation(
        now_s=np.full(batch, now_s),
        table=table,
        health=np.zeros(cells),
        level=np.zeros(cells, dtype=np.int64),
        hard_violated=np.zeros(cells, dtype=np.bool_),
        evidence_count=np.full(cells, 50.0),
        evidence_age_s=np.zeros(cells),
        evidence_ratio=np.zeros(cells),
        family_excess=np.zeros((*cells, 4)),
        certified=np.ones(cells, dtype=np.bool_),
        ready=ready,
        capacity_rps=ready * fleet.capacity_rps,
        sure_rps=ready * fleet.capacity_rps,
        load_ratio=np.zeros((batch, kernels)),
        running=np.zeros((batch, kernels)),
        waiting=np.zeros((batch, kernels)),
        offered_rps=np.full((batch, slices), 1.0),
        consecutive_failed=np.zeros((batch, replicas), dtype=np.int64),
        failed_ratio=np.zeros((batch, replicas)),
        in_rotation=np.ones((batch, replicas), dtype=np.bool_),
        quarantined=np.zeros((batch, replicas), dtype=np.bool_),
        since_move_s=np.full((batch, slices), np.inf),
        role_known_good=np.arange(kernels) == fleet.layout.known_good,
        home=fleet.home,
        replica_kernel=owner,
    )
    return replace(seen, **({"sure_rps": changes.get("capacity_rps", seen.sure_rps)} | changes))


def unhealthy(
    observation: Observation, kernel: int, slice_: int, level: Level, *, certified: bool = False
) -> Observation:
    """``seen`` with one (kernel, slice) at ``level``."""
    levels, health, allowed = (
        observation.level.copy(),
        observation.health.copy(),
        observation.certified.copy(),
    )
    levels[:, kernel, slice_], health[:, kernel, slice_] = int(level), float(level)
    allowed[:, kernel, slice_] = certified
    return replace(observation, level=levels, health=health, certified=allowed)
