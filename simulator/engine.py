"""The fleet engine: B independent fleets of continuously batching replicas, exact per request.

A replica's decode stretches are jumped over in closed form and replicas are advanced only when somebody
looks at them, so the cost is a few operations per request instead of one event per engine step; the
plain one-event-per-step oracle (``simulator.oracle``) gives the same times to round-off.

Whoever owns the clock (the SimPy fleet) feeds arrivals, advances to the instant of the next control tick
or fault, acts (``set_table``, ``set_effect``, ``crash`` ...) and reads. An action takes effect at the
fleet's current time, after everything that happens at that same instant.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator import engine_kernels as kernels
from simulator.engine_columns import CELL_COLUMNS, SLICE_COLUMNS
from simulator.engine_dtypes import ARRIVAL, FLEET, NOWHERE, REPLICA, REQUEST, SESSION, zeros
from simulator.engine_records import (
    REQUEST_RECORD,
    Arrivals,
    Counters,
    EngineSpec,
    Gauges,
    ReplicaEffect,
    RequestStatus,
)
from simulator.engine_validate import check_arrivals, check_effect, check_spec

_FIRST_ROOM = 1024


class FleetEngine:
    """``batch`` fleets of one layout. Results do not depend on ``batch`` nor on how often one advances.

    With ``keep_requests`` every request's record stays readable; otherwise records of ended requests
    are recycled, so memory is bounded by what is in flight and what is fed ahead.
    """

    def __init__(self, spec: EngineSpec, batch: int, *, keep_requests: bool = False) -> None:
        check_spec(spec)
        self.spec = spec
        self.batch = batch
        shape = (batch, spec.replicas, spec.slices)
        self._fleets = np.empty(batch, FLEET)
        self._fresh = _fresh_replicas(spec)
        self._replicas = zeros((batch, spec.replicas), REPLICA)
        self._arrivals = np.empty((batch, _FIRST_ROOM), ARRIVAL)
        self._requests = zeros((batch, _FIRST_ROOM), REQUEST)
        # Record numbers; those from ``in_use`` on are free, and taken in this order.
        self._free = np.empty((batch, _FIRST_ROOM), np.int32)
        self._sessions = np.empty((batch, spec.session_slots, spec.kernels), SESSION)
        self._table = np.empty((batch, spec.slices, spec.kernels + 1))
        self._row_changed = np.empty((batch, spec.slices))
        self._violating = np.empty(shape, np.int8)
        self._cells = np.empty((*shape, CELL_COLUMNS), np.int32)
        self._excess_tv = np.empty(shape)
        self._per_slice = np.empty((batch, spec.slices, SLICE_COLUMNS), np.int64)
        self._edges = np.asarray(spec.histogram_edges_ms, np.float64)
        self._histogram = np.empty((*shape, spec.families, self._edges.shape[0] + 1), np.int32)
        self._limits = np.array([spec.max_attempts, int(spec.sticky), int(keep_requests)], np.int64)
        self._timeout = np.ascontiguousarray(spec.timeout_s, np.float64)
        self._slo_ms = np.ascontiguousarray(spec.slo_ms, np.float64)
        self._quality = np.ascontiguousarray(spec.quality, np.float64)
        self._members = np.zeros((batch, spec.kernels, spec.replicas + 1), np.int64)
        self.restart()

    def restart(self) -> None:
        """Back to time 0, as newly made, in the memory that is there."""
        self._fleets[:] = 0
        self._fleets["retry_head"] = -1
        _bytes_of(self._replicas)[:] = _bytes_of(self._fresh)
        self._free[:] = np.arange(self._free.shape[1])
        for counts in (self._violating, self._cells, self._per_slice, self._histogram, self._sessions):
            _bytes_of(counts)[...] = 0
        for numbers in (self._row_changed, self._excess_tv, self._table):
            numbers.fill(0.0)
        self._table[:, :, 0] = 1.0
        # Beside that of the records, which lie far apart.
        self._in_rotation = np.ones(self._violating.shape[:2], np.bool_)
        self._effects = [[ReplicaEffect()] * self.spec.replicas for _ in range(self.batch)]
        self._rebuild_members(np.zeros(1, np.int64))
        self._members[:] = self._members[0]

    @property
    def now_s(self) -> NDArray[np.float64]:
        """Current time of each fleet, float64 [B]."""
        return self._fleets["now"].copy()

    # ------------------------------------------------------------ what goes in

    def feed(self, fleet: int, arrivals: Arrivals) -> None:
        """Append arrivals; they may not lie before the fleet's current time or earlier arrivals.

        Raises ``ValueError`` for times out of order, indices out of range, or a request that could never
        fit the KV cache of every kernel.
        """
        check_arrivals(self.spec, arrivals, after_s=self._last_fed_s(fleet))
        self._make_room(fleet, len(arrivals))
        kernels.feed_arrivals(
            fleet, self._fleets, self._arrivals, arrivals.arrived_s, arrivals.slice,
            arrivals.prompt_tokens, arrivals.output_tokens, arrivals.session, arrivals.prompt,
            arrivals.uniforms,
        )  # fmt: skip

    def feed_records(self, fleet: int, records: NDArray[np.void]) -> None:
        """Append arrivals as records ``ARRIVAL`` [n] of a stream whose workload has been checked."""
        self._make_room(fleet, len(records))
        kernels.feed_records(fleet, self._fleets, self._arrivals, records)

    def set_table(self, table: NDArray[np.float64]) -> None:
        """Route by ``table`` float64 [B, S, K + 1] from now on; the last column is shed."""
        if table.shape != self._table.shape:
            raise ValueError(f"table: expected shape {self._table.shape}, got {table.shape}")
        kernels.set_table(self._fleets, table, self._table, self._row_changed)

    def set_rotation(self, in_rotation: NDArray[np.bool_]) -> None:
        """Balance only over these replicas, bool [B, R]; the others finish what they have."""
        moved = in_rotation != self._in_rotation
        if not moved.any():
            return
        self._in_rotation[:] = in_rotation
        self._replicas["in_rotation"] = in_rotation
        self._rebuild_members(np.nonzero(moved.any(axis=1))[0])
        self._mark_changed(self._rows_using(moved))

    def set_violating(self, violating: NDArray[np.bool_]) -> None:
        """Ground truth for the exposure counters, bool [B, R, S]; only hard slices are counted."""
        np.copyto(self._violating, violating & self.spec.hard_slices, casting="unsafe")

    # ------------------------------------------------------------ what goes wrong

    def effect(self, fleet: int, replica: int) -> ReplicaEffect:
        """The effect in force on one replica."""
        return self._effects[fleet][replica]

    def set_effect(self, fleet: int, replica: int, effect: ReplicaEffect) -> None:
        """Change one replica now: the engine step under way ends as it began, the next one differs.

        Tokens made until that step boundary keep the old condition. Setting the effect in force again
        changes nothing, byte for byte; nor does a change of condition alone change any time.
        """
        check_effect(self.spec, effect)
        before = self._effects[fleet][replica]
        self._effects[fleet][replica] = effect
        reps, requests = self._replicas[fleet], self._requests[fleet]
        now = float(self._fleets["now"][fleet])
        if effect.condition != before.condition:
            kernels.set_condition(reps, replica, effect.condition, now, requests, self._quality)
        _apply_effect(self.spec, reps, replica, effect)
        if _speed(effect) != _speed(before):
            kernels.replan(reps, replica, now, requests)

    def crash(self, fleet: int, replica: int) -> None:
        """Kill one replica: what had streamed a token fails, the rest is retried elsewhere at once.

        It stays in the balancing set (until ``set_rotation``) and refuses connections until ``start``.
        Its effect stays in force.
        """
        kernels.crash_replica(
            fleet, replica, self._fleets, self._replicas, self._requests, self._cells, self._timeout,
            self._limits,
        )  # fmt: skip
        self.advance_one(fleet, float(self._fleets["now"][fleet]))

    def start(self, fleet: int, replica: int, delay_s: float = 0.0) -> None:
        """Let a dead replica accept connections, empty and with a clean cache, after ``delay_s``."""
        self._replicas["alive_at"][fleet, replica] = self._fleets["now"][fleet] + delay_s

    def flush_cache(self, fleet: int, replica: int) -> None:
        """Forget cached prefixes, and with them those computed under a fault."""
        self._replicas["cache_epoch"][fleet, replica] += 1

    # ------------------------------------------------------------ time

    def advance(self, until_s: float) -> None:
        """Advance every fleet to ``until_s``, arrivals and step ends at ``until_s`` included."""
        self._advance(0, self.batch, until_s)

    def advance_one(self, fleet: int, until_s: float) -> None:
        """Advance one fleet to ``until_s``."""
        self._advance(fleet, fleet + 1, until_s)

    def _advance(self, first: int, stop: int, until_s: float) -> None:
        stuck = kernels.advance_fleets(
            first, stop, float(until_s), self._fleets, self._replicas, self._arrivals, self._requests,
            self._free, self._table, self._members, self._sessions, self._row_changed, self._violating,
            self._timeout, self._quality, self._slo_ms, self._edges, self._limits, self._cells,
            self._excess_tv, self._per_slice, self._histogram,
        )  # fmt: skip
        if stuck != NOWHERE:
            self._add_records()
            self._advance(stuck, stop, until_s)

    # ------------------------------------------------------------ what comes out

    def take_counters(self) -> Counters:
        """Counts since the previous call, then start again from zero."""
        cells = np.empty(self._cells.shape, np.int64)
        per_slice = np.empty(self._per_slice.shape, np.int64)
        excess_tv = np.zeros(self._row_changed.shape)
        busy_s = np.empty(self._replicas.shape)
        kernels.take(
            self._fleets, self._replicas, self._cells, self._excess_tv, self._per_slice,
            cells, excess_tv, per_slice, busy_s,
        )  # fmt: skip
        return Counters(cells=cells, per_slice=per_slice, excess_tv_tokens=excess_tv, busy_s=busy_s)

    @property
    def latency_counts(self) -> NDArray[np.int32]:
        """Answers per latency bucket since the start, int32 [B, R, S, F, E + 1]: a live view, copy it.

        Not summed over edges; bucket e holds values in ``(edge[e-1], edge[e]]``, the last is open.
        """
        return self._histogram

    def gauges(self) -> Gauges:
        """State of every replica at its fleet's current time."""
        counts = np.empty((5, *self._replicas.shape), np.int64)
        kv_used = np.empty(self._replicas.shape)
        kernels.read_gauges(self._fleets, self._replicas, counts, kv_used)
        return Gauges(counts=counts, kv_used_ratio=kv_used)

    def requests(self, fleet: int) -> NDArray[np.void]:
        """Records (``REQUEST_RECORD``) of all requests routed so far, in order of arrival.

        Raises ``ValueError`` unless the engine was made with ``keep_requests``.
        """
        if not self._limits[2]:
            raise ValueError("requests: expected an engine made with keep_requests=True, got one without")
        count = int(self._fleets["in_use"][fleet])
        return _request_records(self._requests[fleet, :count], self.spec.replica_kernel)

    @property
    def room(self) -> int:
        """Request records per fleet that memory is held for."""
        return int(self._requests.shape[1])

    # ------------------------------------------------------------ housekeeping

    def _last_fed_s(self, fleet: int) -> float:
        fed, now = int(self._fleets["fed"][fleet]), float(self._fleets["now"][fleet])
        if fed == 0:
            return now
        ring = self._arrivals["arrived"][fleet]
        return max(now, float(ring[(fed - 1) % ring.shape[0]]))

    def _make_room(self, fleet: int, count: int) -> None:
        """Room for ``count`` more arrivals."""
        state = self._fleets[fleet]
        ahead = int(state["fed"] - state["cursor"]) + count
        size = self._arrivals.shape[1]
        if ahead > size:
            grown = np.empty((self.batch, _doubled(size, ahead)), ARRIVAL)
            kernels.move_arrivals(self._fleets, self._arrivals, grown)
            self._arrivals = grown

    def _add_records(self) -> None:
        """Twice the room for requests in flight."""
        size = self._requests.shape[1]
        grown = zeros((self.batch, 2 * size), REQUEST)
        old = _bytes_of(self._requests)
        _bytes_of(grown)[:, : old.shape[1]] = old
        more = np.arange(size, 2 * size, dtype=np.int32)
        self._free = np.hstack([self._free, np.tile(more, (self.batch, 1))])
        self._requests = grown

    def _mark_changed(self, rows: NDArray[np.bool_]) -> None:
        now = np.broadcast_to(self._fleets["now"][:, None], rows.shape)
        self._row_changed[rows] = now[rows]

    def _rows_using(self, moved: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Rows bool [B, S] that give weight to the kernel of a moved replica [B, R]."""
        kernel_moved = np.zeros((self.batch, self.spec.kernels), np.bool_)
        for r, k in enumerate(self.spec.replica_kernel):
            kernel_moved[:, k] |= moved[:, r]
        used = (self._table[:, :, :-1] > 0.0) & kernel_moved[:, None, :]
        return np.asarray(used.any(axis=2), np.bool_)

    def _rebuild_members(self, fleets: NDArray[np.int64]) -> None:
        """``members[b, k]`` = how many replicas of k are in rotation, then which."""
        self._members[fleets] = 0
        for b in fleets:
            in_rotation = self._in_rotation[b]
            for k in range(self.spec.kernels):
                (at,) = np.nonzero((self.spec.replica_kernel == k) & in_rotation)
                self._members[b, k, 0] = at.shape[0]
                self._members[b, k, 1 : 1 + at.shape[0]] = at


def warm() -> None:
    """Compile, or load from the on-disk cache, everything compiled, before work is forked."""
    one = np.ones(1, np.int64)
    spec = EngineSpec(
        replica_kernel=np.zeros(1, np.int64),
        step_model=np.full((1, 4), 1e-3),
        kv_blocks=np.full(1, 64),
        timeout_s=np.ones(1),
        slo_ms=np.ones((1, 3)),
        quality=np.zeros((1, 2, 1)),
        hard_slices=np.zeros(1, np.bool_),
        session_slots=1,
    )
    engine = FleetEngine(spec, 1)
    zero = np.zeros(1, np.int64)
    request = Arrivals(
        arrived_s=np.zeros(1),
        slice=zero,
        prompt_tokens=one,
        output_tokens=one,
        session=-one,
        prompt=zero,
        uniforms=np.zeros((1, 4)),
    )
    for _ in range(2 * _FIRST_ROOM):
        engine.feed(0, request)
    engine.feed_records(0, np.zeros(1, ARRIVAL))
    engine.advance(0.0)
    engine.set_effect(0, 0, ReplicaEffect(condition=1, step_time_factor=2.0))
    engine.crash(0, 0)
    engine.set_table(np.ones((1, 1, 2)))
    engine.take_counters()
    engine.gauges()


def _bytes_of(records: NDArray[Any]) -> NDArray[np.uint8]:
    """A view [B, bytes of a fleet], because numpy copies records field by field, and slowly."""
    return records.view(np.uint8).reshape(records.shape[0], -1)


def _fresh_replicas(spec: EngineSpec) -> NDArray[np.void]:
    """The replicas of one fleet at time 0, [1, R]."""
    replicas = zeros((1, spec.replicas), REPLICA)
    replicas["end"] = np.inf
    replicas["deadline"] = np.inf
    replicas["soonest"] = 2**31 - 1
    replicas["in_rotation"] = 1
    replicas["ended_head"] = -1
    replicas["kernel"] = spec.replica_kernel
    replicas["all_blocks"] = spec.kv_blocks[spec.replica_kernel]
    replicas["watermark"] = spec.watermark_blocks
    replicas["block_shift"] = spec.block_tokens.bit_length() - 1
    replicas["max_batch"] = spec.max_batch
    replicas["token_budget"] = spec.token_budget
    replicas["queue_limit"] = spec.queue_limit
    for r in range(spec.replicas):
        _apply_effect(spec, replicas[0], r, ReplicaEffect())
    return replicas


def _apply_effect(spec: EngineSpec, reps: NDArray[np.void], replica: int, effect: ReplicaEffect) -> None:
    """Write the fields of ``effect`` that the next step or the next attempt reads."""
    kernel = int(spec.replica_kernel[replica])
    c0, c1, c2, c3 = spec.step_model[kernel] * effect.step_time_factor
    row = reps[replica]
    row["c0"], row["c1"], row["c2"], row["c3"] = c0 + effect.step_extra_s, c1, c2, c3
    row["hang"] = int(effect.hang)
    row["blocks"] = int(spec.kv_blocks[kernel] * (1.0 - effect.kv_held_ratio))
    row["error_ratio"] = effect.http_error_ratio
    row["lag"] = effect.http_latency_s


def _speed(effect: ReplicaEffect) -> tuple[float, float, bool, float]:
    """The part of an effect that changes when engine steps end."""
    return effect.step_time_factor, effect.step_extra_s, effect.hang, effect.kv_held_ratio


def _doubled(size: int, needed: int) -> int:
    """``size`` doubled until it holds ``needed``."""
    while size < needed:
        size *= 2
    return size


def _request_records(kept: NDArray[np.void], replica_kernel: NDArray[np.int64]) -> NDArray[np.void]:
    out = np.zeros(kept.shape[0], REQUEST_RECORD)
    out["id"] = np.arange(kept.shape[0])
    for name in ("replica", "slice", "status", "attempts", "preemptions", "prompt_tokens", "output_tokens"):
        out[name] = kept[name]
    out["kernel"] = np.where(out["replica"] < 0, -1, replica_kernel[out["replica"]])
    out["arrived_s"] = kept["arrived"]
    for name, field in (("routed_s", "routed"), ("started_s", "started")):
        out[name] = np.where(kept[field] < 0.0, np.nan, kept[field])
    answered = out["status"] == RequestStatus.ANSWERED
    ended = kept["deadline"] + np.where(answered, kept["lag"], 0.0)
    out["finished_s"] = np.where(out["status"] == RequestStatus.IN_FLIGHT, np.nan, ended)
    out["first_token_s"] = np.where(kept["first"] < 0.0, np.nan, kept["first"] + kept["lag"])
    out["excess_tv_tokens"] = np.where(answered, kept["excess_tv"], np.nan)
    return out
