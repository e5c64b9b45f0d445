"""Compiled loops over alarms of replicas: which replicas depart from their peers, and which share a fault."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.jit import borrowed, compiled
from controller.cells import by_cell, some_of
from controller.detect.sums import COUNT, excess_of_cell
from controller.judge.replicas.quarantine_pass import DEPARTS, FAILING, HUNG


class Alarms(NamedTuple):
    """Alarms that move traffic, and whether peers share them."""

    severe: NDArray[np.bool_]  # [B, R, S, C], in alarm
    departs: NDArray[np.bool_]  # [B, R, S, C], most peers with evidence are inside the limit
    together: NDArray[np.bool_]  # [B, R, S, C], at least half of them are beyond it too


class Witnesses(NamedTuple):
    """Evidence of the peers."""

    judged: NDArray[np.float64]  # [B, R, S, C, 4], sums behind their verdicts
    window: NDArray[np.float64]  # [B, R, S, C, 4], running window
    against: NDArray[np.bool_]  # [B, R, S, C], evidence beyond the limit; empty (B = 0): by ``judged``
    ready: NDArray[np.bool_]  # [B, R], by discovery


class Limits(NamedTuple):
    """Limits of the clauses."""

    zero: NDArray[np.bool_]  # [C], no tolerance at all
    is_rate: NDArray[np.bool_]  # [C], a share of observations over the threshold is limited, not their mean
    rate_limit: NDArray[np.float64]  # [C]
    threshold: NDArray[np.float64]  # [C]
    sense: NDArray[np.float64]  # [C], 1: at most, -1: at least


@compiled
def compare(alarms, witnesses, limits, owner, kernels):
    """Fill ``departs`` and ``together`` of ``alarms``: compare each replica in alarm with its peers."""
    alarms, witnesses, limits = borrowed((alarms, witnesses, limits))
    severe, ready = alarms.severe, witnesses.ready
    alarmed, cells = np.empty((kernels, *severe.shape[2:]), np.bool_), by_cell(severe)
    for b in range(severe.shape[0]):
        if not _alarmed_somewhere(alarmed, severe, cells, ready, b, owner):
            continue
        places = np.nonzero(alarmed)
        for k, s, c in zip(places[0], places[1], places[2]):  # noqa: B905 - numba knows no strict
            with_evidence, against = 0, 0
            for r in range(len(owner)):
                if owner[r] != k or not ready[b, r]:
                    continue
                known, beyond = _witness(witnesses, limits, b, r, s, c)
                in_alarm = severe[b, r, s, c]
                if in_alarm or known:
                    with_evidence += 1
                    against += in_alarm or beyond
            _divide(alarms, ready, owner, with_evidence, against, b, k, s, c)


@compiled(inline="always")
def _witness(witnesses, limits, b, r, s, c):
    """Whether a replica has evidence on a clause, and whether that lies beyond the clause's limit."""
    cell = witnesses.judged[b, r, s, c]
    known = cell[COUNT] > 0.0 or (limits.zero[c] and witnesses.window[b, r, s, c, COUNT] > 0.0)
    if witnesses.against.shape[0] > 0:
        return known, witnesses.against[b, r, s, c]
    excess = excess_of_cell(
        cell, limits.is_rate[c], limits.rate_limit[c], limits.threshold[c], limits.sense[c]
    )
    return known, excess > 0.0


@compiled(inline="always")
def _divide(alarms, ready, owner, with_evidence, against, b, k, s, c):
    """Each replica of kernel ``k`` in alarm on a cell departs or shares the fault, by its peers."""
    for r in range(len(owner)):
        if owner[r] == k and alarms.severe[b, r, s, c] and ready[b, r]:
            alarms.departs[b, r, s, c] = 2 * (against - 1) < with_evidence - 1
            alarms.together[b, r, s, c] = 2 * (against - 1) >= with_evidence - 1 and against > 1


@compiled
def _alarmed_somewhere(alarmed, severe, cells, ready, b, owner):
    """Mark cells where a ready replica of fleet b is in alarm, in ``alarmed`` [K, S, C]; whether any is."""
    some = False
    for r in range(len(owner)):
        if ready[b, r] and some_of(cells, b, r):
            if not some:
                alarmed[:] = False
            some = True
            for s in range(severe.shape[2]):
                for c in range(severe.shape[3]):
                    alarmed[owner[r], s, c] |= severe[b, r, s, c]
    return some


@compiled
def explain_departures(departs, together, condemned, owner):
    """A replica does not depart on a clause that its kernel is condemned for [B, K, S, C] on any slice."""
    fleets, replicas, slices, clauses = departs.shape
    cells = by_cell(departs)
    for b in range(fleets):
        for r in range(replicas):
            if not some_of(cells, b, r):
                continue
            for s in range(slices):
                for c in range(clauses):
                    if departs[b, r, s, c] and condemned[b, owner[r], :, c].any():
                        departs[b, r, s, c], together[b, r, s, c] = False, True


@compiled
def want_out(wanted, down, hung, departs, failing_now, consecutive_failed, failing_after):
    """Reason to eject each replica, int64 [B, R]: hung before failing before departing.

    down: hung or failing. Failing: a run of failed answers that still grows, by the gateway's counts.
    """
    cells = by_cell(departs)
    for b in range(wanted.shape[0]):
        for r in range(wanted.shape[1]):
            failing = failing_now[b, r] and consecutive_failed[b, r] >= failing_after
            down[b, r] = hung[b, r] or failing
            if hung[b, r]:
                wanted[b, r] = HUNG
            elif failing:
                wanted[b, r] = FAILING
            elif departs.shape[0] > 0 and some_of(cells, b, r):
                wanted[b, r] = DEPARTS


@compiled
def stay_with_kernel(spread, alarms, capped, zero, traffic, silent):
    """Mark replica alarms that count against their kernel, in ``spread`` [B, R, S, C]; whether any does.

    Alarms of ``silent`` replicas [B, R] do not. capped: replicas that depart but serve, because the ejection
    cap keeps them, count as well. Alarms on the clauses ``traffic`` [C] never count: the gateway has counts
    of the kernel itself.
    """
    alarms = borrowed(alarms)
    severe, departs, together = alarms
    some, cells = False, by_cell(severe)
    for b in range(spread.shape[0]):
        for r in range(spread.shape[1]):
            if silent[b, r] or not some_of(cells, b, r):
                continue
            for s in range(spread.shape[2]):
                for c in range(spread.shape[3]):
                    if traffic[c]:
                        continue
                    at = (b, r, s, c)
                    spread[at] = together[at] | (severe[at] & zero[c]) | (capped & departs[at])
                    some |= spread[at]
    return some
