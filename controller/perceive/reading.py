"""Adds the observations of one telemetry to the sums of the clauses that read them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import CompiledContract
from contracts.telemetry import FleetTelemetry, Source
from controller.cells import News, pool_news
from controller.detect.clauses import (
    failing_clauses,
    from_traffic,
    own_clock,
    probe_clauses,
    replica_places,
)
from controller.options import ControllerSetup
from controller.perceive.accumulate import Clauses, GatewayBatch, Probes, Scrapes, Sinks, accumulate_tick
from controller.perceive.excuse_pass import Overload
from controller.perceive.reception import Clocks
from controller.perceive.step_time import of_gauges
from controller.state import ControllerState, not_evidence_for_kernel, out_as_hung

#: Contiguous: numba would compile once more for other strides.
plain = np.ascontiguousarray


def sinks_for(state: ControllerState, setup: ControllerSetup, consume: bool) -> Sinks:
    """Arrays to which this tick's observations are added."""
    window = state.window if consume else state.window.copy()
    kernel_window = state.kernel_window if consume else state.kernel_window.copy()
    fleets = len(window) if setup.detector.by_observation else 0
    return Sinks(
        window=window,
        sums=np.zeros((fleets, *window.shape[1:])),
        news=np.zeros((fleets, *window.shape[1:3]), dtype=np.bool_),
        probed_at_s=state.probed_at_s.copy(),
        kernel_window=kernel_window,
        kernel_sums=np.zeros((fleets, *kernel_window.shape[1:])),
        kernel_news=np.zeros((fleets, *kernel_window.shape[1:3]), dtype=np.bool_),
    )


def add_observations(
    sinks: Sinks,
    telemetry: FleetTelemetry,
    clocks: Clocks,
    overload: Overload,
    state: ControllerState,
    contract: CompiledContract,
    step_time_ratio: NDArray[np.float64],
) -> None:
    """Add this tick's observations to ``sinks``, in place."""
    probes = telemetry.probes
    samples = Probes(
        plain(probes.replica),
        plain(probes.slice),
        plain(probes.sampled_at_ms),
        plain(probes.values),
        clocks.received,
    )
    scrapes = Scrapes(
        plain(telemetry.answered),
        plain(telemetry.failed),
        np.where(out_as_hung(state.quarantined, state.quarantine_reason), 0, telemetry.failed),
        plain(telemetry.latency_le),
        plain(telemetry.fingerprint_match),
        plain(telemetry.trace_fields_ratio),
        plain(telemetry.kv_used_ratio),
        step_time_ratio,
        clocks.fresh,
    )
    counts = telemetry.gateway
    ended = plain(counts.answered), plain(counts.failed), plain(counts.timed_out)
    apart = not_evidence_for_kernel(state)
    gateway = GatewayBatch(*ended, plain(counts.latency_le), apart)
    accumulate_tick(
        tuple(sinks), tuple(samples), tuple(scrapes), tuple(gateway), _read_clauses(contract), tuple(overload)
    )


def pool_replicas(sinks: Sinks, members: NDArray[np.bool_], setup: ControllerSetup) -> None:
    """Add observations by probes and gauges of the replicas ``members`` bool [B, R] to their kernels."""
    target, source = News(sinks.kernel_sums, sinks.kernel_news), News(sinks.sums, sinks.news)
    pool_news(target, source, members, setup.layout.replica_kernel, _of_replicas(setup.contract))


@lru_cache(maxsize=64)
def _of_replicas(contract: CompiledContract) -> NDArray[np.int64]:
    """Places of the clauses on which a kernel is judged by observations of its replicas."""
    return np.flatnonzero(~from_traffic(contract) & ~own_clock(contract))


@lru_cache(maxsize=64)
def _read_clauses(contract: CompiledContract) -> tuple[NDArray[Any], ...]:
    """``accumulate.Clauses`` of ``contract`` as a plain tuple, for compiled code."""
    source = contract.source
    clauses = Clauses(
        probes=probe_clauses(contract),
        requests=np.flatnonzero(from_traffic(contract)),
        failing=failing_clauses(contract),
        latency=np.flatnonzero(source == Source.LATENCY),
        gauges=np.flatnonzero(of_gauges(source)),
        source=source,
        column=contract.column,
        edge=contract.edge,
        threshold=contract.threshold,
        sense=contract.sense,
        clip=contract.clip,
        applies=np.ascontiguousarray(contract.applies),
        place=_places(contract),
    )
    return tuple(clauses)


def _places(contract: CompiledContract) -> NDArray[np.int64]:
    """int64 [C]: the first slice of ``replica_places``; -1 where there is none."""
    booked = replica_places(contract)
    return np.where(booked.any(axis=0), np.argmax(booked, axis=0), -1)
