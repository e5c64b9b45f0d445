"""Sequential detectors of one replica, and ticks of probes to feed them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from contracts.compiled.contract import CompiledContract
from contracts.telemetry import ProbeSamples
from controller.detect.budget import Budget
from controller.detect.detector import AlarmState, DetectorState, EvidenceBatch
from controller.detect.sequential.detector import SequentialDetector
from controller.detect.sequential.evidence import statistic
from controller.detect.sequential.plan import SequentialSettings, sequential_plan
from controller.fleet import FleetSetup
from tests.support.fleets.builders import Clause, make_contract, make_fleet, make_layout

MEAN = Clause(threshold=0.1, clip=1.0)
RATE = Clause(name="N-rate", threshold=0.5, rate_limit=0.2, hard=False, level=2)
#: Budget at which one pooled stream of one clause, one observation a second, has an ARL0 of 200.
BUDGET_OF_200 = 30.0 * 86400.0 / 200.0 / Budget().kernel_share
ONE = make_layout(kernels=1, slices=1, per_kernel=1)


def small_fleet(*clauses: Clause, **changes: object) -> FleetSetup:
    """One replica, one slice."""
    return make_fleet(ONE, contract=make_contract(ONE, clauses, **changes), home=np.zeros(1, dtype=np.int64))


def sequential_detector(fleet: FleetSetup, **settings: Any) -> SequentialDetector:
    """The detector of ``fleet``."""
    return SequentialDetector(plan=sequential_plan(fleet, SequentialSettings(**settings)))


def logged(state: DetectorState, name: str = "cells") -> np.ndarray:
    """Log-evidence of the detector's streams, by slice or (``over_slices``) over all."""
    return statistic(np.asarray(state[name], dtype=np.float64))


def arrivals(values: np.ndarray, contract: CompiledContract, *, doubted: bool = False) -> EvidenceBatch:
    """One tick of B fleets with the probes ``values`` [B, P] of one replica and slice, pooled by kernel."""
    batch, slots = values.shape
    zeros = np.zeros((batch, slots), dtype=np.int64)
    probes = ProbeSamples.of_results(
        replica=zeros,
        slice=zeros,
        prompt=zeros,
        sampled_at_ms=np.zeros((batch, slots)),
        values=np.repeat(values[:, :, None], 2, axis=2),
        valid=np.ones((batch, slots), dtype=np.bool_),
    )
    shape = (batch, 1, 1, len(contract.clause_ids))
    sums = np.zeros((*shape, 4))
    sums[..., 0] = slots
    sums[..., 1] = np.minimum(values, 1.0).sum(axis=1)[:, None, None, None]
    return EvidenceBatch(
        pooled=True,
        probes=probes,
        received=probes.valid,
        subject_of=np.zeros(1, dtype=np.int64),
        sums=sums,
        doubted=np.full(shape, doubted),
        since_s=np.ones(batch),
    )


def feed(
    detector: SequentialDetector,
    ticks: list[np.ndarray],
    contract: CompiledContract,
    state: DetectorState | None = None,
    *,
    doubted: bool = False,
) -> tuple[list[AlarmState], DetectorState]:
    """AlarmState after each tick of probe values [B, P]."""
    state = state or detector.initial(len(ticks[0]), 1, contract)
    verdicts, closed = [], np.zeros(len(ticks[0]), dtype=np.bool_)
    for values in ticks:
        seen = arrivals(values, contract, doubted=doubted)
        verdict, state = detector.update(state, seen.sums, closed, contract, seen)
        verdicts.append(verdict)
    return verdicts, state


def slice_probe(fleet: FleetSetup, slice_: int, value: float) -> EvidenceBatch:
    """One probe of the only replica on one slice."""
    seen = arrivals(np.array([[value]]), fleet.contract)
    shape = (1, 1, len(fleet.layout.slices), len(fleet.contract.clause_ids))
    sums = np.zeros((*shape, 4))
    sums[:, :, slice_, :, :2] = 1.0, value
    return replace(
        seen,
        pooled=False,
        sums=sums,
        doubted=np.zeros(shape, dtype=np.bool_),
        probes=replace(seen.probes, slice=np.array([[slice_]])),
    )
