"""Simulated probes: measured values of golden prompts, replayed by id under a stated budget.

A replica computes one probe every ``1 / probes_per_s`` seconds, round robin over the slices, and within
a slice through that slice's probe prompts in an order drawn once per fleet and replica. What comes back
is what was measured of (kernel, condition in force, prompt, repeat); no independent noise is invented.
Only with ``repeat_noise`` above 0 (hosts that are not bit-exact) is each value multiplied by
``exp(repeat_noise * z)``, z standard normal.

A probe counts for the tick in which the replica computes it; a dead, hung or starting one returns
nothing. Quarantined replicas are probed like the others.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.jit import borrowed, compiled
from contracts.rng import stream
from contracts.telemetry import ProbeSamples
from contracts.units import MS_PER_S
from simulator.world.compiled_scenario import CompiledScenario

#: From sending to computing; an idle measured engine answers a probe of 64 tokens in 37 ms, a busy one in
#: up to 90 ms.
PROBE_LATENCY_S = 0.06


def slots_per_replica(scenario: CompiledScenario) -> int:
    """Most probes of one replica in one tick."""
    return int(np.ceil(scenario.telemetry.probes_per_s * scenario.tick_s - 1e-9))


class ProbePlan(NamedTuple):
    """Which probe a replica computes when. R replicas, S slices, n prompts of the largest slice."""

    tick_s: float
    gap_s: float  # between two probes of a replica, inf for none
    phase: NDArray[np.float64]  # [B, R] of the gap, when the first one comes
    planned: NDArray[np.int64]  # [B, R] probes until the horizon
    done: NDArray[np.int64]  # [B, R] probes of earlier ticks
    order: NDArray[np.int32]  # [B, R, S, n] places on the probe axis
    sizes: NDArray[np.int64]  # [S] prompts of each slice
    repeats: int  # that every kernel was measured with


class ProbeSlots(NamedTuple):
    """The probes of one tick. P slots: so many of each replica, one replica after the other."""

    place: NDArray[np.int64]  # [B, P] on the probe axis
    repeat: NDArray[np.int64]  # [B, P]
    at_s: NDArray[np.float64]  # [B, P] when it is computed, inf where the slot is not used


class Measured(NamedTuple):
    """What probes return, and of which prompts. P slots, U probe prompts, J repeats, M metrics."""

    values: NDArray[np.float64]  # [K, Q, U, J, M]
    slice_of: NDArray[np.int64]  # [U]
    id_of: NDArray[np.int64]  # [U]
    tokens_of: NDArray[np.int64]  # [U]
    replica: NDArray[np.int64]  # [P]
    kernel: NDArray[np.int64]  # [P]


class Results(NamedTuple):
    """Results of one tick. P slots, M metrics."""

    slices: NDArray[np.int64]  # [B, P]
    prompts: NDArray[np.int64]  # [B, P] ids
    sampled_at_ms: NDArray[np.float64]  # [B, P]
    values: NDArray[np.float64]  # [B, P, M]
    valid: NDArray[np.bool_]  # [B, P]


class Probes:
    """The probes of B fleets, tick by tick; ``slots`` are those of the tick that is open."""

    def __init__(self, scenario: CompiledScenario, seeds: list[int]) -> None:
        self._scenario, slots = scenario, slots_per_replica(scenario)
        replicas = len(scenario.layout.replicas)
        self._packed_plan = tuple(_plan(scenario, seeds))
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
        self._condition = np.zeros(shape, dtype=np.int64)
        self._answers = np.zeros(shape, dtype=np.bool_)

    def open(self, tick: int, condition: NDArray[np.int64], answers: NDArray[np.bool_]) -> None:
        """Begin ``tick``, one after the other from 0 on, with the states of the replicas.

        ``condition`` int64 [B, R], ``answers`` bool [B, R].
        """
        last = tick == self._scenario.ticks - 1
        _schedule(tick, last, self._packed_plan, self._packed_slots)
        self._condition = np.take(condition, self._replica, axis=1)
        self._answers = np.take(answers, self._replica, axis=1)

    def spare(self, only_slice: NDArray[np.int64]) -> None:
        """In the open tick, probes of other slices than ``only_slice`` [B, R] (-1: all) see no fault."""
        self._condition[self._is_spared(np.take(only_slice, self._replica, axis=1))] = 0

    def _is_spared(self, only: NDArray[np.int64] | int) -> NDArray[np.bool_]:
        """Bool [B, P]: the slot's prompt is of another slice than ``only``, where that is one."""
        of_slot = self._measured.slice_of[self.slots.place]
        return np.asarray((np.asarray(only) >= 0) & (of_slot != only))

    @property
    def due(self) -> NDArray[np.bool_]:
        """Bool [B, P]: the slot is used in the tick that is open."""
        return np.asarray(np.isfinite(self.slots.at_s))

    def change(
        self, fleet: int, replica: int, at_s: float, condition: int, answers: bool, only_slice: int = -1
    ) -> None:
        """From ``at_s`` on, within the tick that is open, the replica is in another state."""
        later = (self._replica == replica) & (self.slots.at_s[fleet] > at_s)
        self._condition[fleet, later] = condition
        if only_slice >= 0:
            self._condition[fleet, later & self._is_spared(only_slice)[fleet]] = 0
        self._answers[fleet, later] = answers

    def close(self, delivered: NDArray[np.bool_]) -> ProbeSamples:
        """Results of the tick that is open; ``delivered`` bool [B, R] is False where telemetry is lost."""
        shape = self.slots.place.shape
        results = Results(
            slices=np.empty(shape, dtype=np.int64),
            prompts=np.empty(shape, dtype=np.int64),
            sampled_at_ms=np.empty(shape),
            values=np.empty((*shape, self._measured.values.shape[4])),
            valid=np.empty(shape, dtype=np.bool_),
        )
        states = self._condition, self._answers, delivered
        _collect(self._packed_slots, states, self._packed_measured, tuple(results))
        return ProbeSamples(
            replica=self._owner.copy(),
            slice=results.slices,
            prompt=results.prompts,
            sampled_at_ms=results.sampled_at_ms,
            values=self._noisy(results.values),
            valid=results.valid,
        )

    def tokens(self) -> NDArray[np.float64]:
        """Probe tokens that the replicas of each kernel computed in the open tick, float64 [B, K]."""
        total = np.zeros((len(self._answers), self._measured.values.shape[0]))
        _add_tokens(self._packed_slots, self._answers, self._packed_measured, total)
        return total

    def _noisy(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        if self._noise <= 0.0:
            return values
        factors = np.stack([rng.standard_normal(values.shape[1:]) for rng in self._rngs])
        return np.asarray(values * np.exp(self._noise * factors))


def _plan(scenario: CompiledScenario, seeds: list[int]) -> ProbePlan:
    """The probes of every fleet, each drawn from its own seed."""
    slots = slots_per_replica(scenario)
    replicas, slices = len(scenario.layout.replicas), len(scenario.layout.slices)
    of_slices = [scenario.prompts.probe_of(index) for index in range(slices)]
    sizes = np.array([prompts.size for prompts in of_slices], dtype=np.int64)
    order = np.zeros((len(seeds), replicas, slices, int(sizes.max())), dtype=np.int32)
    phase = np.zeros((len(seeds), replicas))
    for index, prompts in enumerate(of_slices):
        order[:, :, index, : prompts.size] = prompts
    for fleet, seed in enumerate(seeds if slots else ()):
        for replica in range(replicas):
            rng = stream(seed, "probes", replica)
            phase[fleet, replica] = rng.random()
            for index, prompts in enumerate(of_slices):
                rng.shuffle(order[fleet, replica, index, : prompts.size])
    gap_s = 1.0 / scenario.telemetry.probes_per_s if slots else np.inf
    # Instants in (0, horizon].
    count = np.floor(scenario.horizon_s / gap_s - phase - 1e-9) + 1.0
    return ProbePlan(
        tick_s=scenario.tick_s,
        gap_s=gap_s,
        phase=phase,
        planned=np.maximum(count, 0.0).astype(np.int64),
        done=np.zeros(phase.shape, dtype=np.int64),
        order=order,
        sizes=sizes,
        repeats=_repeats(scenario),
    )


@compiled
def _schedule(tick, last, packed_plan, packed_slots):
    """The probes of ``tick``: replica r begins with slice r, goes round, and repeats each slice's order.

    The last tick takes what rounding left over.
    """
    plan, slots = borrowed(ProbePlan(*packed_plan)), borrowed(ProbeSlots(*packed_slots))
    batch, replicas, slices, _ = plan.order.shape
    each = slots.place.shape[1] // replicas
    for b in range(batch):
        for p in range(slots.place.shape[1]):
            r, n = p // each, plan.done[b, p // each]
            at_s = (plan.phase[b, r] + 1e-9 + n) * plan.gap_s
            if n < plan.planned[b, r] and (last or int(np.ceil(at_s / plan.tick_s)) - 1 <= tick):
                s = (n + r) % slices
                slots.place[b, p] = plan.order[b, r, s, n // slices % plan.sizes[s]]
                slots.repeat[b, p] = n % plan.repeats
                slots.at_s[b, p] = at_s
                plan.done[b, r] += 1
            else:
                slots.place[b, p], slots.repeat[b, p], slots.at_s[b, p] = 0, 0, np.inf


@compiled
def _collect(packed_slots, states, packed_measured, packed_results):
    """Look up what was measured; ``states``: condition and answers [B, P], delivered [B, R]."""
    slots, measured = borrowed(ProbeSlots(*packed_slots)), borrowed(Measured(*packed_measured))
    results = borrowed(Results(*packed_results))
    condition, answers, delivered = borrowed(states)
    for b in range(slots.place.shape[0]):
        for p in range(slots.place.shape[1]):
            n, at_s = slots.place[b, p], slots.at_s[b, p]
            received = np.isfinite(at_s) and answers[b, p] and delivered[b, measured.replica[p]]
            results.slices[b, p], results.prompts[b, p] = measured.slice_of[n], measured.id_of[n]
            results.valid[b, p] = received
            sent_at_s = max(at_s - PROBE_LATENCY_S, 0.0)
            results.sampled_at_ms[b, p] = sent_at_s * MS_PER_S if received else 0.0
            kernel, state, repeat = measured.kernel[p], condition[b, p], slots.repeat[b, p]
            for m in range(results.values.shape[2]):
                results.values[b, p, m] = measured.values[kernel, state, n, repeat, m]


@compiled
def _add_tokens(packed_slots, answers, packed_measured, total):
    """Add the tokens of the probes that were computed to ``total`` [B, K]."""
    slots, measured = borrowed(ProbeSlots(*packed_slots)), borrowed(Measured(*packed_measured))
    for b in range(slots.place.shape[0]):
        for p in range(slots.place.shape[1]):
            if np.isfinite(slots.at_s[b, p]) and answers[b, p]:
                total[b, measured.kernel[p]] += measured.tokens_of[slots.place[b, p]]


def _values(scenario: CompiledScenario) -> NDArray[np.float64]:
    """Measured values of all kernels, [K, Q, prompt, repeat, metric]; missing doses repeat the last."""
    deepest = max(table.probe.shape[0] for table in scenario.tables)
    repeats = _repeats(scenario)
    return np.stack([_deepened(table.probe[:, :, :repeats], deepest) for table in scenario.tables])


def _repeats(scenario: CompiledScenario) -> int:
    """Repeats that every kernel of the pool was measured with."""
    return min(int(table.probe.shape[2]) for table in scenario.tables)


def _deepened(probe: NDArray[np.float64], conditions: int) -> NDArray[np.float64]:
    missing = conditions - probe.shape[0]
    return np.concatenate([probe, np.repeat(probe[-1:], missing, axis=0)]) if missing else probe


def warm() -> None:
    """Compile what this module compiles, so that no job pays for it after a fork."""
    place, yes = np.zeros(1, dtype=np.int64), np.ones((1, 1), dtype=np.bool_)
    measured = tuple(Measured(np.zeros((1, 1, 1, 1, 1)), place, place, place, place, place))
    for batch in (1, 2):
        one = (batch, 1)
        whole, numbers, flags = np.zeros(one, dtype=np.int64), np.zeros(one), np.repeat(yes, batch, axis=0)
        order = np.zeros((*one, 1, 1), dtype=np.int32)
        plan = ProbePlan(1.0, 1.0, numbers, whole, whole.copy(), order, place + 1, 1)
        slots = tuple(ProbeSlots(whole.copy(), whole.copy(), numbers.copy()))
        _schedule(0, True, tuple(plan), slots)
        results = Results(whole.copy(), whole.copy(), numbers.copy(), np.zeros((*one, 1)), flags.copy())
        _collect(slots, (whole, flags, flags), measured, tuple(results))
        _add_tokens(slots, flags, measured, np.zeros(one))
