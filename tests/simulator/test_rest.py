"""The controller with missing or wrong declarations: how it decides, and that its moves come to rest."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from contracts.errors import DocumentError
from contracts.scoring.episode import EpisodeRecord
from contracts.telemetry import EngineCounters, FleetTelemetry
from controller.explain.tick import explain
from controller.options import ControllerSetup
from controller.ports import RoutingPlan
from policies.registry import make_configuration
from simulator.drive import ControllerDriver
from simulator.fleet import run_episodes
from simulator.world.compiled_scenario import CompiledScenario
from tests.support.fleets.simulated_fleets import Build
from tests.support.fleets.synthetic import pool_spec
from tests.support.fleets.synthetic_kernels import KERNELS

POLICIES = ("sequential", "hysteresis")
ONSET_S, HORIZON_S = 150.0, 230.0
BROKEN: dict[str, Any] = {
    "name": "wrong",
    "kind": "requantise",
    "target": {"kernel": "bf16"},
    "condition": "requantise-w3",
    "onset_s": ONSET_S,
}


@dataclass
class Spoiled(ControllerDriver):
    """The project's controller without the engine counters of some replicas."""

    def __init__(self, setup: ControllerSetup, silent: NDArray[np.bool_]) -> None:
        self.said: set[str] = set()
        super().__init__(setup, log=self._listen)
        self._silent = silent

    def _listen(self, before: Any, after: Any, decision: Any) -> None:
        if after.ticks[0] % 20 == 0:
            self.said |= set(explain(before, after, decision, self._setup).assumptions)

    def step(self, telemetry: FleetTelemetry) -> RoutingPlan:
        """One tick without the counters of the silent replicas."""
        columns = {
            name: np.where(self._silent, np.nan, getattr(telemetry.engine, name))
            for name in EngineCounters.__slots__
        }
        return super().step(replace(telemetry, engine=EngineCounters(**columns)))


def run_one(
    world: CompiledScenario, policy: str, silent: NDArray[np.bool_] | None = None
) -> tuple[EpisodeRecord, set[str]]:
    """An episode, and every assumption that the decisions named."""
    none = np.zeros(len(world.layout.replicas), dtype=np.bool_)
    driver = Spoiled(make_configuration(policy, world.setup), none if silent is None else silent)
    return run_episodes(world, driver, [3])[0], driver.said


def rests(record: EpisodeRecord, until_at_s: float, for_s: float = 60.0) -> bool:
    """Whether no row moved by more than rounding in the last ``for_s`` before ``until_at_s``."""
    rows = record.table[int(until_at_s - for_s) : int(until_at_s)]
    return bool((np.abs(np.diff(rows, axis=0)) < 1e-6).all())


def left(record: EpisodeRecord, kernel: str, within_s: float) -> bool:
    """Whether every slice has left ``kernel`` ``within_s`` after the fault."""
    at = int(ONSET_S + within_s)
    return bool((record.table[at, :, record.kernels.index(kernel)] <= 0.01).all())


def never_empty(record: EpisodeRecord) -> bool:
    """Whether every row of every tick sends some traffic to a kernel."""
    return bool((record.table[:, :, :-1].sum(axis=2) >= 0.01 - 1e-6).all())


@settings(max_examples=6, deadline=None)
@given(
    policy=st.sampled_from(POLICIES),
    rate_rps=st.floats(4.0, 60.0),
    declared=st.sampled_from([None, 0.01, 1e4]),
    replicas=st.tuples(*[st.integers(1, 3)] * 3),
)
def test_every_fleet_comes_to_rest_and_still_moves_for_a_later_fault(
    build: Build, policy: str, rate_rps: float, declared: float | None, replicas: tuple[int, int, int]
) -> None:
    """At constant load and health moves stop; a fault at 150 s empties its kernel within a minute.

    No row is ever without a serving kernel.
    """
    pool: Any = pool_spec(tuple(replace(k, replicas=n) for k, n in zip(KERNELS, replicas, strict=True)))
    for row in pool["kernels"]:
        row["capacity_rps"] = declared
    world = build(horizon_s=HORIZON_S, rate_rps=rate_rps, pool=pool, faults=[BROKEN])
    record, _ = run_one(world, policy)
    assert rests(record, ONSET_S)
    assert left(record, "bf16", 60.0)
    assert never_empty(record)


def test_a_declared_capacity_of_zero_is_refused(build: Build) -> None:
    """The error names the place, and that the capacity may be omitted."""
    pool: Any = pool_spec()
    pool["kernels"][0]["capacity_rps"] = 0.0
    with pytest.raises(DocumentError, match=r"capacity_rps"):
        build(pool=pool)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("silenced", ["all", "half"])
def test_servers_whose_counters_lack_tokens(build: Build, policy: str, silenced: str) -> None:
    """Without any tokens the declared request is used, with some those; the fleet rests and heals.

    The decision names its assumptions.
    """
    world = build(horizon_s=HORIZON_S, rate_rps=20.0, faults=[BROKEN])
    owner = world.layout.replica_kernel
    silent = (
        np.ones(len(owner), dtype=np.bool_)
        if silenced == "all"
        else owner == world.layout.kernels.index("bf16")
    )
    record, said = run_one(world, policy, silent)
    assert rests(record, ONSET_S)
    assert left(record, "bf16", 60.0)
    assert never_empty(record)
    told = "no server counts them" if silenced == "all" else "speed of"
    assert any(told in text for text in said)


@pytest.mark.parametrize("policy", POLICIES)
def test_one_kernel_alone(build: Build, policy: str) -> None:
    """There is no target: everything stays, healthy or not, and the decision says so."""
    alone = tuple(replace(k, role="known_good") for k in KERNELS if k.name == "bf16")
    world = build(horizon_s=HORIZON_S, rate_rps=10.0, kernels=alone, faults=[BROKEN])
    record, said = run_one(world, policy)
    assert (record.table[:, :, 0] > 0.99).all()
    assert any("nothing to move to" in text for text in said)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_fleet_without_a_spare_kernel(build: Build, policy: str) -> None:
    """The one other kernel takes what it can carry of the broken one's load, and the fleet rests."""
    two = tuple(replace(k, replicas=2) for k in KERNELS if k.name != "int8")
    world = build(horizon_s=400.0, rate_rps=14.0, kernels=two, faults=[BROKEN])
    record, said = run_one(world, policy)
    assert left(record, "bf16", 60.0)
    assert rests(record, 400.0)
    assert never_empty(record)
    assert any("no kernel to spare" in text for text in said)


@pytest.mark.parametrize("policy", POLICIES)
def test_all_kernels_condemned_at_once_under_overload(build: Build, policy: str) -> None:
    """No certified kernel lives and the load is too large: the contract chooses the known-good kernel.

    Some of every slice is served, and nothing oscillates.
    """
    everywhere = {**BROKEN, "kind": "correlated", "target": {"kernels": [k.name for k in KERNELS]}}
    world = build(horizon_s=400.0, rate_rps=150.0, faults=[everywhere])
    record, said = run_one(world, policy)
    assert never_empty(record)
    others = np.delete(record.table[-100:, :, :-1], record.known_good, axis=2)
    assert (
        np.ptp(others, axis=0) < 0.01
    ).all()  # the shed share follows the offered rate, nothing else moves
    good = record.table[-1, :, record.known_good]
    assert (good >= record.table[-1, :, :-1].max(axis=1) - 1e-6).all()
    assert any("no certified kernel" in text for text in said)
