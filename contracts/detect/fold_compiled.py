"""Compiled fold of a tick's units into evidence; each fleet by itself, units in their order of arrival.

One implementation for whoever folds: ``contracts.detect.streams`` and the controller's sequential detector.
Two things grow with every unit: the evidence that a clause is broken, and, where it is wanted, the
evidence that it is kept again (the law of ``contracts.detect.recovery.ClauseRecovery``).

A stream's memory is one row of numbers, ``cell`` float64 [G + 3]: the evidence of each of G bets (those of
``contracts.detect.spread`` last, 0 where the stream has none), their
weighted sum (``LEVEL``; 0: no unit yet), and units and their sum since that last stood below 1 (``UNITS``,
``SUM``), which is where a change most likely began. The statistic is the level's logarithm; a threshold on it
is tested by ``reaches``, which takes a logarithm only where it matters.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from contracts.compiled import CompiledContract, Source
from contracts.detect.clauses import ClausePlan, Kind
from contracts.detect.compiled import CEILING, FLOOR
from contracts.detect.eprocess import MEAN_BETS
from contracts.detect.protocol import LOWEST, Floats
from contracts.detect.recovery import SHARES
from contracts.detect.spread import CAP, SHARE, TILT_WEIGHTS, TILTS

PROBE = int(Source.PROBE)
NONE, AT_ONCE, BETTING = int(Kind.NONE), int(Kind.AT_ONCE), int(Kind.BETTING)
#: Log-evidence of an alarm without an ARL0: above every threshold.
CERTAIN = math.log(CEILING)
#: Shares of the largest admissible bet on health.
HEALTH_SHARES = np.array(SHARES)
#: Bets of every clause, bets on its spread, and shares of every recovery: constants, so that compiled loops
#: over them unroll. GROUPS: evidence that is summed.
BETS, SPREADS, HEALTHS = len(MEAN_BETS), len(TILTS), len(SHARES)
GROUPS = BETS + SPREADS
#: The first tilt, the most that one unit may multiply its evidence by, and the weights where both bet.
_TILT, _MOST, _BET_SHARE, _TILT_WEIGHTS = TILTS[0], math.exp(CAP), 1.0 - SHARE, np.array(TILT_WEIGHTS)
#: Places in a stream's memory, from its end.
LEVEL, UNITS, SUM = -3, -2, -1
#: Levels this close to a threshold are compared by their logarithm, as the statistic is.
_NEAR = 1.0 - 1e-9
#: Last axis of sums arrays, as the controller keeps them.
COUNT, TOTAL, SQUARES, OVER = 0, 1, 2, 3


class FoldPlan(NamedTuple):
    """Clause arrays [C] that the fold reads, from ``CompiledContract`` and ``ClausePlan``, and ``gain``.

    applies: bool [C, S], online clauses only; bets, weights: float64 [C, BETS]. gain: evidence of health that
    one clean unit gives where the limit is 0. fair: float64 [U, S, C, SPREADS], ``exp(-psi)`` of
    ``contracts.detect.spread`` (0: no such bet; NaN: none on this slice, but on others; U = 0: nowhere).
    """

    source: NDArray[np.int64]
    column: NDArray[np.int64]
    threshold: NDArray[np.float64]
    sense: NDArray[np.float64]
    applies: NDArray[np.bool_]
    kind: NDArray[np.int64]
    is_rate: NDArray[np.bool_]
    mirrored: NDArray[np.bool_]
    upper: NDArray[np.float64]
    clip: NDArray[np.float64]
    null_mean: NDArray[np.float64]
    bets: NDArray[np.float64]
    weights: NDArray[np.float64]
    health_range: NDArray[np.float64]
    gain: float
    fair: NDArray[np.float64]


def fold_plan(
    contract: CompiledContract, clauses: ClausePlan, gain: float, psi: Floats | None = None
) -> FoldPlan:
    """What the compiled fold needs of a contract; ``psi`` of the units that are folded."""
    applies = np.ascontiguousarray(contract.applies & (contract.source != Source.OFFLINE)[:, None])
    return FoldPlan(
        source=contract.source, column=contract.column, threshold=contract.threshold, sense=contract.sense,
        applies=applies, kind=clauses.kind, is_rate=clauses.is_rate, mirrored=clauses.mirrored,
        upper=clauses.upper, clip=clauses.clip, null_mean=clauses.null_mean, bets=clauses.bets,
        weights=clauses.weights, health_range=clauses.health_range, gain=gain,
        fair=np.empty((0, *contract.applies.T.shape, SPREADS)) if psi is None else fairness(psi),
    )  # fmt: skip


def fairness(psi: Floats) -> Floats:
    """``FoldPlan.fair`` of normalisers ``psi`` [U, S, C, SPREADS]."""
    return np.ascontiguousarray(np.exp(-psi))


def blank_cells(*shape: int) -> NDArray[np.float64]:
    """Memory float64 [*shape, G + 3] of streams that have seen nothing."""
    return np.zeros((*shape, GROUPS + 3))


def statistic(cells: Floats) -> Floats:
    """Log-evidence [...] of ``cells`` [..., G + 3]; ``LOWEST`` where nothing was seen."""
    level = cells[..., LEVEL]
    return np.asarray(np.where(level > 0.0, np.log(np.where(level > 0.0, level, 1.0)), LOWEST))


def near_levels(thresholds: Floats) -> Floats:
    """Levels from which on ``reaches`` looks closer; ``thresholds`` of the statistic, inf stays."""
    return np.asarray(np.exp(thresholds) * _NEAR)


def both_levels(thresholds: Floats) -> Floats:
    """``near_levels`` and the thresholds themselves, float64 [2, ...], as compiled passes read them."""
    return np.stack([near_levels(thresholds), thresholds])


@njit(cache=True, error_model="numpy")
def reaches(level, near, threshold):  # type: ignore[no-untyped-def]  # pragma: no cover
    """The statistic of ``level`` is at or above ``threshold``, whose ``near_levels`` is ``near``."""
    return level >= near and math.log(level) >= threshold


@njit(cache=True, error_model="numpy")
def unit_value(value, threshold, sense, is_rate, mirrored, upper, clip):  # type: ignore[no-untyped-def]  # pragma: no cover
    """What a clause bets on: the indicator, or the clipped (mirrored) value, never below 0."""
    if is_rate:
        return 1.0 if sense * (value - threshold) > 0.0 else 0.0
    if mirrored:
        return max(upper - value, 0.0)
    return max(min(value, clip), 0.0)


@njit(cache=True, error_model="numpy")
def scrape_value(count, total, over, is_rate, mirrored, upper, clip):  # type: ignore[no-untyped-def]  # pragma: no cover
    """The unit of one scrape: the share of its requests over the threshold, or their (mirrored) mean."""
    units = max(count, 1.0)
    if is_rate:
        return max(over / units, 0.0)
    mean = total / units
    return max(upper - mean if mirrored else min(mean, clip), 0.0)


@njit(cache=True, error_model="numpy")
def take(cell, y, kind, null_mean, bets, weights):  # type: ignore[no-untyped-def]  # pragma: no cover
    """One unit ``y`` into the memory of one stream."""
    if kind == AT_ONCE:
        cell[GROUPS + 1] += 1.0
        cell[GROUPS + 2] += y
        if y > 0.0:
            cell[GROUPS] = CEILING
        return
    if cell[GROUPS] < 1.0:
        cell[GROUPS + 1], cell[GROUPS + 2] = 0.0, 0.0
    cell[GROUPS + 1] += 1.0
    cell[GROUPS + 2] += y
    excess = y / null_mean - 1.0
    total = 0.0
    for g in range(BETS):
        grown = min((cell[g] + 1.0) * (1.0 + bets[g] * excess), CEILING)
        cell[g] = grown
        total += weights[g] * grown
    cell[GROUPS] = min(max(total, FLOOR), CEILING)


@njit(cache=True, error_model="numpy")
def tilt(evalues, x, fair):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Into ``evalues`` [SPREADS]: what one unit, ``x`` in limits, is worth to the bets on its spread; if any.

    fair: float64 [SPREADS]; NaN: nothing is bet on this unit, which counts in the sum over all slices alone.
    """
    if fair[0] == 0.0:
        return False
    if np.isnan(fair[0]):
        evalues[:] = 1.0
        return True
    power = math.exp(_TILT * x)
    for g in range(SPREADS):
        evalues[g] = min(power * fair[g], _MOST)
        power *= power
    return True


