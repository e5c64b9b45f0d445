"""Compiled tick of the sequential detector; each fleet by itself, units in their order of arrival.

The fold itself is ``contracts.detect.fold_compiled``; here is what follows it: alarms, recovery, memory. Only
what can change is looked at: evidence changes where units came, and without units only a fading sum fades, an
alarm expires, and other thresholds come into force.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from contracts.detect.fold_compiled import (
    AT_ONCE,
    BETS,
    BETTING,
    COUNT,
    GROUPS,
    HEALTHS,
    fold_probes_of,
    fold_scrapes_of,
    fold_suspicion,
    reaches,
)
from contracts.lent import lent
from controller.siblings_compiled import hear_siblings, note_scrapes, weigh_by_siblings

#: Evidence since a unit changed, from which on it speaks against its kernel together with one in alarm.
LEANS = 2.0
#: Where a kernel is broken: on no slice, or on more than one.
NOWHERE, SEVERAL = -1, -2


class Streams(NamedTuple):
    """Memory of U units of B fleets, changed in place by ``advance``.

    cells: float64 [B, U, S, C, G + 3] (``fold_compiled``), anywhere [B, U, C, G + 3] over all slices
    ([B, 0, C, G + 3]: not watched); health: float64 [B, U, S, C, H], 1 where not ``tested`` bool
    [B, U, S, C]; silent_s: float64 [B, U, S, C], of clauses on traffic; recent: float64 [B, U, S, C, 4], sums
    that fade; latest: float64 [B, U, S, C, 4], the last sums, fading. alarm, against: bool [B, U, S, C] and
    excess: float64, the last verdicts. suspicion: float64 [B, U, S, C, BETS], e-processes since the unit is
    ``suspected`` bool [B, U], and over all slices [B, U, C, BETS] (a last axis of 0: none are run; all 0:
    spent).
    """

    cells: NDArray[np.float64]
    anywhere: NDArray[np.float64]
    health: NDArray[np.float64]
    tested: NDArray[np.bool_]
    silent_s: NDArray[np.float64]
    recent: NDArray[np.float64]
    latest: NDArray[np.float64]
    alarm: NDArray[np.bool_]
    against: NDArray[np.bool_]
    excess: NDArray[np.float64]
    suspicion: NDArray[np.float64]
    suspicion_anywhere: NDArray[np.float64]
    suspected: NDArray[np.bool_]


class Arrived(NamedTuple):
    """One tick's units: ``controller.detectors.Arrivals`` as plain arrays; kept: float64 [B], what a sum that
    fades keeps over this tick. changed: bool [B, U].
    """

    unit_of: NDArray[np.int64]
    heard: NDArray[np.bool_]
    replica: NDArray[np.int64]
    slice: NDArray[np.int64]
    values: NDArray[np.float64]
    sums: NDArray[np.float64]
    news: NDArray[np.bool_]
    doubted: NDArray[np.bool_]
    since_s: NDArray[np.float64]
    kept: NDArray[np.float64]
    changed: NDArray[np.bool_]


class Levels(NamedTuple):
    """When what happens. unit: float64 [2, H, U, S, C], anywhere [2, H, U, C], suspect [2, S, C] and against
    [2]: ``near_levels`` and the log-evidence itself, the first two of a unit that hears 1 to H siblings.
    returns: evidence of health that ends an alarm; expiry_s. scale: float64 [C], of an excess. traffic: bool
    [C], clauses that only traffic can judge. owner: int64 [U], whose replicas are siblings ([0]: units have
    none).
    """

    unit: NDArray[np.float64]
    anywhere: NDArray[np.float64]
    suspect: NDArray[np.float64]
    against: NDArray[np.float64]
    returns: float
    expiry_s: float
    scale: NDArray[np.float64]
    traffic: NDArray[np.bool_]
    owner: NDArray[np.int64]


class Said(NamedTuple):
    """Verdicts of this tick alone, [B, U, S, C], to fill in; judged has a last axis 4."""

    inside: NDArray[np.bool_]
    fresh: NDArray[np.bool_]
    judged: NDArray[np.float64]


@njit(cache=True, error_model="numpy")
def _also(broken, s):  # type: ignore[no-untyped-def]  # pragma: no cover
    """The slice that is broken after ``s`` is found to be: ``SEVERAL`` where it is not the first."""
    return s if broken in (NOWHERE, s) else SEVERAL


@njit(cache=True, error_model="numpy")
def nearest_alarm(ratio, cells, alarm, kernel, suspect, moves):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Into ``ratio`` [B, K, S]: the largest share of its threshold that a clause of ``moves`` [C] reached.

    In alarm, 1 and the share that has come in since. Thresholds: kernel [K, S, C]; suspect [S, C], while a
    probe clause of the kernel is in alarm on another slice.
    """
    fleets, kernels, slices, clauses = alarm.shape
    for b in range(fleets):
        for k in range(kernels):
            broken = NOWHERE
            for s in range(slices):
                for c in range(clauses):
                    if alarm[b, k, s, c] and suspect[s, c] < np.inf:
                        broken = _also(broken, s)
            for s in range(slices):
                most, proven = 0.0, broken not in (NOWHERE, s)
                for c in range(clauses):
                    if not moves[c]:
                        continue
                    share, level = 0.0, cells[b, k, s, c, GROUPS]
                    if level > 1.0:
                        least = min(kernel[k, s, c], suspect[s, c]) if proven else kernel[k, s, c]
                        share = min(math.log(level) / least, 1.0)
                    most = max(most, 1.0 + share if alarm[b, k, s, c] else share)
                ratio[b, k, s] = most


