"""Both worlds compile the same of the same documents: contract, axes and engines."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from contracts.documents import KernelContract, KernelPool, RoutePolicy
from contracts.documents.scenario import DeclaredTokens, Scenario
from contracts.loading.loader import load_as
from contracts.telemetry import SampleRates
from controller.fleet import FleetSetup
from live.control.setup import DEMAND, LiveDocuments, live_setup
from simulator.world.scenario import compile_scenario
from tests.support.paths import LIBRARY

POOL_FILE = LIBRARY / "suites" / "e5-pool.yaml"
RATES = SampleRates(probes_per_s=0.0, scrape_interval_s=5.0)
#: Beside the documents: the longest request is declared by a scenario alone.
ELSEWHERE = {"longest"}


def _live(pool: KernelPool) -> FleetSetup:
    policy_file = LIBRARY / "route-policy.yaml"
    policy = load_as(RoutePolicy, policy_file)
    observing = policy.model_copy(update={"spec": policy.spec.model_copy(update={"mode": "observe"})})
    documents = LiveDocuments(
        pool=pool,
        pool_file=POOL_FILE,
        contract=load_as(KernelContract, LIBRARY / "serving-pool.yaml"),
        policy=observing,
        policy_file=policy_file,
    )
    replicas = {one.name: tuple(f"{one.name}-{n}" for n in range(one.replicas)) for one in pool.spec.kernels}
    return live_setup(documents, replicas, RATES).setup.fleet


def _simulated(pool: KernelPool) -> FleetSetup:
    file = LIBRARY / "suites" / "e5-base.yaml"
    scenario = load_as(Scenario, file)
    mean = DeclaredTokens(prompt_tokens=DEMAND.prompt_tokens, output_tokens=DEMAND.output_tokens)
    told = scenario.spec.workload.model_copy(update={"declared": mean})
    unprobed = scenario.spec.telemetry.model_copy(update={"probes_per_s": 0.0})
    changes = {"pool": pool.spec, "pool_uri": None, "workload": told, "telemetry": unprobed}
    spec = scenario.spec.model_copy(update=changes)
    return compile_scenario(scenario.model_copy(update={"spec": spec}), str(file)).setup


def _pool(stated_rps: dict[str, float]) -> KernelPool:
    pool = load_as(KernelPool, POOL_FILE)
    kernels = tuple(
        one.model_copy(update={"capacity_rps": stated_rps.get(one.name)}) for one in pool.spec.kernels
    )
    return pool.model_copy(update={"spec": pool.spec.model_copy(update={"kernels": kernels})})


def _assert_alike(one: Any, other: Any, elsewhere: frozenset[str] | set[str] = frozenset()) -> None:
    for name in [entry.name for entry in fields(one) if entry.name not in elsewhere]:
        np.testing.assert_equal(getattr(one, name), getattr(other, name), err_msg=name)


@pytest.mark.parametrize("stated", [{}, {"fp16": 3.0}, dict.fromkeys(("bf16", "w8a8", "fp16", "fp32"), 3.0)])
def test_both_worlds_are_told_the_same_of_the_same_documents(stated: dict[str, float]) -> None:
    """Contract and axes to the bit; every limit of the engines, whatever capacities the pool states."""
    pool = _pool(stated)
    live, simulated = _live(pool), _simulated(pool)
    _assert_alike(live.layout, simulated.layout)
    _assert_alike(live.contract, simulated.contract)
    assert live.engine is not None
    assert simulated.engine is not None
    _assert_alike(live.engine, simulated.engine, ELSEWHERE)
    for name, stated_rps in stated.items():
        assert live.capacity_rps[live.layout.kernels.index(name)] == stated_rps
    assert live.capacity_rps == pytest.approx(simulated.capacity_rps, rel=0.05)