@njit(cache=True, error_model="numpy")
def take_spread(cell, evalues):  # type: ignore[no-untyped-def]  # pragma: no cover
    """After ``take``: the same unit, worth ``evalues``, into the bets on its spread and the sum."""
    mixed = _BET_SHARE * cell[GROUPS]
    for g in range(SPREADS):
        cell[BETS + g] = min((cell[BETS + g] + 1.0) * evalues[g], CEILING)
        mixed += _TILT_WEIGHTS[g] * cell[BETS + g]
    cell[GROUPS] = min(max(mixed, FLOOR), CEILING)


@njit(cache=True, error_model="numpy")
def grow_health(health, y, kind, null_mean, range_, gain):  # type: ignore[no-untyped-def]  # pragma: no cover
    """One unit ``y``, read up to ``range_``, into one stream's evidence of health [H], one start.

    At limit 0 every clean unit multiplies it by ``gain`` and any other one begins the attempt anew.
    """
    for h in range(HEALTHS):
        if kind == AT_ONCE:
            health[h] = min(health[h] * gain, CEILING) if y <= 0.0 else 1.0
        else:
            most = null_mean / (range_ - null_mean)
            short = 1.0 - min(max(y, 0.0), range_) / null_mean
            health[h] = min(health[h] * (1.0 + HEALTH_SHARES[h] * most * short), CEILING)


