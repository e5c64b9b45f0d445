"""Compiled loops of the judgement; every (kernel, slice) of a fleet by itself."""

from __future__ import annotations

import numpy as np
from numba import njit

from contracts.compiled import Level
from contracts.health import MOST_EXCESS
from contracts.telemetry import ReplicaState
from controller.flags_compiled import by_cell, some_of

# Plain integers, because compiled code does not know the enumerations.
READY = int(ReplicaState.READY)
NORMAL, GUARD, FALLBACK = int(Level.NORMAL), int(Level.GUARD), int(Level.FALLBACK)


@njit(cache=True, error_model="numpy")
def take_over(alarm, excess, spread, replica_excess, owner):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Take what ``spread`` [B, R, S, C] from replicas into the kernels' alarm and excess [B, K, S, C]."""
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


@njit(cache=True, error_model="numpy")
def note_down(  # type: ignore[no-untyped-def]  # pragma: no cover
    down_until_s, now_s, replica_state, quarantined, down, consecutive_failed, failing_after, after_s, owner
):
    """Kernels whose replicas in rotation all fail or hang, one at least right now, are down for a while."""
    fleets, kernels = down_until_s.shape
    count = np.zeros((kernels, 3), np.int64)
    for b in range(fleets):
        count[:] = 0
        for r in range(len(owner)):
            if replica_state[b, r] == READY and not quarantined[b, r]:
                count[owner[r], 0] += 1
                count[owner[r], 1] += down[b, r] or consecutive_failed[b, r] >= failing_after
                count[owner[r], 2] += down[b, r]
        for k in range(kernels):
            if count[k, 1] == count[k, 0] and count[k, 2] > 0:
                down_until_s[b, k] = now_s[b] + after_s


@njit(cache=True, error_model="numpy")
def condemn(condemned, hard_violated, certified, alarm, inside, fresh, down, hard, moves):  # type: ignore[no-untyped-def]  # pragma: no cover
    """What is condemned bool [B, K, S, C] from an alarm until a fresh verdict inside, and what follows of it.

    certified: bool [B, K, S], nothing that moves traffic is condemned, and the kernel is not ``down``.
    """
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


@njit(cache=True, error_model="numpy")
def weigh(health, level, alarm, excess, down, severity, weight, applies, tau1, tau2):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Health and level [B, K, S] as ``contracts.health`` defines them; who is ``down`` falls back."""
    sums, cells = np.zeros(3), by_cell(alarm)
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
                    if alarm[b, k, s, c] and applies[c, s]:
                        worst = max(worst, severity[c])
                        sums[severity[c] - 1] += weight[c] * _bounded(excess[b, k, s, c])
                health[b, k, s], level[b, k, s] = _combine(sums, worst, tau1, tau2)
                if down[b, k]:
                    health[b, k, s] = max(health[b, k, s], tau2)
                    level[b, k, s] = FALLBACK


@njit(cache=True, error_model="numpy")
def _combine(sums, worst, tau1, tau2):  # type: ignore[no-untyped-def]  # pragma: no cover
    """(H, level) of the sums by severity, where ``worst`` is the severest in alarm (0: none)."""
    if worst == 3:
        return tau2 + (sums[0] + sums[1] + sums[2]), FALLBACK
    if worst == 2:
        return min(tau1 + _bend(sums[0] + sums[1], tau2 - tau1), np.nextafter(tau2, 0.0)), GUARD
    return _bend(sums[0], tau1), NORMAL


@njit(cache=True, error_model="numpy")
def _bend(total, room):  # type: ignore[no-untyped-def]  # pragma: no cover
    """``total`` up to half of ``room``, then rising strictly below it."""
    half = 0.5 * room
    bent = total if total <= half else room - half * half / max(total, half)
    return min(bent, np.nextafter(room, 0.0))


@njit(cache=True, error_model="numpy")
def _bounded(excess):  # type: ignore[no-untyped-def]  # pragma: no cover
    return 0.0 if np.isnan(excess) else min(max(excess, 0.0), MOST_EXCESS)


@njit(cache=True, error_model="numpy")
def count_evidence(count, ratio, judged, alarm, probes, moves):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Most units behind a verdict on the clauses ``probes``; ``ratio`` is at least 1 in alarm."""
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
