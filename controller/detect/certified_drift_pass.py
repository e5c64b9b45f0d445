"""Compiled comparison of probes with certified values. Fleets are independent.

Axes: B fleets, R replicas, M' compared metrics, P probes in their order, K kernels, J repeats.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.jit import compiled
from controller.detect.as_certified_pass import DIFFERS, MATCHES, UNKNOWN
from controller.detect.streams.passes import CEILING
from controller.detect.streams.protocol import Flags, Floats, reaches

#: Largest exponent of one observation, as in ``controller.detect.streams.passes.tilt``.
_MOST = 600.0


class DriftMemory(NamedTuple):
    """Memory of the comparison, changed in place."""

    evidence: Floats  # [B, R, M', 2 G], of each shift, in both directions
    matched: Floats  # [B, R, M'], evidence that values match again
    drifted: Flags  # [B, R], differs from the certified baseline


class ComparedProbes(NamedTuple):
    """Probes of one tick, with their certified prompts."""

    received: Flags  # [B, P], probes that count
    replica: NDArray[np.int64]  # [B, P]
    row: NDArray[np.int64]  # [B, P], row of the certified values; -1: no certified prompt
    values: Floats  # [B, P, M]; NaN: not measured


class DriftRules(NamedTuple):
    """Constants of a ``DriftPlan``."""

    certified: Floats  # [K, n, J, M], values by prompt and repeat; NaN: not measured
    owner: NDArray[np.int64]  # [R], kernel of each replica
    metrics: NDArray[np.int64]  # [M']
    noise: float  # relative standard deviation of a repeat
    shifts: Floats  # [2 G], in standard deviations
    weights: Floats  # [2 G]; sum 1
    threshold: NDArray[Any]  # ``LOG_THRESHOLD`` [1]
    returns: float  # evidence of a match that ends the drifted state
    gain: float  # evidence of a match in one probe without noise
    shift: float  # shift under the null "still drifted", in standard deviations


@compiled
def nearest_score(value, certified, noise):
    """Score of ``value`` against the nearest of the ``certified`` [J] repeats; NaN where none was measured.

    ``controller.detect.certified_drift.drift_score``, of the repeat with the smallest score.
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


@compiled
def _grow(evidence, z, shifts, weights):
    """Add one score to one stream's evidence [2 G] (``streams.passes.tilt``); returns the new level."""
    total = 0.0
    for g in range(shifts.shape[0]):
        a = shifts[g]
        grown = CEILING if np.isinf(z) else (evidence[g] + 1.0) * math.exp(min(a * z - 0.5 * a * a, _MOST))
        evidence[g] = min(grown, CEILING)
        total += weights[g] * evidence[g]
    return min(total, CEILING)


@compiled
def _match(matched, z, noise, differs, gain, shift):
    """Evidence that one metric matches, after one score.

    Null hypothesis without noise: at least a share ``1 - 1 / gain`` of the probes differs. With noise: scores
    are shifted by ``shift`` or more; ``exp(shift^2 / 2) / cosh(shift z)`` has mean 1 at exactly that shift,
    and less beyond.
    """
    if noise == 0.0:
        return 1.0 if differs else min(matched * gain, CEILING)
    reach = shift * min(abs(z), _MOST)
    log_cosh = reach + math.log1p(math.exp(-2.0 * reach)) - math.log(2.0)
    return min(matched * math.exp(0.5 * shift * shift - log_cosh), CEILING)


@compiled
def compare(memory, outcome, probes, rules):
    """Every received probe of a certified prompt is one observation of each metric's stream of its replica.

    memory: ``DriftMemory``; outcome: int8 [B, P], filled with ``UNKNOWN``, ``MATCHES`` or ``DIFFERS`` of
    ``as_certified_pass``; probes: ``ComparedProbes``; rules: ``DriftRules``.
    """
    evidence, matched, drifted = memory.evidence, memory.matched, memory.drifted
    threshold = rules.threshold[0]
    scores = np.empty(rules.metrics.shape[0])
    for b in range(probes.received.shape[0]):
        for p in range(probes.received.shape[1]):
            outcome[b, p] = UNKNOWN
            if not probes.received[b, p] or probes.row[b, p] < 0:
                continue
            r, known, differs, raised = probes.replica[b, p], False, False, False
            for i in range(scores.shape[0]):
                m = rules.metrics[i]
                certified = rules.certified[rules.owner[r], probes.row[b, p], :, m]
                scores[i] = nearest_score(probes.values[b, p, m], certified, rules.noise)
                if np.isnan(scores[i]):
                    continue
                known, differs = True, differs or scores[i] != 0.0
                raised |= reaches(_grow(evidence[b, r, i], scores[i], rules.shifts, rules.weights), threshold)
            if known:
                outcome[b, p] = DIFFERS if differs else MATCHES
            if raised:
                drifted[b, r] = True
                evidence[b, r, :, :] = 0.0
                matched[b, r, :] = 1.0
            elif known and drifted[b, r]:
                drifted[b, r] = not _returned(matched[b, r], scores, differs, rules)


@compiled
def _returned(matched, scores, differs, rules):
    """Add one probe's ``scores`` [M'] to ``matched`` [M']; True where every metric matches again."""
    back = True
    for i in range(scores.shape[0]):
        if not np.isnan(scores[i]):
            matched[i] = _match(matched[i], scores[i], rules.noise, differs, rules.gain, rules.shift)
        back &= matched[i] >= rules.returns
    return back