@njit(cache=True, error_model="numpy")
def advance(streams, arrived, levels, said, plan):  # type: ignore[no-untyped-def]  # pragma: no cover
    """One tick of every fleet: fold what arrived, ring, recover, remember."""
    cells, anywhere, health, tested, silent_s, recent, latest, alarm, against, excess = lent(streams[:10])
    suspicion, suspicion_anywhere, suspected = lent(streams[10:])
    unit_of, heard, replica, slice_, values, sums, news, doubted, since_s, kept, changed = lent(arrived)
    level, level_anywhere, suspect, level_against, returns, expiry_s, scale, traffic, owner = lent(levels)
    inside, fresh, judged = lent(said)
    plan = lent(plan)
    applies, kind, null_mean = plan.applies, plan.kind, plan.null_mean
    wanted, rung = np.empty(alarm.shape[1:], np.bool_), np.empty(alarm.shape[2:], np.bool_)
    watched, suspects = anywhere.shape[1] > 0, suspicion.shape[4] > 0
    members = owner.shape[0]
    worth = np.ones((members, alarm.shape[2] + 1, alarm.shape[3]))
    siblings, most_heard = np.zeros(alarm.shape[1], np.int64), level.shape[1]
    for b in range(sums.shape[0]):
        _want(wanted, health[b], tested[b], alarm[b], doubted[b])
        fold_probes_of(
            cells[b],
            anywhere[b],
            health[b],
            wanted,
            unit_of,
            heard[b],
            replica[b],
            slice_[b],
            values[b],
            plan,
        )
        if members:
            weigh_by_siblings(worth, sums[b], news[b], latest[b], owner, plan)
            hear_siblings(siblings, sums[b], latest[b], owner, traffic)
        fold_scrapes_of(cells[b], anywhere[b], health[b], wanted, sums[b], news[b], worth, plan)
        if suspects and _suspect(suspected[b], changed[b], suspicion[b], suspicion_anywhere[b]):
            fold_suspicion(
                suspicion[b], suspicion_anywhere[b], suspected[b], unit_of, heard[b], replica[b], slice_[b],
                values[b], plan,
            )  # fmt: skip
        for u in range(wanted.shape[0]):
            rung[:] = False
            if news[b, u].any() or alarm[b, u].any():
                heard_by = min(max(siblings[u], 1), most_heard) - 1
                whole, least = anywhere[b, u : u + 1], level_anywhere[:, heard_by, u if watched else 0]
                rang = _ring(
                    rung, cells[b, u], whole, news[b, u], alarm[b, u], against[b, u], level[:, heard_by, u],
                    least, suspect, level_against, kind, applies,
                )  # fmt: skip
                if suspects and suspected[b, u]:
                    rang |= _ring_suspected(
                        rung, against[b, u], suspicion[b, u], suspicion_anywhere[b, u], plan.weights, suspect,
                        cells[b, u], applies, watched,
                    )  # fmt: skip
                if rang:
                    _begin_anew(rung, cells[b, u], whole, health[b, u], excess[b, u], scale, kind, null_mean)
            _recover(
                rung, sums[b, u], wanted[u], health[b, u], alarm[b, u], excess[b, u], silent_s[b, u],
                inside[b, u], fresh[b, u], since_s[b], returns, expiry_s, traffic,
            )  # fmt: skip
            _remember(recent[b, u], judged[b, u], sums[b, u], news[b, u], kept[b])
            if members:
                note_scrapes(latest[b, u], sums[b, u], news[b, u], kept[b] * kept[b])


