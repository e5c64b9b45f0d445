"""A synthetic fleet, used to compile functions ahead of time and by the benchmark of ``tick``.

Its numbers are not measured, and no result may be derived from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import CompiledContract, FleetLayout
from contracts.compiled.steady_state import Demand, EngineModel
from contracts.telemetry import (
    HISTOGRAM_EDGES_MS,
    LATENCY_FAMILIES,
    EngineCounters,
    FleetTelemetry,
    GatewayCounts,
    ProbeSamples,
    ReplicaState,
    Source,
)
from contracts.units import MS_PER_S
from controller.fleet import FleetSetup

#: Probe metrics of the fleet.
METRICS = ("kl_mean@full_vocab", "top1_flip@full_vocab")


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticClause:
    """One clause of a made-up contract; by default a hard mean of the first probe metric on every slice.

    rate_limit: None for a clause that judges a mean. slices: indices of its slices; None: all.
    """

    name: str = "N-1"
    family: str = "N"
    source: Source = Source.PROBE
    column: int = 0
    threshold: float = 0.1
    sense: float = 1.0
    rate_limit: float | None = None
    clip: float = np.inf
    hard: bool = True
    level: int = 3
    weight: float = 1.0
    edge: int = -1
    slices: tuple[int, ...] | None = None

    def of(self, slices: int) -> list[bool]:
        """Mask of its slices among this many."""
        return [self.slices is None or place in self.slices for place in range(slices)]


#: Time between two scrapes of made-up telemetry.
SCRAPE_INTERVAL_S = 5.0
#: Settings common to all clauses.
_TERMS: dict[str, Any] = {
    "guard_threshold": 0.5,
    "fallback_threshold": 2.0,
    "window_s": 60.0,
    "min_samples": 20,
    "alarm_confidence": 0.999,
    "shed_when_uncertified": False,
    "ejection_cap_ratio": 0.5,
    "stale_after_s": 30.0,
    "false_switch_budget_per_slice_month": 1.0,
}
#: Source, column, threshold, rate limit (None: a mean), hard, level of the ten clauses.
_CLAUSES: tuple[tuple[Source, int, float, float | None, bool, int], ...] = (
    (Source.PROBE, 0, 1e-3, None, False, 3),
    (Source.PROBE, 0, 2e-3, None, True, 3),
    (Source.PROBE, 0, 4e-3, 0.01, False, 2),
    (Source.PROBE, 1, 0.05, None, False, 2),
    (Source.LATENCY, 1, 8000.0, 0.05, False, 2),
    (Source.LATENCY, 0, 30000.0, 0.01, False, 2),
    (Source.FAILED, -1, 0.02, None, False, 3),
    (Source.KV_USED, -1, 0.95, 0.05, False, 1),
    (Source.FINGERPRINT, -1, 0.0, 0.0, True, 3),
    (Source.TRACE_FIELDS, -1, 0.0, 0.05, False, 1),
)


def synthetic_fleet(kernels: int, slices: int, replicas: int) -> FleetSetup:
    """Fleet with ten clauses; replicas are assigned to the kernels in turn, the last kernel is known good."""
    layout = FleetLayout(
        kernels=tuple(f"kernel{index}" for index in range(kernels)),
        slices=tuple(f"slice{index}" for index in range(slices)),
        replicas=tuple(f"replica{index}" for index in range(replicas)),
        replica_kernel=np.arange(replicas, dtype=np.int64) % kernels,
        probe_metrics=METRICS,
        known_good=kernels - 1,
    )
    return FleetSetup(
        layout=layout,
        contract=synthetic_contract(layout, _clauses()),
        capacity_rps=np.full(kernels, 10.0),
        home=np.zeros(slices, dtype=np.int64),
        engine=EngineModel(
            step_s=np.tile([2e-3, 3e-5, 7e-5, 3e-7], (kernels, 1)),
            sequences=np.full(kernels, 64.0),
            kv_tokens=np.full(kernels, 65536.0),
            inter_token_s=0.08,
            demand=Demand(prompt_tokens=512.0, output_tokens=256.0),
        ),
    )


def synthetic_telemetry(
    fleet: FleetSetup, now_s: float, batch: int, probes: int, rng: np.random.Generator
) -> FleetTelemetry:
    """Healthy traffic with ``probes`` probe samples per fleet, some of them over the thresholds."""
    kernels, slices, replicas = fleet.layout.shape
    answered = rng.poisson(replicas / kernels, (batch, slices, kernels))
    each = rng.poisson(slices, (batch, replicas))
    flushed = np.zeros_like(answered) if now_s % SCRAPE_INTERVAL_S else answered
    values = rng.exponential([5e-4, 0.02], (batch, probes, len(METRICS)))
    drawn = ProbeSamples.of_results(
        replica=rng.integers(0, replicas, (batch, probes)),
        slice=rng.integers(0, slices, (batch, probes)),
        prompt=np.zeros((batch, probes), dtype=np.int64),
        sampled_at_ms=np.full((batch, probes), now_s * MS_PER_S),
        values=values,
        valid=np.ones((batch, probes), dtype=np.bool_),
    )
    return FleetTelemetry(
        now_ms=np.full(batch, now_s * MS_PER_S),
        replica_state=np.full((batch, replicas), int(ReplicaState.READY), dtype=np.int8),
        scraped_at_ms=np.full((batch, replicas), now_s // SCRAPE_INTERVAL_S * SCRAPE_INTERVAL_S * MS_PER_S),
        running=np.full((batch, replicas), 4.0),
        waiting=np.zeros((batch, replicas)),
        kv_used_ratio=rng.uniform(0.1, 0.9, (batch, replicas)),
        answered=each,
        failed=np.zeros_like(each),
        latency_le=all_at_once(each),
        gateway=GatewayCounts(
            answered=answered,
            failed=np.zeros_like(answered),
            timed_out=np.zeros_like(answered),
            latency_le=all_at_once(flushed),
        ),
        consecutive_failed=np.zeros((batch, replicas), dtype=np.int64),
        fingerprint_match=np.ones((batch, replicas)),
        trace_fields_ratio=np.ones((batch, replicas)),
        offered=answered.sum(axis=2),
        engine=_synthetic_counters(now_s, batch, replicas),
        outside=np.zeros((batch, replicas)),
        probes=drawn,
    )


def all_at_once(answered: NDArray[np.int64]) -> NDArray[np.int64]:
    """Histograms [..., F, E + 1] with ``answered`` [...] requests below the first edge."""
    shape = (*answered.shape, len(LATENCY_FAMILIES), len(HISTOGRAM_EDGES_MS) + 1)
    return np.broadcast_to(answered[..., None, None], shape).copy()


def _synthetic_counters(now_s: float, batch: int, replicas: int) -> EngineCounters:
    """Four sequences that decode all the time; counters are known in the ticks of a scrape."""
    if now_s % SCRAPE_INTERVAL_S:
        return EngineCounters.unknown(batch, replicas)
    counted = {
        "span_s": SCRAPE_INTERVAL_S,
        "iterations": 1500.0,
        "prompt_tokens": 12000.0,
        "generation_tokens": 6000.0,
        "inter_token_s": 4.0 * SCRAPE_INTERVAL_S,
        "inter_tokens": 6000.0,
        "queue_s": 0.0,
        "admitted": 24.0,
        "finished": 24.0,
        "preemptions": 0.0,
    }
    return EngineCounters(**{name: np.full((batch, replicas), value) for name, value in counted.items()})


def synthetic_contract(
    layout: FleetLayout, clauses: Sequence[SyntheticClause], **changes: Any
) -> CompiledContract:
    """Contract of ``clauses`` over the slices of ``layout``; ``changes`` replace fields."""
    slices = len(layout.slices)

    def each(name: str, kind: type) -> NDArray[Any]:
        return np.array([getattr(clause, name) for clause in clauses], dtype=kind)

    limits = [clause.rate_limit for clause in clauses]
    contract = CompiledContract(
        name="synthetic",
        sha256="",
        slices=layout.slices,
        clause_ids=tuple(clause.name for clause in clauses),
        family=tuple(clause.family for clause in clauses),
        source=each("source", np.int64),
        column=each("column", np.int64),
        edge=each("edge", np.int64),
        threshold=each("threshold", np.float64),
        sense=each("sense", np.float64),
        is_rate=np.array([limit is not None for limit in limits]),
        rate_limit=np.array([1.0 if limit is None else limit for limit in limits]),
        clip=each("clip", np.float64),
        budget=np.where(each("hard", np.bool_), 0.0, 0.05),
        hard=each("hard", np.bool_),
        level=each("level", np.int64),
        weight=each("weight", np.float64),
        applies=np.array([clause.of(slices) for clause in clauses]),
        slo_ms=np.full((slices, len(LATENCY_FAMILIES)), 10000.0),
        priority=np.zeros(slices, dtype=np.int64),
        **_TERMS,
    )
    return replace(contract, **changes)


def _clauses() -> list[SyntheticClause]:
    return [
        SyntheticClause(
            name=f"C{index}",
            family=family,
            source=source,
            column=column,
            threshold=threshold,
            rate_limit=limit,
            hard=hard,
            level=level,
            edge=12 if source is Source.LATENCY else -1,
        )
        for index, (family, (source, column, threshold, limit, hard, level)) in enumerate(
            zip("NNNNRRRROO", _CLAUSES, strict=True)
        )
    ]