@njit(cache=True, error_model="numpy")
def fold_probes_of(cells, anywhere, health, wanted, unit_of, heard, replica, slice_, values, plan):  # type: ignore[no-untyped-def]  # pragma: no cover
    """One fleet: each heard probe is one unit of every probe clause of its slice, in the streams of its unit.

    cells: [U, S, C, W] by slice. anywhere: [U, C, W] over all slices, what is broken on any of them;
    [0, C, W] where nobody asks. health: [U, S, C, H], grown where ``wanted`` [U, S, C].
    """
    source, column, threshold, sense, applies, kind, is_rate = plan[:7]
    mirrored, upper, clip, null_mean, bets, weights, range_, gain, fair = plan[7:]
    evalues, spread = np.empty(SPREADS), fair.shape[0] > 0
    for p in range(heard.shape[0]):
        if not heard[p]:
            continue
        u, s = unit_of[replica[p]], slice_[p]
        for c in range(source.shape[0]):
            if source[c] != PROBE or kind[c] == NONE or not applies[c, s]:
                continue
            value = values[p, column[c]]
            if np.isnan(value):
                continue
            y = unit_value(value, threshold[c], sense[c], is_rate[c], mirrored[c], upper[c], clip[c])
            tilted = spread and tilt(evalues, y / null_mean[c], fair[u, s, c])
            take(cells[u, s, c], y, kind[c], null_mean[c], bets[c], weights[c])
            if tilted and not np.isnan(fair[u, s, c, 0]):
                take_spread(cells[u, s, c], evalues)
            if anywhere.shape[0]:
                take(anywhere[u, c], y, kind[c], null_mean[c], bets[c], weights[c])
                if tilted:
                    take_spread(anywhere[u, c], evalues)
            if wanted[u, s, c]:
                grow_health(health[u, s, c], y, kind[c], null_mean[c], range_[c], gain)