@njit(cache=True, error_model="numpy")
def _want(wanted, health, tested, alarm, doubted):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Where evidence of health is wanted; elsewhere there is none."""
    for u in range(wanted.shape[0]):
        for s in range(wanted.shape[1]):
            for c in range(wanted.shape[2]):
                asked = alarm[u, s, c] or doubted[u, s, c]
                wanted[u, s, c] = asked
                if tested[u, s, c] and not asked:
                    for h in range(HEALTHS):
                        health[u, s, c, h] = 1.0
                tested[u, s, c] = asked


@njit(cache=True, error_model="numpy")
def _ring(  # type: ignore[no-untyped-def]  # pragma: no cover
    rung, cells, anywhere, news, alarm, against, level, level_anywhere, suspect, level_against, kind, applies
):
    """Into ``rung`` [S, C]: streams of one unit that reach their threshold now; True if any does."""
    slices, clauses = cells.shape[0], cells.shape[1]
    watched = anywhere.shape[0] > 0
    broken, rang = NOWHERE, False
    for s in range(slices):
        for c in range(clauses):
            rung[s, c] = False
            if news[s]:
                reached = reaches(cells[s, c, GROUPS], level[0, s, c], level[1, s, c])
                rung[s, c] = reached or (kind[c] == AT_ONCE and cells[s, c, GROUPS + 2] > 0.0)
            rang |= rung[s, c]
            if (rung[s, c] or alarm[s, c]) and suspect[1, s, c] < np.inf:
                broken = _also(broken, s)
            most = max(cells[s, c, GROUPS], anywhere[0, c, GROUPS]) if watched else cells[s, c, GROUPS]
            against[s, c] = reaches(most, level_against[0], level_against[1])
    if not watched:
        return _ring_elsewhere(rung, cells, suspect, broken) or rang
    for c in range(clauses):
        if reaches(anywhere[0, c, GROUPS], level_anywhere[0, c], level_anywhere[1, c]):
            rung[_largest(cells, c, applies), c], rang = True, True
    return rang


@njit(cache=True, error_model="numpy")
def _ring_elsewhere(rung, cells, suspect, broken):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Add to ``rung`` the suspects, on every slice but the ``broken`` one; True if any stream rings there."""
    rang = False
    for s in range(rung.shape[0]):
        if broken in (NOWHERE, s):
            continue
        for c in range(rung.shape[1]):
            rung[s, c] |= reaches(cells[s, c, GROUPS], suspect[0, s, c], suspect[1, s, c])
            rang |= rung[s, c]
    return rang


