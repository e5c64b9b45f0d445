"""The engine's memory: allocated from a spec, reset to time 0, and grown when needed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.engine.control import move_arrivals
from simulator.engine.counters import CELL_COLUMNS, SLICE_COLUMNS
from simulator.engine.layout import ARRIVAL, FLEET, NEVER, NONE, REPLICA, REQUEST, SESSION, zeros
from simulator.engine.memory import EngineMemory, Rules
from simulator.engine.spec import EngineEffect, EngineSpec

#: Initial number of arrivals and request records for which memory is allocated.
FIRST_RECORDS = 1024


def rules_of(spec: EngineSpec, *, keep_requests: bool) -> Rules:
    """Settings that all fleets of ``spec`` share."""
    return Rules(
        timeout_s=np.ascontiguousarray(spec.timeout_s, np.float64),
        quality=np.ascontiguousarray(spec.quality, np.float64),
        slo_ms=np.ascontiguousarray(spec.slo_ms, np.float64),
        edges_ms=np.asarray(spec.histogram_edges_ms, np.float64),
        max_attempts=spec.max_attempts,
        sticky=spec.sticky,
        keep_requests=keep_requests,
    )


def allocated(spec: EngineSpec, batch: int) -> EngineMemory:
    """Memory of ``batch`` fleets; ``begin`` must follow."""
    shape = (batch, spec.replicas, spec.slices)
    buckets = len(spec.histogram_edges_ms) + 1
    return EngineMemory(
        fleets=np.empty(batch, FLEET),
        replicas=zeros((batch, spec.replicas), REPLICA),
        arrivals=np.empty((batch, FIRST_RECORDS), ARRIVAL),
        requests=zeros((batch, FIRST_RECORDS), REQUEST),
        free=np.empty((batch, FIRST_RECORDS), np.int32),
        table=np.empty((batch, spec.slices, spec.kernels + 1)),
        members=np.zeros((batch, spec.kernels, spec.replicas + 1), np.int64),
        sessions=np.empty((batch, spec.session_slots, spec.kernels), SESSION),
        row_changed_at_s=np.empty((batch, spec.slices)),
        violating=np.empty(shape, np.int8),
        cells=np.empty((*shape, CELL_COLUMNS), np.int32),
        excess_tv=np.empty(shape),
        useful=np.empty(shape),
        per_slice=np.empty((batch, spec.slices, SLICE_COLUMNS), np.int64),
        histogram=np.empty((*shape, spec.families, buckets), np.int32),
        served=np.empty((batch, spec.replicas, spec.families, buckets), np.int32),
    )


def begin(memory: EngineMemory, fresh: NDArray[np.void]) -> None:
    """Reset ``memory`` to time 0, except its members; ``fresh`` [1, R]: the replicas of one fleet."""
    memory.fleets[:] = 0
    memory.fleets["retry_head"] = NONE
    _bytes_of(memory.replicas)[:] = _bytes_of(fresh)
    memory.free[:] = np.arange(memory.free.shape[1])
    latencies, cells = (memory.histogram, memory.served), (memory.cells, memory.per_slice)
    for counts in (memory.violating, memory.sessions, *cells, *latencies):
        _bytes_of(counts)[...] = 0
    for numbers in (memory.row_changed_at_s, memory.excess_tv, memory.useful, memory.table):
        numbers.fill(0.0)
    memory.table[:, :, 0] = 1.0


def fresh_replicas(spec: EngineSpec) -> NDArray[np.void]:
    """The replicas of one fleet at time 0, [1, R]."""
    replicas = zeros((1, spec.replicas), REPLICA)
    replicas["ends_at_s"] = np.inf
    replicas["deadline_at_s"] = np.inf
    replicas["first_completion"] = NEVER
    replicas["in_rotation"] = 1
    replicas["ended_head"] = NONE
    replicas["kernel"] = spec.replica_kernel
    replicas["all_blocks"] = spec.kv_blocks[spec.replica_kernel]
    replicas["watermark_blocks"] = spec.watermark_blocks
    replicas["block_shift"] = spec.block_tokens.bit_length() - 1
    replicas["max_batch"] = spec.max_batch
    replicas["token_budget"] = spec.token_budget
    replicas["queue_limit"] = spec.queue_limit
    for at in range(spec.replicas):
        write_effect(spec, replicas[0], at, EngineEffect())
    return replicas


def write_effect(spec: EngineSpec, replicas: NDArray[np.void], at: int, effect: EngineEffect) -> None:
    """Write the fields of ``effect`` that the next step or attempt of replica ``at`` reads."""
    kernel = int(spec.replica_kernel[at])
    base_s, prefill_s, decode_s, context_s = spec.step_model[kernel] * effect.step_time_factor
    row = replicas[at]
    row["base_s"] = base_s + effect.step_extra_s
    row["prefill_s"], row["decode_s"], row["context_s"] = prefill_s, decode_s, context_s
    row["hang"] = int(effect.hang)
    row["only_slice"], row["after_tokens"] = effect.only_slice, effect.after_tokens
    row["min_batch"] = effect.min_batch
    row["blocks"] = int(spec.kv_blocks[kernel] * (1.0 - effect.kv_held_ratio))
    row["error_ratio"] = effect.http_error_ratio
    row["http_latency_s"] = effect.http_latency_s + spec.delay_s(kernel)


def with_space(memory: EngineMemory, fleet: int, count: int) -> EngineMemory:
    """``memory`` with space for ``count`` more arrivals of ``fleet``."""
    state = memory.fleets[fleet]
    ahead = int(state["fed"] - state["cursor"]) + count
    batch, size = memory.arrivals.shape
    if ahead <= size:
        return memory
    while size < ahead:
        size *= 2
    grown = np.empty((batch, size), ARRIVAL)
    move_arrivals(memory.fleets, memory.arrivals, grown)
    return memory._replace(arrivals=grown)


def with_records(memory: EngineMemory) -> EngineMemory:
    """``memory`` with twice as many request records."""
    batch, size = memory.requests.shape
    grown = zeros((batch, 2 * size), REQUEST)
    old = _bytes_of(memory.requests)
    _bytes_of(grown)[:, : old.shape[1]] = old
    more = np.arange(size, 2 * size, dtype=np.int32)
    free = np.hstack([memory.free, np.tile(more, (batch, 1))])
    return memory._replace(requests=grown, free=free)


def _bytes_of(records: NDArray[Any]) -> NDArray[np.uint8]:
    """A byte view [B, bytes of a fleet], because numpy copies records slowly, field by field."""
    return records.view(np.uint8).reshape(records.shape[0], -1)
