"""Compiled loops of the sequential detector's recovery tests; each fleet by itself, units in their order."""

from __future__ import annotations

from numba import njit

from contracts.detect.compiled import CEILING
from contracts.detect.fold_compiled import AT_ONCE, PROBE, unit_value


@njit(cache=True)
def grow_health(health, y, kind, null_mean, upper, gain, shares):  # type: ignore[no-untyped-def]  # pragma: no cover
    """One unit ``y`` into one stream's evidence of health [H], the form of ``contracts.detect.recovery``.

    At limit 0 every clean unit multiplies it by ``gain`` and any other one begins the attempt anew.
    """
    for h in range(health.shape[0]):
        if kind == AT_ONCE:
            health[h] = min(health[h] * gain, CEILING) if y <= 0.0 else 1.0
        else:
            most = null_mean / (upper - null_mean)
            short = 1.0 - min(max(y, 0.0), upper) / null_mean
            health[h] = min(health[h] * (1.0 + shares[h] * most * short), CEILING)


@njit(cache=True)
def heal_probes(  # type: ignore[no-untyped-def]  # pragma: no cover
    health, wanted, unit_of, heard, replica, slice_, values, source, column, threshold, sense, applies,
    kind, is_rate, mirrored, top, clip, null_mean, upper, gain, shares,
):  # fmt: skip
    """Each heard probe into the streams of its unit and slice where health is wanted."""
    for b in range(heard.shape[0]):
        for p in range(heard.shape[1]):
            if not heard[b, p]:
                continue
            u, s = unit_of[replica[b, p]], slice_[b, p]
            for c in range(source.shape[0]):
                if source[c] != PROBE or not wanted[b, u, s, c] or kind[c] == 0 or not applies[c, s]:
                    continue
                value = values[b, p, column[c]]
                if value != value:
                    continue
                y = unit_value(value, threshold[c], sense[c], is_rate[c], mirrored[c], top[c], clip[c])
                grow_health(
                    health[b, u, s, c], y, kind[c], null_mean[c], upper[c], gain[c], shares
                )  # fmt: skip


@njit(cache=True)
def heal_units(health, wanted, value, present, applies, kind, null_mean, upper, gain, shares):  # type: ignore[no-untyped-def]  # pragma: no cover
    """One unit per stream where ``present`` and health is wanted; ``value`` is what the clause bets on."""
    for b in range(present.shape[0]):
        for u in range(present.shape[1]):
            for s in range(present.shape[2]):
                for c in range(present.shape[3]):
                    if present[b, u, s, c] and wanted[b, u, s, c] and kind[c] != 0 and applies[c, s]:
                        grow_health(
                            health[b, u, s, c], value[b, u, s, c], kind[c], null_mean[c], upper[c],
                            gain[c], shares,
                        )  # fmt: skip
