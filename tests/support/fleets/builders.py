"""Small builders of layouts, compiled contracts, telemetry and set-ups for tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import CompiledContract, FleetLayout
from contracts.telemetry import (
    EngineCounters,
    FleetTelemetry,
    GatewayCounts,
    ProbeOutcome,
    ProbeSamples,
    ReplicaState,
    Source,
)
from controller.fleet import FleetSetup
from policies.synthetic_fleet import METRICS, SyntheticClause, all_at_once, synthetic_contract

PROBE_METRICS = METRICS


Clause = SyntheticClause
DEFAULT_CLAUSES = (
    Clause(name="N-hard"),
    Clause(name="N-soft", column=1, threshold=0.2, hard=False, level=2),
    Clause(
        name="R-ttft",
        family="R",
        source=Source.LATENCY,
        column=1,
        edge=9,
        threshold=2000.0,
        rate_limit=0.05,
        hard=False,
        level=2,
    ),
    Clause(name="R-failed", family="R", source=Source.FAILED, threshold=0.5, rate_limit=0.02, hard=False),
    Clause(name="O-print", family="O", source=Source.FINGERPRINT, threshold=0.0, rate_limit=0.0),
)


def make_layout(
    kernels: int = 3, slices: int = 2, per_kernel: int = 3, known_good: int | None = None
) -> FleetLayout:
    """``per_kernel`` replicas of each kernel, kernel by kernel; the last kernel is known good."""
    owner = np.repeat(np.arange(kernels, dtype=np.int64), per_kernel)
    return FleetLayout(
        kernels=tuple(f"k{index}" for index in range(kernels)),
        slices=tuple(f"s{index}" for index in range(slices)),
        replicas=tuple(f"k{k}-{i}" for i, k in enumerate(owner)),
        replica_kernel=owner,
        probe_metrics=PROBE_METRICS,
        known_good=kernels - 1 if known_good is None else known_good,
    )


def make_contract(
    layout: FleetLayout, clauses: tuple[Clause, ...] = DEFAULT_CLAUSES, **changes: Any
) -> CompiledContract:
    """Compiled contract of ``clauses`` over the slices of ``layout``; ``changes`` replace fields."""
    terms: dict[str, Any] = {
        "name": "test",
        "sha256": "0" * 64,
        "budget": np.array([0.0 if clause.hard else (clause.rate_limit or 0.05) for clause in clauses]),
        "guard_threshold": 1.0,
        "window_s": 10.0,
        "min_samples": 5,
        "alarm_confidence": 0.99,
        "stale_after_s": 15.0,
    }
    return synthetic_contract(layout, clauses, **terms | changes)


def make_fleet(layout: FleetLayout | None = None, **changes: Any) -> FleetSetup:
    """Fleet set-up with ample capacity, every slice at home on kernel 0."""
    layout = layout or make_layout()
    kernels, slices, _ = layout.shape
    fleet = FleetSetup(
        layout=layout,
        contract=make_contract(layout),
        capacity_rps=np.full(kernels, 100.0),
        home=np.zeros(slices, dtype=np.int64),
    )
    return replace(fleet, **changes)


def no_probes(batch: int, slots: int, metrics: int = len(PROBE_METRICS)) -> ProbeSamples:
    """Probe arrays with every slot unused."""
    return ProbeSamples.of_results(
        replica=np.zeros((batch, slots), dtype=np.int64),
        slice=np.zeros((batch, slots), dtype=np.int64),
        prompt=np.zeros((batch, slots), dtype=np.int64),
        sampled_at_ms=np.full((batch, slots), np.nan),
        values=np.full((batch, slots, metrics), np.nan),
        valid=np.zeros((batch, slots), dtype=np.bool_),
    )


def quiet_telemetry(layout: FleetLayout, now_s: float, batch: int = 1) -> FleetTelemetry:
    """All replicas ready and freshly scraped, ten answers each per slice, no probe."""
    kernels, slices, replicas = layout.shape
    none = np.zeros((batch, replicas), dtype=np.int64)
    seen = FleetTelemetry(
        now_ms=np.full(batch, now_s * 1000.0),
        replica_state=np.full((batch, replicas), int(ReplicaState.READY), dtype=np.int8),
        scraped_at_ms=np.full((batch, replicas), now_s * 1000.0),
        running=np.full((batch, replicas), 2.0),
        waiting=np.zeros((batch, replicas)),
        kv_used_ratio=np.full((batch, replicas), 0.3),
        answered=none,
        failed=none,
        consecutive_failed=none,
        latency_le=all_at_once(none),
        gateway=GatewayCounts.nothing(batch, slices, kernels),
        fingerprint_match=np.ones((batch, replicas)),
        trace_fields_ratio=np.ones((batch, replicas)),
        offered=np.full((batch, slices), 10, dtype=np.int64),
        engine=EngineCounters.unknown(batch, replicas),
        outside=np.full((batch, replicas), np.nan),
        probes=no_probes(batch, 0),
    )
    return with_traffic(seen, layout, answered=np.full((batch, replicas, slices), 10, dtype=np.int64))


def with_traffic(
    seen: FleetTelemetry,
    layout: FleetLayout,
    *,
    answered: NDArray[np.int64],
    failed: NDArray[np.int64] | None = None,
    latency_le: NDArray[np.int64] | None = None,
) -> FleetTelemetry:
    """``seen`` with replicas' work on slices, as servers and gateway report it.

    ``answered``, ``failed``: [B, R, S]; ``latency_le`` [B, R, S, F, E + 1], by default below every edge.
    """
    failed = np.zeros_like(answered) if failed is None else failed
    latency_le = all_at_once(answered) if latency_le is None else latency_le
    of_kernel = np.eye(len(layout.kernels), dtype=np.int64)[layout.replica_kernel]  # [R, K]
    return replace(
        seen,
        answered=answered.sum(axis=2),
        failed=failed.sum(axis=2),
        latency_le=latency_le.sum(axis=2),
        gateway=GatewayCounts(
            answered=np.einsum("brs,rk->bsk", answered, of_kernel),
            failed=np.einsum("brs,rk->bsk", failed, of_kernel),
            timed_out=np.zeros((len(answered), len(layout.slices), len(layout.kernels)), dtype=np.int64),
            latency_le=np.einsum("brsfe,rk->bskfe", latency_le, of_kernel),
        ),
    )


def with_steps(seen: FleetTelemetry, stuck: NDArray[np.bool_]) -> FleetTelemetry:
    """``seen`` with counters of engines that step, except the ``stuck`` [B, R], which answer no probe."""
    counted = EngineCounters.unknown(*stuck.shape)
    counted.span_s[:], counted.iterations[:] = 1.0, np.where(stuck, 0.0, 40.0)
    answered = ~np.take_along_axis(stuck, seen.probes.replica, axis=1)
    outcome = np.where(answered, seen.probes.outcome, int(ProbeOutcome.NONE)).astype(np.int8)
    probes = replace(seen.probes, valid=seen.probes.valid & answered, outcome=outcome)
    return replace(seen, engine=counted, probes=probes)


def with_probes(
    telemetry: FleetTelemetry, layout: FleetLayout, values: NDArray[np.float64]
) -> FleetTelemetry:
    """One probe of every replica on every slice; ``values`` broadcasts to [B, R, S, M]."""
    _, slices, replicas = layout.shape
    batch = len(telemetry.now_ms)
    full = np.broadcast_to(values, (batch, replicas, slices, len(layout.probe_metrics)))
    slots = replicas * slices
    replica, slice_ = np.divmod(np.arange(slots), slices)
    probes = ProbeSamples.of_results(
        replica=np.tile(replica, (batch, 1)),
        slice=np.tile(slice_, (batch, 1)),
        prompt=np.tile(np.arange(slots), (batch, 1)),
        sampled_at_ms=np.repeat(telemetry.now_ms[:, None], slots, axis=1),
        values=full.reshape(batch, slots, -1).copy(),
        valid=(~np.isnan(full)).any(axis=3).reshape(batch, slots),
    )
    return replace(telemetry, probes=probes)
