"""The fleet engine: B independent fleets of continuously batching replicas, exact per request.

A replica's decode stretches are skipped in closed form (``simulator.engine.stretch``), and replicas are
advanced only when their state is needed. So the cost is a few operations per request instead of one event per
engine step. ``tests/reference/engine_oracle.py``, one event per step, gives the same times to round-off.

The owner of the clock (the SimPy fleet) feeds arrivals, advances to the instant of the next control tick
or fault, acts (``set_table``, ``set_effect``, ``crash`` ...) and reads. An action takes effect at the
fleet's current time, after everything that happens at that same instant.

Axes: B fleets, R replicas, S slices, K kernels, F latency families, E histogram edges.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simulator.engine import control
from simulator.engine.accounting import drain
from simulator.engine.advance import advance_fleets
from simulator.engine.counters import Counters
from simulator.engine.exported import MEASURED_COLUMNS
from simulator.engine.gauges import GAUGE_ROWS, Gauges
from simulator.engine.layout import NONE
from simulator.engine.memory import EngineMemory
from simulator.engine.requests import RequestArrivals, request_records
from simulator.engine.setup import (
    allocated,
    begin,
    fresh_replicas,
    rules_of,
    with_records,
    with_space,
    write_effect,
)
from simulator.engine.spec import EngineEffect, EngineSpec
from simulator.engine.validate import check_arrivals, check_effect, check_spec


class FleetEngine:
    """``batch`` fleets of one layout. Results depend neither on ``batch`` nor on how often time is advanced.

    With ``keep_requests`` every request's record stays readable. Otherwise records of ended requests are
    recycled, so memory is bounded by the requests in flight and the arrivals fed ahead.
    """

    def __init__(self, spec: EngineSpec, batch: int, *, keep_requests: bool = False) -> None:
        check_spec(spec)
        self.spec = spec
        self.batch = batch
        self._fresh = fresh_replicas(spec)
        self._rules = rules_of(spec, keep_requests=keep_requests)
        self._packed_rules = tuple(self._rules)
        self._hold(allocated(spec, batch))
        self.restart()

    def _hold(self, memory: EngineMemory) -> None:
        """Use ``memory`` from now on; compiled passes take it as a plain tuple."""
        self._memory = memory
        self._packed = tuple(memory)

    def restart(self) -> None:
        """Reset to time 0, as newly made, reusing the memory."""
        begin(self._memory, self._fresh)
        # A compact copy, because the records lie far apart in memory.
        self._in_rotation = np.ones((self.batch, self.spec.replicas), np.bool_)
        self._effects = [[EngineEffect()] * self.spec.replicas for _ in range(self.batch)]
        self._rebuild_members(np.zeros(1, np.int64))
        self._memory.members[:] = self._memory.members[0]

    @property
    def now_s(self) -> NDArray[np.float64]:
        """Current time of each fleet, float64 [B]."""
        return self._memory.fleets["now_s"].copy()

    # ------------------------------------------------------------ what goes in

    def feed(self, fleet: int, arrivals: RequestArrivals) -> None:
        """Append arrivals; they may not lie before the fleet's current time or earlier arrivals.

        Raises ``ValueError`` for times out of order, indices out of range, or a request that could never
        fit the KV cache of every kernel.
        """
        check_arrivals(self.spec, arrivals, after_s=self._last_fed_at_s(fleet))
        self.feed_records(fleet, arrivals.packed())

    def feed_records(self, fleet: int, records: NDArray[np.void]) -> None:
        """Append arrivals as records ``ARRIVAL`` [n] of a stream whose workload has been checked."""
        with_space_for = with_space(self._memory, fleet, len(records))
        if with_space_for is not self._memory:
            self._hold(with_space_for)
        control.feed_records(fleet, self._memory.fleets, self._memory.arrivals, records)

    def set_table(self, table: NDArray[np.float64]) -> None:
        """Route by ``table`` float64 [B, S, K + 1] from now on; the last column is shed."""
        memory = self._memory
        if table.shape != memory.table.shape:
            raise ValueError(f"table: expected shape {memory.table.shape}, got {table.shape}")
        control.set_table(memory.fleets, table, memory.table, memory.row_changed_at_s)

    def set_rotation(self, in_rotation: NDArray[np.bool_]) -> None:
        """Balance only over these replicas, bool [B, R]; the others finish what they have."""
        moved = in_rotation != self._in_rotation
        if not moved.any():
            return
        self._in_rotation[:] = in_rotation
        self._memory.replicas["in_rotation"] = in_rotation
        self._rebuild_members(np.nonzero(moved.any(axis=1))[0])
        self._mark_changed(self._rows_using(moved))

    def set_violating(self, violating: NDArray[np.bool_]) -> None:
        """Ground truth for the exposure counters, bool [B, R, S]; only hard slices are counted."""
        np.copyto(self._memory.violating, violating & self.spec.hard_slices, casting="unsafe")

    # ------------------------------------------------------------ what goes wrong

    def effect(self, fleet: int, replica: int) -> EngineEffect:
        """The effect in force on one replica."""
        return self._effects[fleet][replica]

    def set_effect(self, fleet: int, replica: int, effect: EngineEffect) -> None:
        """Change one replica now: the engine step under way ends as planned, the next one differs.

        Tokens made until that step boundary keep the old condition. Setting the present effect again changes
        nothing, byte for byte; a change of condition alone changes no time.
        """
        check_effect(self.spec, effect)
        before = self._effects[fleet][replica]
        self._effects[fleet][replica] = effect
        replicas, requests = self._memory.replicas[fleet], self._memory.requests[fleet]
        now_s = self._now_s(fleet)
        if effect.numbers != before.numbers:
            control.set_condition(replicas, replica, effect.condition, now_s, requests, self._rules.quality)
        write_effect(self.spec, replicas, replica, effect)
        if effect.speed != before.speed:
            control.change_speed(replicas, replica, now_s, requests)

    def crash(self, fleet: int, replica: int) -> None:
        """Kill one replica: requests that had streamed a token fail, the others are retried elsewhere.

        It stays in the balancing set and refuses connections until ``start``. Its effect stays in force.
        """
        control.crash_replica(fleet, replica, self._packed, self._packed_rules)
        self.advance_one(fleet, self._now_s(fleet))

    def reset_streams(self, fleet: int, replica: int) -> None:
        """End every open stream of one replica, as a gateway does for a hung one: requests with a streamed
        token fail, the others are retried elsewhere at once. The replica keeps its cache and its effect.
        """
        control.reset_replica(fleet, replica, self._packed, self._packed_rules)
        self.advance_one(fleet, self._now_s(fleet))

    def start(self, fleet: int, replica: int, delay_s: float = 0.0) -> None:
        """Let a dead replica accept connections, empty and with a clean cache, after ``delay_s``."""
        self._memory.replicas["alive_at_s"][fleet, replica] = self._memory.fleets["now_s"][fleet] + delay_s

    def flush_cache(self, fleet: int, replica: int) -> None:
        """Drop cached prefixes, including those computed under a fault."""
        self._memory.replicas["cache_epoch"][fleet, replica] += 1

    # ------------------------------------------------------------ time

    def advance(self, until_at_s: float) -> None:
        """Advance every fleet to ``until_at_s``, arrivals and step ends at ``until_at_s`` included."""
        self._advance(0, self.batch, until_at_s)

    def advance_one(self, fleet: int, until_at_s: float) -> None:
        """Advance one fleet to ``until_at_s``."""
        self._advance(fleet, fleet + 1, until_at_s)

    def _advance(self, first: int, stop: int, until_at_s: float) -> None:
        stuck = advance_fleets(first, stop, float(until_at_s), self._packed, self._packed_rules)
        if stuck != NONE:
            self._hold(with_records(self._memory))
            self._advance(stuck, stop, until_at_s)

    # ------------------------------------------------------------ what comes out

    def drain_counters(self) -> Counters:
        """Counts since the previous call; resets them to zero."""
        memory = self._memory
        cells = np.empty(memory.cells.shape, np.int64)
        per_slice = np.empty(memory.per_slice.shape, np.int64)
        excess_tv, useful = (np.zeros(memory.row_changed_at_s.shape) for _ in range(2))
        busy_s = np.empty(memory.replicas.shape)
        out = cells, excess_tv, useful, per_slice, busy_s
        tokens = memory.excess_tv, memory.useful
        drain(memory.fleets, memory.replicas, memory.cells, tokens, memory.per_slice, out)
        return Counters(
            cells=cells,
            per_slice=per_slice,
            excess_tv_tokens=excess_tv,
            useful_tokens=useful,
            busy_s=busy_s,
        )

    @property
    def latency_counts(self) -> NDArray[np.int32]:
        """Answers per latency bucket since the start, int32 [B, R, S, F, E + 1]: a live view, copy it.

        Not summed over edges; bucket e holds values in ``(edge[e-1], edge[e]]``, the last is open.
        """
        return self._memory.histogram

    @property
    def served_counts(self) -> NDArray[np.int32]:
        """The same answers as the servers count them, int32 [B, R, F, E + 1]: a live view, copy it.

        Times begin at the request's receipt: without earlier attempts and network delay.
        """
        return self._memory.served

    def gauges(self) -> Gauges:
        """State of every replica at its fleet's current time."""
        memory, shape = self._memory, self._memory.replicas.shape
        counts, measured = np.empty((GAUGE_ROWS, *shape), np.int64), np.empty((*shape, MEASURED_COLUMNS))
        control.read_gauges(memory.fleets, memory.replicas, memory.requests, counts, measured)
        return Gauges(counts=counts, measured=measured)

    def requests(self, fleet: int) -> NDArray[np.void]:
        """Records (``REQUEST_RECORD``) of all requests routed so far, in order of arrival.

        Raises ``ValueError`` unless the engine was made with ``keep_requests``.
        """
        if not self._rules.keep_requests:
            raise ValueError("requests: expected an engine made with keep_requests=True, got one without")
        count = int(self._memory.fleets["in_use"][fleet])
        return request_records(self._memory.requests[fleet, :count], self.spec.replica_kernel)

    @property
    def record_space(self) -> int:
        """Request records per fleet for which memory is allocated."""
        return int(self._memory.requests.shape[1])

    # ------------------------------------------------------------ housekeeping

    def _now_s(self, fleet: int) -> float:
        return float(self._memory.fleets["now_s"][fleet])

    def _last_fed_at_s(self, fleet: int) -> float:
        fed = int(self._memory.fleets["fed"][fleet])
        if fed == 0:
            return self._now_s(fleet)
        ring = self._memory.arrivals["arrived_at_s"][fleet]
        return max(self._now_s(fleet), float(ring[(fed - 1) % ring.shape[0]]))

    def _mark_changed(self, rows: NDArray[np.bool_]) -> None:
        now_s = np.broadcast_to(self._memory.fleets["now_s"][:, None], rows.shape)
        self._memory.row_changed_at_s[rows] = now_s[rows]

    def _rows_using(self, moved: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Rows bool [B, S] that give weight to the kernel of a moved replica [B, R]."""
        kernel_moved = np.zeros((self.batch, self.spec.kernels), np.bool_)
        for r, k in enumerate(self.spec.replica_kernel):
            kernel_moved[:, k] |= moved[:, r]
        used = (self._memory.table[:, :, :-1] > 0.0) & kernel_moved[:, None, :]
        return np.asarray(used.any(axis=2), np.bool_)

    def _rebuild_members(self, fleets: NDArray[np.int64]) -> None:
        """``members[b, k]`` = the number of replicas of k in rotation, then their numbers."""
        members = self._memory.members
        members[fleets] = 0
        for b in fleets:
            in_rotation = self._in_rotation[b]
            for k in range(self.spec.kernels):
                (at,) = np.nonzero((self.spec.replica_kernel == k) & in_rotation)
                members[b, k, 0] = at.shape[0]
                members[b, k, 1 : 1 + at.shape[0]] = at


def warm() -> None:
    """Compile all compiled functions, or load them from the on-disk cache, before work is forked."""
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
    tokens = dict.fromkeys(("prompt_tokens", "output_tokens"), one)
    request = RequestArrivals(
        arrived_at_s=np.zeros(1), slice=zero, session=-one, prompt=zero, uniforms=np.zeros((1, 4)), **tokens
    )
    for _ in range(2 * engine.record_space):
        engine.feed(0, request)
    engine.advance(0.0)
    engine.set_effect(0, 0, EngineEffect(condition=1, step_time_factor=2.0))
    engine.reset_streams(0, 0)
    engine.crash(0, 0)
    engine.set_table(np.ones((1, 1, 2)))
    engine.drain_counters()
    engine.gauges()
