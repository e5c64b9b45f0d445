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

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contracts.streams import stream
from contracts.telemetry import ProbeSamples
from contracts.units import MS_PER_S
from simulator.world import CompiledScenario

#: From sending to computing; an idle measured engine answers a probe of 64 tokens in 37 ms, a busy one in
#: up to 90 ms.
PROBE_LATENCY_S = 0.06


def probe_share(
    coefficients: NDArray[np.float64], probes_per_s: float, probe_tokens: float
) -> NDArray[np.float64]:
    """Share of a replica's time that its probes take, float64 [K]: one prefill step per probe, alone.

    Probes are batched with traffic in a real engine, so this is the most they can cost.
    """
    return np.asarray(probes_per_s * (coefficients[:, 0] + probe_tokens * coefficients[:, 1]))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbePlan:
    """When which replica computes which probe, for one fleet. P slots per tick.

    unit: int64 [T, P], place on the probe axis. repeat: int64 [T, P]. at_s: float64 [T, P].
    due: bool [T, P], the slot is used.
    """

    unit: NDArray[np.int64]
    repeat: NDArray[np.int64]
    at_s: NDArray[np.float64]
    due: NDArray[np.bool_]


def slots_per_replica(scenario: CompiledScenario) -> int:
    """Most probes of one replica in one tick."""
    return int(np.ceil(scenario.telemetry.probes_per_s * scenario.tick_s - 1e-9))


def plan_probes(scenario: CompiledScenario, seed: int) -> ProbePlan:
    """The probe schedule of the fleet with ``seed``; nothing else draws from its stream."""
    slots, ticks = slots_per_replica(scenario), scenario.ticks
    replicas, repeats = len(scenario.layout.replicas), _repeats(scenario)
    of_slices = [scenario.prompts.probe_of(index) for index in range(len(scenario.layout.slices))]
    count = slots * replicas
    unit = np.zeros((ticks, count), dtype=np.int64)
    repeat, at_s = np.zeros_like(unit), np.full((ticks, count), np.inf)
    for replica in range(replicas if slots else 0):
        rng = stream(seed, "probes", replica)
        times = _times(scenario, float(rng.random()))
        tick = np.minimum(np.ceil(times / scenario.tick_s).astype(np.int64) - 1, ticks - 1)
        place = replica * slots + np.arange(times.size) - np.searchsorted(tick, tick)
        unit[tick, place] = _units(of_slices, replica, times.size, rng)
        repeat[tick, place] = np.arange(times.size) % repeats
        at_s[tick, place] = times
    return ProbePlan(unit=unit, repeat=repeat, at_s=at_s, due=np.isfinite(at_s))


def _times(scenario: CompiledScenario, phase: float) -> NDArray[np.float64]:
    """Instants in (0, horizon] at which one replica computes its probes."""
    gap_s = 1.0 / scenario.telemetry.probes_per_s
    count = int(np.floor(scenario.horizon_s / gap_s - phase - 1e-9)) + 1
    return np.asarray((phase + 1e-9 + np.arange(max(count, 0))) * gap_s, dtype=np.float64)


def _units(
    of_slices: list[NDArray[np.int64]], replica: int, count: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    slices = len(of_slices)
    units = np.zeros(count, dtype=np.int64)
    for index, prompts in enumerate(of_slices):
        order = rng.permutation(prompts)
        # Replica r begins with slice r and goes round.
        mine = units[(index - replica) % slices :: slices]
        mine[:] = np.resize(order, mine.size)
    return units


class Probes:
    """The probes of B fleets, tick by tick."""

    def __init__(self, scenario: CompiledScenario, seeds: list[int]) -> None:
        plans = [plan_probes(scenario, seed) for seed in seeds]
        self._unit = np.stack([plan.unit for plan in plans], axis=1)
        self._repeat = np.stack([plan.repeat for plan in plans], axis=1)
        self._at_s = np.stack([plan.at_s for plan in plans], axis=1)
        self._due = np.stack([plan.due for plan in plans], axis=1)
        slots = slots_per_replica(scenario)
        replicas = np.arange(len(scenario.layout.replicas), dtype=np.int64)
        self._replica = np.repeat(replicas, slots)
        self._kernel = scenario.layout.replica_kernel[self._replica]
        self._owner = np.broadcast_to(self._replica, (len(seeds), self._replica.size))
        self._lengths = scenario.prompts.probe_tokens
        self._prompts, self._slices = scenario.prompts.probe_ids, scenario.prompts.probe_slice
        deepest = max(table.probe.shape[0] for table in scenario.tables)
        repeats = _repeats(scenario)
        blocks = [_deepened(table.probe[:, :, :repeats], deepest) for table in scenario.tables]
        self._values = np.stack(blocks)
        self._noise = scenario.telemetry.repeat_noise
        self._rngs = [stream(seed, "repeat_noise") for seed in seeds]
        self._tick = -1
        self._condition = np.zeros(self._owner.shape, dtype=np.int64)
        self._answers = np.zeros(self._owner.shape, dtype=np.bool_)

    def open(self, tick: int, condition: NDArray[np.int64], answers: NDArray[np.bool_]) -> None:
        """Begin ``tick`` with the replicas' states, ``condition`` int64 [B, R], ``answers`` bool [B, R]."""
        self._tick = tick
        self._condition = condition[:, self._replica]
        self._answers = answers[:, self._replica]

    def change(self, fleet: int, replica: int, at_s: float, condition: int, answers: bool) -> None:
        """From ``at_s`` on, within the tick that is open, the replica is in another state."""
        later = (self._replica == replica) & (self._at_s[self._tick, fleet] > at_s)
        self._condition[fleet, later] = condition
        self._answers[fleet, later] = answers

    def close(self, delivered: NDArray[np.bool_]) -> ProbeSamples:
        """Results of the tick that is open; ``delivered`` bool [B, R] is False where telemetry is lost."""
        unit, at_s = self._unit[self._tick], self._at_s[self._tick]
        valid = self._due[self._tick] & self._answers & delivered[:, self._replica]
        values = self._values[self._kernel, self._condition, unit, self._repeat[self._tick]]
        return ProbeSamples(
            replica=self._owner.copy(),
            slice=self._slices[unit],
            prompt=self._prompts[unit],
            sampled_at_ms=np.where(valid, np.maximum(at_s - PROBE_LATENCY_S, 0.0) * MS_PER_S, 0.0),
            values=self._noisy(values),
            valid=valid,
        )

    def tokens(self) -> NDArray[np.float64]:
        """Probe tokens that the replicas of each kernel computed in the open tick, float64 [B, K]."""
        computed = self._due[self._tick] & self._answers
        tokens = np.where(computed, self._lengths[self._unit[self._tick]], 0)
        kernels = range(self._values.shape[0])
        sums = [tokens[:, self._kernel == kernel].sum(axis=1) for kernel in kernels]
        return np.stack(sums, axis=1).astype(np.float64)

    def _noisy(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        if self._noise <= 0.0:
            return values
        factors = np.stack([rng.standard_normal(values.shape[1:]) for rng in self._rngs])
        return np.asarray(values * np.exp(self._noise * factors))


def _repeats(scenario: CompiledScenario) -> int:
    """Repeats that every kernel of the pool was measured with."""
    return min(int(table.probe.shape[2]) for table in scenario.tables)


def _deepened(probe: NDArray[np.float64], conditions: int) -> NDArray[np.float64]:
    missing = conditions - probe.shape[0]
    return np.concatenate([probe, np.repeat(probe[-1:], missing, axis=0)]) if missing else probe
