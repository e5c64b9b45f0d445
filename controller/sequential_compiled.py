"""Compiled fold of the sequential detector; each fleet by itself, units in their order of arrival.

Two things grow with every unit: the evidence that a clause is broken (``contracts.detect``), and, where it
is wanted, the evidence that it is kept again (the form of ``contracts.detect.recovery``).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from contracts.detect.compiled import CEILING
from contracts.detect.fold_compiled import AT_ONCE, PROBE, take, unit_value


@njit(cache=True)
def grow_health(health, y, kind, null_mean, range_, gain, shares):  # type: ignore[no-untyped-def]  # pragma: no cover
    """One unit ``y`` in [0, range_] into one stream's evidence of health [H].

    At limit 0 every clean unit multiplies it by ``gain`` and any other one begins the attempt anew.
    """
    for h in range(health.shape[0]):
        if kind == AT_ONCE:
            health[h] = min(health[h] * gain, CEILING) if y <= 0.0 else 1.0
        else:
            most = null_mean / (range_ - null_mean)
            short = 1.0 - min(max(y, 0.0), range_) / null_mean
            health[h] = min(health[h] * (1.0 + shares[h] * most * short), CEILING)


@njit(cache=True)
def nearest_alarm(ratio, statistic, alarm, kernel, suspect, moves):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Into ``ratio`` [B, K, S]: the largest share of its threshold that a clause of ``moves`` [C] reached.

    In alarm, 1 and the share that has come in since. Thresholds: kernel [K, S, C]; suspect [S, C], while a
    probe clause of the kernel is in alarm on some slice.
    """
    fleets, kernels, slices, clauses = statistic.shape
    for b in range(fleets):
        for k in range(kernels):
            proven = False
            for s in range(slices):
                for c in range(clauses):
                    proven |= alarm[b, k, s, c] and suspect[s, c] < np.inf
            for s in range(slices):
                most = 0.0
                for c in range(clauses):
                    if not moves[c]:
                        continue
                    level = min(kernel[k, s, c], suspect[s, c]) if proven else kernel[k, s, c]
                    share = min(max(statistic[b, k, s, c], 0.0) / level, 1.0)
                    most = max(most, 1.0 + share if alarm[b, k, s, c] else share)
                ratio[b, k, s] = most


@njit(cache=True)
def fold_probes_in_order(  # type: ignore[no-untyped-def]  # pragma: no cover
    evidence, statistic, since, health, wanted, anywhere, anywhere_statistic, anywhere_since, unit_of, heard,
    replica, slice_, values, source, column, threshold, sense, applies, kind, is_rate, mirrored, upper, clip,
    null_mean, bets, weights, range_, gain, shares,
):  # fmt: skip
    """Each heard probe is one unit of every probe clause of its slice, in the streams of its unit.

    evidence: [B, U, S, C, G] by slice; anywhere: [B, U, C, G] over all slices, what is broken on any of them.
    """
    for b in range(heard.shape[0]):
        for p in range(heard.shape[1]):
            if not heard[b, p]:
                continue
            u, s = unit_of[replica[b, p]], slice_[b, p]
            for c in range(source.shape[0]):
                if source[c] != PROBE or kind[c] == 0 or not applies[c, s]:
                    continue
                value = values[b, p, column[c]]
                if value != value:
                    continue
                y = unit_value(value, threshold[c], sense[c], is_rate[c], mirrored[c], upper[c], clip[c])
                take(
                    evidence[b, u, s, c], statistic[b, u, s, c : c + 1], since[b, u, s, c], y, kind[c],
                    null_mean[c], bets[c], weights[c],
                )  # fmt: skip
                take(
                    anywhere[b, u, c], anywhere_statistic[b, u, c : c + 1], anywhere_since[b, u, c], y,
                    kind[c], null_mean[c], bets[c], weights[c],
                )  # fmt: skip
                if wanted[b, u, s, c]:
                    grow_health(health[b, u, s, c], y, kind[c], null_mean[c], range_[c], gain[c], shares)


@njit(cache=True)
def fold_one_unit_each(  # type: ignore[no-untyped-def]  # pragma: no cover
    evidence, statistic, since, health, wanted, value, present, applies, kind, null_mean, bets, weights,
    range_, gain, shares,
):  # fmt: skip
    """One unit per stream where ``present``; ``value`` [B, U, S, C] is what the clauses bet on."""
    for b in range(present.shape[0]):
        for u in range(present.shape[1]):
            for s in range(present.shape[2]):
                for c in range(present.shape[3]):
                    if not present[b, u, s, c] or kind[c] == 0 or not applies[c, s]:
                        continue
                    y = value[b, u, s, c]
                    take(
                        evidence[b, u, s, c], statistic[b, u, s, c : c + 1], since[b, u, s, c], y, kind[c],
                        null_mean[c], bets[c], weights[c],
                    )  # fmt: skip
                    if wanted[b, u, s, c]:
                        grow_health(health[b, u, s, c], y, kind[c], null_mean[c], range_[c], gain[c], shares)
