"""Compiled loops of the judgement. Every (kernel, slice) of a fleet is judged independently.

Records are passed to compiled code as plain tuples, which numba unpacks in a third of the time of named
tuples (0.1 us an array). Inside they become named tuples again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import Level
from contracts.compiled.health import bounded_excess, health_of
from contracts.jit import borrowed, compiled
from contracts.telemetry import ReplicaState
from controller.cells import by_cell, some_of

# Plain integers, because compiled code does not know the enumerations.
READY = int(ReplicaState.READY)
NORMAL, FALLBACK = int(Level.NORMAL), int(Level.FALLBACK)


class Failing(NamedTuple):
    """Which replicas fail or hang."""

    replica_state: NDArray[np.int8]  # [B, R], a ``ReplicaState``
    quarantined: NDArray[np.bool_]  # [B, R]
    down: NDArray[np.bool_]  # [B, R], failing or hung right now
    consecutive_failed: NDArray[np.int64]  # [B, R]


class KernelStanding(NamedTuple):
    """Condemned clauses of each kernel, and what they imply; written to."""

    condemned: NDArray[np.bool_]  # [B, K, S, C]
    hard_violated: NDArray[np.bool_]  # [B, K, S]
    certified: NDArray[np.bool_]  # [B, K, S]


class Said(NamedTuple):
    """Verdicts of the detector on the kernels."""

    alarm: NDArray[np.bool_]  # [B, K, S, C]
    inside: NDArray[np.bool_]  # [B, K, S, C]
    fresh: NDArray[np.bool_]  # [B, K, S, C]


class Health(NamedTuple):
    """Health and level of each kernel, as the contract defines them; written to."""

    health: NDArray[np.float64]  # [B, K, S], H >= 0
    level: NDArray[np.int64]  # [B, K, S], a ``Level``


class Weights(NamedTuple):
    """Weights of the clauses in the health of a kernel."""

    severity: NDArray[np.int64]  # [C], 1 to 3
    weight: NDArray[np.float64]  # [C]
    applies: NDArray[np.bool_]  # [C, S]
    guard: float  # H from which a kernel is at level guard
    fallback: float  # H from which its traffic falls back


@compiled
def take_over(alarm, excess, spread, replica_excess, owner):
    """Add replica alarms that count against their kernel to its alarm and excess [B, K, S, C], in place.

    spread: bool [B, R, S, C], these alarms.
    """
    fleets, replicas, slices, clauses = spread.shape
    cells = by_cell(spread)
    for b in range(fleets):
        for r in range(replicas):
            if not some_of(cells, b, r):
                continue
            for s in range(slices):
                for c in range(clauses):
                    if spread[b, r, s, c]:
                        k = owner[r]
                        alarm[b, k, s, c] = True
                        excess[b, k, s, c] = max(excess[b, k, s, c], replica_excess[b, r, s, c])


@compiled
def note_down(down_until_at_s, now_s, failing, failing_after, after_s, owner):
    """Mark kernels as down for ``after_s`` from now, in place.

    A kernel is down if all of its replicas in rotation fail or hang, at least one of them in this tick.
    """
    failing = borrowed(failing)
    fleets, kernels = down_until_at_s.shape
    serving, broken = np.zeros(kernels, np.int64), np.zeros(kernels, np.int64)
    now = np.zeros(kernels, np.int64)
    for b in range(fleets):
        serving[:], broken[:], now[:] = 0, 0, 0
        for r in range(len(owner)):
            if failing.replica_state[b, r] == READY and not failing.quarantined[b, r]:
                k, down = owner[r], failing.down[b, r]
                serving[k] += 1
                broken[k] += down or failing.consecutive_failed[b, r] >= failing_after
                now[k] += down
        for k in range(kernels):
            if broken[k] == serving[k] and now[k] > 0:
                down_until_at_s[b, k] = now_s[b] + after_s


@compiled
def condemn(standing, verdicts, down, hard, moves):
    """Update the condemned clauses: from an alarm until a fresh verdict inside the limit.

    certified: no clause that ``moves`` [C] traffic is condemned, and the kernel is not ``down`` [B, K].
    """
    condemned, hard_violated, certified = borrowed(standing)
    alarm, inside, fresh = borrowed(verdicts)
    alarms, broken_before = by_cell(alarm), by_cell(condemned)
    for b in range(alarm.shape[0]):
        for k in range(alarm.shape[1]):
            if not (some_of(alarms, b, k) or some_of(broken_before, b, k)):
                for s in range(alarm.shape[2]):
                    hard_violated[b, k, s], certified[b, k, s] = False, not down[b, k]
                continue
            for s in range(alarm.shape[2]):
                violated, broken = False, down[b, k]
                for c in range(alarm.shape[3]):
                    at = (b, k, s, c)
                    condemned[at] = alarm[at] or (condemned[at] and not (inside[at] and fresh[at]))
                    violated |= condemned[at] and hard[c]
                    broken |= condemned[at] and moves[c]
                hard_violated[b, k, s], certified[b, k, s] = violated, not broken


@compiled
def weigh(found, alarm, excess, down, weights):
    """Health and level by ``contracts.compiled.health``; a kernel that is ``down`` [B, K] falls back."""
    (health, level), weights = borrowed(found), borrowed(Weights(*weights))
    sums, cells, guard, fallback = np.zeros(3), by_cell(alarm), weights.guard, weights.fallback
    for b in range(alarm.shape[0]):
        for k in range(alarm.shape[1]):
            if not (down[b, k] or some_of(cells, b, k)):
                for s in range(alarm.shape[2]):
                    health[b, k, s], level[b, k, s] = 0.0, NORMAL
                continue
            for s in range(alarm.shape[2]):
                sums[:] = 0.0
                worst = 0
                for c in range(alarm.shape[3]):
                    if alarm[b, k, s, c] and weights.applies[c, s]:
                        severity = weights.severity[c]
                        worst = max(worst, severity)
                        sums[severity - 1] += weights.weight[c] * bounded_excess(excess[b, k, s, c])
                health[b, k, s], level[b, k, s] = health_of(sums, worst, guard, fallback)
                if down[b, k]:
                    health[b, k, s] = max(health[b, k, s], fallback)
                    level[b, k, s] = FALLBACK


@compiled
def count_evidence(count, ratio, judged, alarm, probes, moves):
    """Largest number of observations behind a verdict on the clauses ``probes``, into ``count``.

    In alarm, ``ratio`` is raised to at least 1.
    """
    cells = by_cell(alarm)
    for b in range(alarm.shape[0]):
        for k in range(alarm.shape[1]):
            alarmed = some_of(cells, b, k)
            for s in range(alarm.shape[2]):
                for c in probes:
                    count[b, k, s] = max(count[b, k, s], judged[b, k, s, c, 0])
                if not alarmed:
                    continue
                for c in range(alarm.shape[3]):
                    if alarm[b, k, s, c] and moves[c]:
                        ratio[b, k, s] = max(ratio[b, k, s], 1.0)
