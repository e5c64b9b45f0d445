"""A policy that alternates between two kernels, and runs of it under the shipped meta-contract."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.meta import CompiledMeta
from contracts.telemetry import FleetTelemetry
from controller.options import ControllerSetup
from controller.ports import Observation, PolicyState, Proposal
from policies.registry import make_configuration
from policies.supervised import shipped_meta, supervised_setup
from tests.support.fleets.builders import make_fleet, make_layout
from tests.support.fleets.worlds import Run, script

LAYOUT = make_layout(kernels=3, slices=2, per_kernel=4)
FLEET = make_fleet(LAYOUT)
META = replace(shipped_meta(), baseline="threshold")
HOME, OTHER = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Swinging:
    """Everything at home, or on the next kernel, by turns of ``period_s``, until ``until_at_s``."""

    period_s: float = 60.0
    until_at_s: float = np.inf
    shed: float = 0.0
    eject: bool = False
    policy_id: str = "swinging"

    def initial(self, batch: int) -> PolicyState:
        """Counts its own calls, so that restored memory differs from lost memory."""
        return {"calls": np.zeros(batch, dtype=np.int64)}

    def propose(self, observation: Observation, state: PolicyState) -> tuple[Proposal, PolicyState]:
        """All weight on one kernel; ``shed`` of it shed."""
        away = (observation.now_s // self.period_s).astype(np.int64) % 2 == 1
        away &= observation.now_s < self.until_at_s
        table = np.zeros(observation.table.shape)
        table[:, :, HOME] = np.where(away, 0.0, 1.0 - self.shed)[:, None]
        table[:, :, OTHER] = np.where(away, 1.0 - self.shed, 0.0)[:, None]
        table[:, :, -1] = self.shed
        ejected = np.full(observation.in_rotation.shape, self.eject)
        return Proposal(table=table, ejected=ejected), {"calls": state["calls"] + 1}


def watched(policy: Swinging | None = None, meta: CompiledMeta = META, **changes: Any) -> ControllerSetup:
    """The configuration ``threshold``, or ``policy`` in its place, under the shipped meta-contract."""
    configuration = make_configuration("threshold", FLEET)
    configuration = configuration if policy is None else replace(configuration, policy=policy)
    return replace(supervised_setup(meta, configuration), **changes)


def demoted(found: Run) -> NDArray[np.bool_]:
    """bool [T] of fleet 0."""
    return np.array([decision.demoted[0] for decision in found.decisions])


def turns_taken(found: Run) -> list[int]:
    """Ticks at which the executed weight at home crosses one half."""
    at_home = found.tables()[:, 0, HOME] > 0.5
    return [int(t) + 1 for t in np.flatnonzero(at_home[1:] != at_home[:-1])]


def later_script(after: int, ticks: int) -> Iterator[FleetTelemetry]:
    """The world of ``script`` from tick ``after`` on."""
    for index, seen in enumerate(script(LAYOUT, after + ticks)):
        if index >= after:
            yield seen
