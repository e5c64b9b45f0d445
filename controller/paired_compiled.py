"""Compiled comparison of probes with certified values; each fleet by itself, probes in their order."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from contracts.detect.compiled import CEILING
from contracts.detect.fold_compiled import reaches

#: Largest exponent of one unit, as in ``contracts.detect.compiled.tilt``.
_MOST = 600.0


@njit(cache=True, error_model="numpy")
def nearest_score(value, certified, noise):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Score of ``value`` against the nearest of the ``certified`` [J] repeats; NaN where none was measured.

    ``contracts.detect.paired.paired_score``, of the repeat with the smallest score.
    """
    best = np.nan
    for j in range(certified.shape[0]):
        sample = certified[j]
        if np.isnan(sample) or np.isnan(value):
            continue
        if value == sample:
            return 0.0
        score = np.copysign(np.inf, value - sample)
        if noise > 0.0 and value * sample > 0.0:
            score = math.log(value / sample) / noise
        if np.isnan(best) or abs(score) < abs(best):
            best = score
    return best


@njit(cache=True, error_model="numpy")
def _grow(evidence, z, shifts, weights):  # type: ignore[no-untyped-def]  # pragma: no cover
    """One score into one stream's evidence [2 G] (``compiled.tilt``); the new level."""
    total = 0.0
    for g in range(shifts.shape[0]):
        a = shifts[g]
        grown = CEILING if np.isinf(z) else (evidence[g] + 1.0) * math.exp(min(a * z - 0.5 * a * a, _MOST))
        evidence[g] = min(grown, CEILING)
        total += weights[g] * evidence[g]
    return min(total, CEILING)


@njit(cache=True, error_model="numpy")
def _match(matched, z, noise, differs, gain, shift):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Evidence of one metric's match after one score (``recovery.MatchRecovery``, ``ShiftRecovery``)."""
    if noise == 0.0:
        return 1.0 if differs else min(matched * gain, CEILING)
    reach = shift * min(abs(z), _MOST)
    log_cosh = reach + math.log1p(math.exp(-2.0 * reach)) - math.log(2.0)
    return min(matched * math.exp(0.5 * shift * shift - log_cosh), CEILING)


@njit(cache=True, error_model="numpy")
def compare(  # type: ignore[no-untyped-def]  # pragma: no cover
    evidence, matched, changed, heard, replica, row, values, certified, owner, metrics, noise, shifts,
    weights, level, returns, gain, shift,
):  # fmt: skip
    """Every heard probe of a certified prompt is one unit of each metric's stream of its replica."""
    scores = np.empty(metrics.shape[0])
    for b in range(heard.shape[0]):
        for p in range(heard.shape[1]):
            if not heard[b, p] or row[b, p] < 0:
                continue
            r, known, differs, rung = replica[b, p], False, False, False
            for i in range(metrics.shape[0]):
                m = metrics[i]
                scores[i] = nearest_score(values[b, p, m], certified[owner[r], row[b, p], :, m], noise)
                if np.isnan(scores[i]):
                    continue
                known, differs = True, differs or scores[i] != 0.0
                total = _grow(evidence[b, r, i], scores[i], shifts, weights)
                rung |= reaches(total, level[0], level[1])
            if rung:
                changed[b, r] = True
                evidence[b, r, :, :] = 0.0
                matched[b, r, :] = 1.0
            elif known and changed[b, r]:
                back = True
                for i in range(metrics.shape[0]):
                    if not np.isnan(scores[i]):
                        matched[b, r, i] = _match(matched[b, r, i], scores[i], noise, differs, gain, shift)
                    back &= matched[b, r, i] >= returns
                changed[b, r] = not back
