"""Simulated probes: measured values of golden prompts, replayed by id under a stated budget.

A replica computes one probe every ``1 / probes_per_s`` seconds, round robin over the slices, and within a
slice through that slice's probe prompts in an order drawn once per fleet and replica. The result is the
measurement of (kernel, condition in force, prompt, repeat); no independent noise is added. Only with
``repeat_noise`` above 0 (hosts that are not bit-exact) is each value multiplied by ``exp(repeat_noise * z)``,
z standard normal.

A probe counts for the tick in which the replica computes it. A dead or starting replica refuses it. It times
out (``PROBE_LIMIT_S``) on a hung replica, or if its latency is too long: the wait of the head of the queue,
1.5 steps, the prefill and the network delay. Errors strike probes too. Quarantined replicas are probed too.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.jit import borrowed, compiled
from contracts.rng import stream
from contracts.telemetry import ProbeOutcome, ProbeSamples
from contracts.units import MS_PER_S
from simulator.engine.gauges import Gauges
from simulator.telemetry.timetables import (
    ProbeSlots,
    ProbeTimetable,
    probe_plan,
    repeats_of,
    schedule,
    slots_per_replica,
)
from simulator.world.compiled_scenario import CompiledScenario

#: Time limit of a probe, in s; a later answer counts as a timeout.
PROBE_LIMIT_S = 2.0
# Plain integers, because compiled code cannot use the enumeration.
NONE, ANSWERED = int(ProbeOutcome.NONE), int(ProbeOutcome.ANSWERED)
FAILED, TIMED_OUT = int(ProbeOutcome.FAILED), int(ProbeOutcome.TIMED_OUT)


class Measured(NamedTuple):
    """Measured values of probes and their prompts. P slots, U probe prompts, J repeats, M metrics."""

    values: NDArray[np.float64]  # [K, Q, U, J, M]
    slice_of: NDArray[np.int64]  # [U]
    id_of: NDArray[np.int64]  # [U]
    tokens_of: NDArray[np.int64]  # [U]
    replica: NDArray[np.int64]  # [P]
    kernel: NDArray[np.int64]  # [P]


class States(NamedTuple):
    """State of the replicas when their probes are computed."""

    condition: NDArray[np.int64]  # [B, P]
    outcome: NDArray[np.int8]  # [B, P] a ``ProbeOutcome``
    since_at_s: NDArray[np.float64]  # [B, R] start of each replica's newest outcome
    delivered: NDArray[np.bool_]  # [B, R] whether results arrive
    step_s: NDArray[np.float64]  # [B, R] of the engine; NaN where unknown
    prefill_s: NDArray[np.float64]  # [B, R] per token of a prompt
    queue_s: NDArray[np.float64]  # [B, R] wait of the head of the queue
    return_s: NDArray[np.float64]  # [B, R] delay of the answer


class Results(NamedTuple):
    """Results of one tick. P slots, M metrics."""

    slices: NDArray[np.int64]  # [B, P]
    prompts: NDArray[np.int64]  # [B, P] ids
    sampled_at_ms: NDArray[np.float64]  # [B, P]
    values: NDArray[np.float64]  # [B, P, M]
    valid: NDArray[np.bool_]  # [B, P]
    outcome: NDArray[np.int8]  # [B, P]
    latency_ms: NDArray[np.float64]  # [B, P]


class SimulatedProbes:
    """The probes of B fleets, tick by tick; ``slots`` are those of the open tick."""

    def __init__(self, scenario: CompiledScenario, seeds: list[int]) -> None:
        self._scenario, slots = scenario, slots_per_replica(scenario)
        replicas = len(scenario.layout.replicas)
        self._packed_plan = tuple(probe_plan(scenario, seeds))
        replica = np.repeat(np.arange(replicas, dtype=np.int64), slots)
        shape = len(seeds), replica.size
        self._owner = np.broadcast_to(replica, shape)
        self._replica = replica
        self.slots = ProbeSlots(
            place=np.zeros(shape, dtype=np.int64),
            repeat=np.zeros(shape, dtype=np.int64),
            at_s=np.full(shape, np.inf),
        )
        self._packed_slots = tuple(self.slots)
        prompts = scenario.prompts
        self._measured = Measured(
            values=np.ascontiguousarray(_values(scenario)),
            slice_of=prompts.probe_slice,
            id_of=prompts.probe_ids,
            tokens_of=prompts.probe_tokens,
            replica=replica,
            kernel=scenario.layout.replica_kernel[replica],
        )
        self._packed_measured = tuple(self._measured)
        self._noise = scenario.telemetry.repeat_noise
        self._rngs = [stream(seed, "repeat_noise") for seed in seeds] if self._noise > 0.0 else []
        self._error_rngs = [stream(seed, "probe_errors") for seed in seeds]
        self._condition = np.zeros(shape, dtype=np.int64)
        self._outcome = np.zeros(shape, dtype=np.int8)
        self._latest = np.full((len(seeds), replicas), ANSWERED, dtype=np.int8)
        self._since_at_s = np.full((len(seeds), replicas), -np.inf)

    def open(self, tick: int, condition: NDArray[np.int64], outcome: NDArray[np.int8]) -> None:
        """Begin ``tick`` with the states of the replicas; ticks must be opened in order, from 0.

        ``condition`` int64 [B, R], ``outcome`` int8 [B, R], a ``ProbeOutcome`` each.
        """
        last = tick == self._scenario.ticks - 1
        schedule(tick, last, self._packed_plan, self._packed_slots)
        self._condition = np.take(condition, self._replica, axis=1)
        self._outcome = np.take(outcome, self._replica, axis=1)

    def spare(self, only_slice: NDArray[np.int64]) -> None:
        """In the open tick, probes of slices other than ``only_slice`` [B, R] (-1: all) are not struck."""
        self._condition[self._is_spared(np.take(only_slice, self._replica, axis=1))] = 0

    def fail(self, error_ratio: NDArray[np.float64]) -> None:
        """In the open tick, a share ``error_ratio`` [B, R] of each replica's probes ends in an error."""
        for fleet in np.flatnonzero((error_ratio > 0.0).any(axis=1)):
            self._fail(int(fleet), error_ratio[fleet][self._replica])

    def _fail(self, fleet: int, ratio: NDArray[np.float64]) -> None:  # [P], by slot
        struck = self._error_rngs[fleet].random(ratio.size) < ratio
        self._outcome[fleet, struck & (self._outcome[fleet] == ANSWERED)] = FAILED

    def _is_spared(self, only: NDArray[np.int64] | int) -> NDArray[np.bool_]:
        """Bool [B, P]: ``only`` is a slice, and the slot's prompt belongs to another slice."""
        of_slot = self._measured.slice_of[self.slots.place]
        return np.asarray((np.asarray(only) >= 0) & (of_slot != only))

    @property
    def due(self) -> NDArray[np.bool_]:
        """Bool [B, P]: the slot is used in the open tick."""
        return np.asarray(np.isfinite(self.slots.at_s))

    def change(
        self,
        fleet: int,
        replica: int,
        at_s: float,
        condition: int,
        outcome: int,
        only_slice: int = -1,
        error_ratio: float = 0.0,
    ) -> None:
        """Change the replica's state from ``at_s`` on, within the open tick."""
        if outcome != self._latest[fleet, replica]:
            self._latest[fleet, replica], self._since_at_s[fleet, replica] = outcome, at_s
        later = (self._replica == replica) & (self.slots.at_s[fleet] > at_s)
        self._condition[fleet, later] = condition
        if only_slice >= 0:
            self._condition[fleet, later & self._is_spared(only_slice)[fleet]] = 0
        self._outcome[fleet, later] = outcome
        if error_ratio > 0.0:
            self._fail(fleet, np.where(later, error_ratio, 0.0))

    def close(self, delivered: NDArray[np.bool_], gauges: Gauges | None = None) -> ProbeSamples:
        """Results of the open tick; ``delivered`` bool [B, R] is False if telemetry is lost.

        gauges: of the engines, for the latencies (None: unknown).
        """
        shape = self.slots.place.shape
        results = Results(
            slices=np.empty(shape, dtype=np.int64),
            prompts=np.empty(shape, dtype=np.int64),
            sampled_at_ms=np.empty(shape),
            values=np.empty((*shape, self._measured.values.shape[4])),
            valid=np.empty(shape, dtype=np.bool_),
            outcome=np.empty(shape, dtype=np.int8),
            latency_ms=np.empty(shape),
        )
        states = self._states(delivered, gauges)
        _collect(self._packed_slots, tuple(states), self._packed_measured, tuple(results))
        return ProbeSamples(
            replica=self._owner.copy(),
            slice=results.slices,
            prompt=results.prompts,
            sampled_at_ms=results.sampled_at_ms,
            values=self._noisy(results.values),
            valid=results.valid,
            outcome=results.outcome,
            latency_ms=results.latency_ms,
        )

    def _states(self, delivered: NDArray[np.bool_], gauges: Gauges | None) -> States:
        unknown = np.full(delivered.shape, np.nan)
        return States(
            condition=self._condition,
            outcome=self._outcome,
            since_at_s=self._since_at_s,
            delivered=delivered,
            step_s=unknown if gauges is None else gauges.step_s,
            prefill_s=unknown if gauges is None else gauges.prefill_s,
            queue_s=unknown if gauges is None else gauges.head_wait_s,
            return_s=unknown if gauges is None else gauges.return_s,
        )

    def tokens(self) -> NDArray[np.float64]:
        """Probe tokens that the replicas of each kernel computed in the open tick, float64 [B, K]."""
        total = np.zeros((len(self._outcome), self._measured.values.shape[0]))
        _add_tokens(self._packed_slots, self._outcome, self._packed_measured, total)
        return total

    def _noisy(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        if self._noise <= 0.0:
            return values
        factors = np.stack([rng.standard_normal(values.shape[1:]) for rng in self._rngs])
        return np.asarray(values * np.exp(self._noise * factors))


@compiled
def _collect(packed_slots, packed_states, packed_measured, packed_results):
    """Look up the measured values and the latency of each probe.

    A probe that times out was sent one limit earlier: its outcome is known only if its replica already hung
    then.
    """
    slots, measured = borrowed(ProbeSlots(*packed_slots)), borrowed(Measured(*packed_measured))
    results = borrowed(Results(*packed_results))
    states = borrowed(States(*packed_states))
    for b in range(slots.place.shape[0]):
        for p in range(slots.place.shape[1]):
            n, at_s, r = slots.place[b, p], slots.at_s[b, p], measured.replica[p]
            outcome, took_s = states.outcome[b, p], 0.0
            if outcome == ANSWERED:
                took_s = 1.5 * states.step_s[b, r] + measured.tokens_of[n] * states.prefill_s[b, r]
                took_s += states.queue_s[b, r] + states.return_s[b, r]
            if outcome == TIMED_OUT or took_s > PROBE_LIMIT_S:
                outcome, took_s = TIMED_OUT, PROBE_LIMIT_S
            early = outcome == TIMED_OUT and at_s - took_s < states.since_at_s[b, r]
            if not (np.isfinite(at_s) and states.delivered[b, r]) or early:
                outcome = NONE
            results.slices[b, p], results.prompts[b, p] = measured.slice_of[n], measured.id_of[n]
            results.outcome[b, p], results.valid[b, p] = outcome, outcome == ANSWERED
            results.latency_ms[b, p] = took_s * MS_PER_S if outcome == ANSWERED else np.nan
            sent_at_s = max(at_s - (0.0 if np.isnan(took_s) else took_s), 0.0)
            results.sampled_at_ms[b, p] = 0.0 if outcome == NONE else sent_at_s * MS_PER_S
            kernel, state, repeat = measured.kernel[p], states.condition[b, p], slots.repeat[b, p]
            for m in range(results.values.shape[2]):
                value = measured.values[kernel, state, n, repeat, m]
                results.values[b, p, m] = value if outcome == ANSWERED else np.nan


@compiled
def _add_tokens(packed_slots, outcome, packed_measured, total):
    """Add the tokens of the probes that were computed to ``total`` [B, K]."""
    slots, measured = borrowed(ProbeSlots(*packed_slots)), borrowed(Measured(*packed_measured))
    for b in range(slots.place.shape[0]):
        for p in range(slots.place.shape[1]):
            if np.isfinite(slots.at_s[b, p]) and outcome[b, p] == ANSWERED:
                total[b, measured.kernel[p]] += measured.tokens_of[slots.place[b, p]]


def _values(scenario: CompiledScenario) -> NDArray[np.float64]:
    """Measured values of all kernels, [K, Q, prompt, repeat, metric]; missing doses repeat the last."""
    deepest = max(table.probe.shape[0] for table in scenario.tables)
    repeats = repeats_of(scenario)
    return np.stack([_deepened(table.probe[:, :, :repeats], deepest) for table in scenario.tables])


def _deepened(probe: NDArray[np.float64], conditions: int) -> NDArray[np.float64]:
    missing = conditions - probe.shape[0]
    return np.concatenate([probe, np.repeat(probe[-1:], missing, axis=0)]) if missing else probe


def warm() -> None:
    """Compile this module's functions before work is forked."""
    place, yes = np.zeros(1, dtype=np.int64), np.ones((1, 1), dtype=np.bool_)
    measured = tuple(Measured(np.zeros((1, 1, 1, 1, 1)), place, place, place, place, place))
    for batch in (1, 2):
        one = (batch, 1)
        whole, numbers, flags = np.zeros(one, dtype=np.int64), np.zeros(one), np.repeat(yes, batch, axis=0)
        order = np.zeros((*one, 1, 1), dtype=np.int32)
        plan = ProbeTimetable(1.0, 1.0, numbers, whole, whole.copy(), order, place + 1, 1)
        slots = tuple(ProbeSlots(whole.copy(), whole.copy(), numbers.copy()))
        schedule(0, True, tuple(plan), slots)
        ended = np.full(one, ANSWERED, dtype=np.int8)
        results = Results(
            whole.copy(),
            whole.copy(),
            numbers.copy(),
            np.zeros((*one, 1)),
            flags.copy(),
            ended,
            numbers.copy(),
        )
        states = States(whole, ended.copy(), numbers, flags, numbers, numbers, numbers, numbers)
        _collect(slots, tuple(states), measured, tuple(results))
        _add_tokens(slots, ended, measured, np.zeros(one))
