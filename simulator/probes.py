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

import numpy as np
from numba import njit
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


def slots_per_replica(scenario: CompiledScenario) -> int:
    """Most probes of one replica in one tick."""
    return int(np.ceil(scenario.telemetry.probes_per_s * scenario.tick_s - 1e-9))


class Probes:
    """The probes of B fleets, tick by tick: P slots per tick, ``slots_per_replica`` of them each replica's.

    Of the tick that is open: unit int64 [B, P], place on the probe axis; repeat int64 [B, P]; at_s float64
    [B, P], when it is computed, inf where the slot is not used.
    """

    def __init__(self, scenario: CompiledScenario, seeds: list[int]) -> None:
        self._scenario, slots = scenario, slots_per_replica(scenario)
        replicas, slices = len(scenario.layout.replicas), len(scenario.layout.slices)
        self._replica = np.repeat(np.arange(replicas, dtype=np.int64), slots)
        self._kernel = scenario.layout.replica_kernel[self._replica]
        of_slices = [scenario.prompts.probe_of(index) for index in range(slices)]
        self._sizes = np.array([prompts.size for prompts in of_slices], dtype=np.int64)
        self._order = np.zeros((len(seeds), replicas, slices, int(self._sizes.max())), dtype=np.int32)
        self._phase = np.zeros((len(seeds), replicas))
        for index, prompts in enumerate(of_slices):
            self._order[:, :, index, : prompts.size] = prompts
        for fleet, seed in enumerate(seeds if slots else ()):
            for replica in range(replicas):
                rng = stream(seed, "probes", replica)
                self._phase[fleet, replica] = rng.random()
                for index, prompts in enumerate(of_slices):
                    rng.shuffle(self._order[fleet, replica, index, : prompts.size])
        gap_s = 1.0 / scenario.telemetry.probes_per_s if slots else np.inf
        # Instants in (0, horizon].
        count = np.floor(scenario.horizon_s / gap_s - self._phase - 1e-9) + 1.0
        self._count, self._gap_s = np.maximum(count, 0.0).astype(np.int64), gap_s
        self._done = np.zeros(self._phase.shape, dtype=np.int64)
        shape = len(seeds), self._replica.size
        self._owner = np.broadcast_to(self._replica, shape)
        self.unit, self.repeat = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        self.at_s = np.full(shape, np.inf)
        self._values, self._repeats = np.ascontiguousarray(_values(scenario)), _repeats(scenario)
        self._noise = scenario.telemetry.repeat_noise
        self._rngs = [stream(seed, "repeat_noise") for seed in seeds] if self._noise > 0.0 else []
        self._condition = np.zeros(shape, dtype=np.int64)
        self._answers = np.zeros(shape, dtype=np.bool_)

    def open(self, tick: int, condition: NDArray[np.int64], answers: NDArray[np.bool_]) -> None:
        """Begin ``tick``, one after the other from 0 on, with the states of the replicas.

        ``condition`` int64 [B, R], ``answers`` bool [B, R].
        """
        last = tick == self._scenario.ticks - 1
        _schedule(
            tick, last, self._scenario.tick_s, self._gap_s, self._phase, self._count, self._done, self._order,
            self._sizes, self._repeats, self.unit, self.repeat, self.at_s,
        )  # fmt: skip
        self._condition = np.take(condition, self._replica, axis=1)
        self._answers = np.take(answers, self._replica, axis=1)

    @property
    def due(self) -> NDArray[np.bool_]:
        """Bool [B, P]: the slot is used in the tick that is open."""
        return np.asarray(np.isfinite(self.at_s))

    def change(self, fleet: int, replica: int, at_s: float, condition: int, answers: bool) -> None:
        """From ``at_s`` on, within the tick that is open, the replica is in another state."""
        later = (self._replica == replica) & (self.at_s[fleet] > at_s)
        self._condition[fleet, later] = condition
        self._answers[fleet, later] = answers

    def close(self, delivered: NDArray[np.bool_]) -> ProbeSamples:
        """Results of the tick that is open; ``delivered`` bool [B, R] is False where telemetry is lost."""
        shape, prompts = self.unit.shape, self._scenario.prompts
        slices, ids = np.empty(shape, dtype=np.int64), np.empty(shape, dtype=np.int64)
        sampled_at_ms, valid = np.empty(shape), np.empty(shape, dtype=np.bool_)
        values = np.empty((*shape, self._values.shape[4]))
        _collect(
            self.unit, self.repeat, self.at_s, self._condition, self._answers, delivered, self._replica,
            self._kernel, self._values, prompts.probe_slice, prompts.probe_ids, slices, ids, sampled_at_ms,
            values, valid,
        )  # fmt: skip
        return ProbeSamples(
            replica=self._owner.copy(),
            slice=slices,
            prompt=ids,
            sampled_at_ms=sampled_at_ms,
            values=self._noisy(values),
            valid=valid,
        )

    def tokens(self) -> NDArray[np.float64]:
        """Probe tokens that the replicas of each kernel computed in the open tick, float64 [B, K]."""
        total = np.zeros((len(self.unit), self._values.shape[0]))
        _add_tokens(
            self.unit, self.at_s, self._answers, self._kernel, self._scenario.prompts.probe_tokens, total
        )
        return total

    def _noisy(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        if self._noise <= 0.0:
            return values
        factors = np.stack([rng.standard_normal(values.shape[1:]) for rng in self._rngs])
        return np.asarray(values * np.exp(self._noise * factors))


@njit(cache=True, error_model="numpy")
def _schedule(  # type: ignore[no-untyped-def]  # pragma: no cover
    tick, last, tick_s, gap_s, phase, count, done, order, sizes, repeats, unit, repeat, at_s,
):  # fmt: skip
    """The probes of ``tick``: replica r begins with slice r, goes round, and repeats each slice's order.

    ``done`` int64 [B, R] counts those of earlier ticks. The last tick takes what rounding left over.
    """
    batch, replicas, slices, _ = order.shape
    slots = unit.shape[1] // replicas
    for b in range(batch):
        for p in range(unit.shape[1]):
            r, n = p // slots, done[b, p // slots]
            instant_s = (phase[b, r] + 1e-9 + n) * gap_s
            if n < count[b, r] and (last or int(np.ceil(instant_s / tick_s)) - 1 <= tick):
                s = (n + r) % slices
                unit[b, p], repeat[b, p], at_s[b, p] = (
                    order[b, r, s, n // slices % sizes[s]],
                    n % repeats,
                    instant_s,
                )
                done[b, r] += 1
            else:
                unit[b, p], repeat[b, p], at_s[b, p] = 0, 0, np.inf


@njit(cache=True, error_model="numpy")
def _collect(  # type: ignore[no-untyped-def]  # pragma: no cover
    unit, repeat, at_s, condition, answers, delivered, replica, kernel, measured, slice_of, id_of, slices,
    prompts, sampled_at_ms, values, valid,
):  # fmt: skip
    """Look up what was ``measured`` [K, Q, prompt, repeat, metric]."""
    for b in range(unit.shape[0]):
        for p in range(unit.shape[1]):
            n = unit[b, p]
            heard = np.isfinite(at_s[b, p]) and answers[b, p] and delivered[b, replica[p]]
            slices[b, p], prompts[b, p], valid[b, p] = slice_of[n], id_of[n], heard
            sampled_at_ms[b, p] = max(at_s[b, p] - PROBE_LATENCY_S, 0.0) * MS_PER_S if heard else 0.0
            for m in range(values.shape[2]):
                values[b, p, m] = measured[kernel[p], condition[b, p], n, repeat[b, p], m]


@njit(cache=True, error_model="numpy")
def _add_tokens(unit, at_s, answers, kernel, lengths, total):  # type: ignore[no-untyped-def]  # pragma: no cover
    for b in range(unit.shape[0]):
        for p in range(unit.shape[1]):
            if np.isfinite(at_s[b, p]) and answers[b, p]:
                total[b, kernel[p]] += lengths[unit[b, p]]


def _values(scenario: CompiledScenario) -> NDArray[np.float64]:
    """Measured values of all kernels, [K, Q, prompt, repeat, metric]; missing rungs repeat the last."""
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
    for batch in (1, 2):
        one, whole = (batch, 1), np.zeros((batch, 1), dtype=np.int64)
        _schedule(
            0, True, 1.0, 1.0, np.zeros(one), whole, whole.copy(), np.zeros((*one, 1, 1), dtype=np.int32),
            np.ones(1, dtype=np.int64), 1, whole.copy(), whole.copy(), np.zeros(one),
        )  # fmt: skip
        yes, place = np.ones(one, dtype=np.bool_), np.zeros(1, dtype=np.int64)
        _collect(
            whole, whole, np.zeros(one), whole, yes, yes, place, place, np.zeros((1, 1, 1, 1, 1)), place,
            place, whole.copy(), whole.copy(), np.zeros(one), np.zeros((*one, 1)), yes.copy(),
        )  # fmt: skip
        _add_tokens(whole, np.zeros(one), yes, place, place, np.zeros(one))