@njit(cache=True, error_model="numpy")
def _suspect(suspected, changed, suspicion, suspicion_anywhere):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Begin e-processes of units that have changed, end those of units that are as certified again."""
    some = False
    for u in range(suspected.shape[0]):
        if changed[u] and not suspected[u]:
            suspicion[u] = 1.0
            suspicion_anywhere[u] = 1.0
        suspected[u] = changed[u]
        some |= changed[u]
    return some


@njit(cache=True, error_model="numpy")
def _ring_suspected(  # type: ignore[no-untyped-def]  # pragma: no cover
    rung, against, suspicion, whole, weights, suspect, cells, applies, watched
):
    """Add to ``rung`` the streams of a suspected unit whose e-process reaches its threshold; it is spent.

    A unit whose evidence since its change leans against a clause speaks against it, long before it is proven:
    its siblings, if they changed as well, do not depart from it.
    """
    rang = False
    for c in range(rung.shape[1]):
        least, total = np.inf, 0.0
        for g in range(BETS):
            total += weights[c, g] * whole[c, g]
        for s in range(rung.shape[0]):
            level = 0.0
            for g in range(BETS):
                level += weights[c, g] * suspicion[s, c, g]
            if reaches(level, suspect[0, s, c], suspect[1, s, c]):
                rung[s, c], rang = True, True
                suspicion[s, c] = 0.0
            least = min(least, suspect[1, s, c])
            against[s, c] |= max(level, total if watched else 0.0) >= LEANS
        if watched and least < np.inf and np.log(max(total, 1e-300)) >= least:
            rung[_largest(cells, c, applies), c], rang = True, True
            whole[c] = 0.0
    return rang


@njit(cache=True, error_model="numpy")
def _largest(cells, c, applies):  # type: ignore[no-untyped-def]  # pragma: no cover
    """The first slice on which the clause's own evidence is largest."""
    best, place = -np.inf, 0
    for s in range(cells.shape[0]):
        if applies[c, s] and cells[s, c, GROUPS] > best:
            best, place = cells[s, c, GROUPS], s
    return place


@njit(cache=True, error_model="numpy")
def _begin_anew(rung, cells, anywhere, health, excess, scale, kind, null_mean):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Evidence against and for begins anew with an alarm, whose excess is what it was raised for."""
    watched = anywhere.shape[0] > 0
    for c in range(rung.shape[1]):
        rang = False
        for s in range(rung.shape[0]):
            if not rung[s, c]:
                continue
            rang = True
            raised = _excess(cells[s, c], kind[c], null_mean[c], scale[c])
            if watched:
                raised = max(raised, _excess(anywhere[0, c], kind[c], null_mean[c], scale[c]))
            excess[s, c] = raised
            _blank(cells[s, c])
            health[s, c, :] = 1.0
        if rang and watched:
            _blank(anywhere[0, c])


@njit(cache=True, error_model="numpy")
def _excess(cell, kind, null_mean, scale):  # type: ignore[no-untyped-def]  # pragma: no cover
    """How far the units since the likely change lie beyond the limit, as a share of it."""
    null = null_mean if kind == BETTING else 0.0
    return max(cell[-1] / max(cell[-2], 1.0) - null, 0.0) / scale


@njit(cache=True, error_model="numpy")
def _blank(cell):  # type: ignore[no-untyped-def]  # pragma: no cover
    cell[:] = 0.0


@njit(cache=True, error_model="numpy")
def _recover(  # type: ignore[no-untyped-def]  # pragma: no cover
    rung, sums, wanted, health, alarm, excess, silent_s, inside, fresh, since_s, returns, expiry_s, traffic
):
    """What ends an alarm, of one unit; ``alarm`` and ``excess`` [S, C] become this tick's."""
    for s in range(rung.shape[0]):
        for c in range(rung.shape[1]):
            heard, expired, well = sums[s, c, COUNT] > 0.0, False, False
            if traffic[c]:
                silent_s[s, c] = 0.0 if heard else silent_s[s, c] + since_s
            if wanted[s, c] and not rung[s, c]:
                total = 0.0
                for h in range(HEALTHS):
                    total += health[s, c, h]
                expired = traffic[c] and silent_s[s, c] >= expiry_s
                well = expired or total / HEALTHS >= returns
            if rung[s, c]:
                alarm[s, c] = True
            elif well:
                alarm[s, c] = False
            if not alarm[s, c]:
                excess[s, c] = 0.0
            inside[s, c] = well
            fresh[s, c] = heard or rung[s, c] or expired


@njit(cache=True, error_model="numpy")
def _remember(recent, judged, sums, news, kept):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Sums of one unit fade and grow; what amounts to less than one unit judges nothing."""
    for s in range(recent.shape[0]):
        for c in range(recent.shape[1]):
            if news[s] and sums[s, c, COUNT] > 0.0:
                for x in range(4):
                    recent[s, c, x] = recent[s, c, x] * kept + sums[s, c, x]
            else:
                for x in range(4):
                    recent[s, c, x] *= kept
            share = 1.0 if recent[s, c, COUNT] >= 1.0 else 0.0
            for x in range(4):
                judged[s, c, x] = recent[s, c, x] * share