@njit(cache=True, error_model="numpy")
def fold_suspicion(evidence, anywhere, suspected, unit_of, heard, replica, slice_, values, plan):  # type: ignore[no-untyped-def]  # pragma: no cover
    """One fleet: the same units of probes into e-processes with one start, of the ``suspected`` [U] units.

    evidence: [U, S, C, BETS] by slice; anywhere: [U, C, BETS] over all slices.
    """
    source, column, threshold, sense, applies, kind, is_rate = plan[:7]
    mirrored, upper, clip, null_mean, bets, _, _, _, _ = plan[7:]
    for p in range(heard.shape[0]):
        if not heard[p] or not suspected[unit_of[replica[p]]]:
            continue
        u, s = unit_of[replica[p]], slice_[p]
        for c in range(source.shape[0]):
            if source[c] != PROBE or kind[c] != BETTING or not applies[c, s]:
                continue
            value = values[p, column[c]]
            if np.isnan(value):
                continue
            y = unit_value(value, threshold[c], sense[c], is_rate[c], mirrored[c], upper[c], clip[c])
            for g in range(BETS):
                factor = 1.0 + bets[c, g] * (y / null_mean[c] - 1.0)
                evidence[u, s, c, g] = min(evidence[u, s, c, g] * factor, CEILING)
                anywhere[u, c, g] = min(anywhere[u, c, g] * factor, CEILING)


@njit(cache=True, error_model="numpy")
def fold_scrapes_of(cells, anywhere, health, wanted, sums, news, worth, plan):  # type: ignore[no-untyped-def]  # pragma: no cover
    """One fleet: what a tick's ``sums`` [U, S, C, 4] of traffic and gauges hold is one unit per stream.

    Over all slices it is one unit as well, whatever it holds. news: bool [U, S], elsewhere the sums are 0.
    worth: [U, S + 1, C], factors of the units as evidence, the last slice over all ([0, ...]: 1).
    """
    source, _, _, _, applies, kind, is_rate = plan[:7]
    mirrored, upper, clip, null_mean, bets, weights, range_, gain, _ = plan[7:]
    weighed = worth.shape[0] > 0
    for u in range(sums.shape[0]):
        if not news[u].any():
            continue
        for c in range(source.shape[0]):
            if source[c] == PROBE or kind[c] == NONE:
                continue
            count, total, over = 0.0, 0.0, 0.0
            for s in range(sums.shape[1]):
                if not news[u, s] or not sums[u, s, c, COUNT] > 0.0 or not applies[c, s]:
                    continue
                units, sum_, beyond = sums[u, s, c, COUNT], sums[u, s, c, TOTAL], sums[u, s, c, OVER]
                count, total, over = count + units, total + sum_, over + beyond
                y = scrape_value(units, sum_, beyond, is_rate[c], mirrored[c], upper[c], clip[c])
                share = worth[u, s, c] if weighed else 1.0
                take(cells[u, s, c], y * share, kind[c], null_mean[c], bets[c], weights[c])
                if wanted[u, s, c]:
                    grow_health(health[u, s, c], y, kind[c], null_mean[c], range_[c], gain)
            if count > 0.0 and anywhere.shape[0]:
                y = scrape_value(count, total, over, is_rate[c], mirrored[c], upper[c], clip[c])
                share = worth[u, sums.shape[1], c] if weighed else 1.0
                take(anywhere[u, c], y * share, kind[c], null_mean[c], bets[c], weights[c])


@njit(cache=True, error_model="numpy")
def fold_probe_list(cells, anywhere, health, wanted, unit_of, heard, replica, slice_, values, plan):  # type: ignore[no-untyped-def]  # pragma: no cover
    """``fold_probes_of`` for every fleet: a leading axis B on all but ``unit_of`` and the plan."""
    for b in range(heard.shape[0]):
        fold_probes_of(
            cells[b], anywhere[b], health[b], wanted[b], unit_of, heard[b], replica[b], slice_[b], values[b],
            plan,
        )  # fmt: skip


@njit(cache=True, error_model="numpy")
def fold_one_each(cells, anywhere, health, wanted, sums, news, plan):  # type: ignore[no-untyped-def]  # pragma: no cover
    """``fold_scrapes_of`` for every fleet."""
    alone = np.empty((0, 0, 0))
    for b in range(sums.shape[0]):
        fold_scrapes_of(cells[b], anywhere[b], health[b], wanted[b], sums[b], news[b], alone, plan)
