"""Thresholds for a declared ARL0: guaranteed by a theorem, or calibrated under a named law.

``guaranteed_threshold`` needs no law, only the detector's null. ``calibrated_threshold`` finds the threshold
whose mean run length under a law is ARL0, by one of three ways:

* ``change of measure`` for sums over starts (Shiryaev-Roberts) and independent observations, at any ARL0.
  With Q the mixture, over starts and bets, of laws tilted by the e-values, dQ/dP = R on what was seen, so
  the false-alarm rate at level h is the mean of ``1 / R`` at the first crossing under Q: runs as short as a
  detection delay, each weighed by about ``exp(-h)``.
* ``simulation`` of healthy streams, up to ARL0 of ``MOST_DIRECT``.
* ``extrapolation`` beyond: the logarithm of the mean run length is asymptotically linear in the threshold
  of additive statistics. ``overlap_error`` says how far the line, fitted to the lower half, misses the
  simulated upper half (log units); where it is not small, the law or the statistic is not of that kind.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from contracts.rng import stream
from controller.detect.calibration.laws import Blocks, Empirical, Normal, ObservationLaw, Ones
from controller.detect.calibration.simulate import ArlCurve, arl_curve
from controller.detect.streams.eprocess import Betting, Gaussian, Start
from controller.detect.streams.passes import first_crossings
from controller.detect.streams.protocol import Floats, StreamDetector, guaranteed_threshold
from controller.detect.streams.ranks import Rank

MOST_DIRECT = 3e4
#: Blocks of a finite recorded series are calibrated to so many times the declared ARL0: the series is one
#: draw of its own law, and too few long excursions in it would make the threshold too low.
BLOCK_MARGIN = 1.25
_BURN_IN = 500
_MOST_STEPS = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """A threshold and how it was found."""

    #: Of the detector's statistic.
    threshold: float
    #: Declared mean run length to a false alarm, in observations.
    arl0: float
    method: str
    #: Relative standard error of the mean run length at ``threshold``.
    error: float
    #: Misfit of the extrapolation where it can be checked, in log units of ARL0 (0 for the other methods).
    overlap_error: float
    #: Names of detector and law, with their settings.
    detector: str
    law: str
    seed: int


def calibrated_threshold(
    detector: StreamDetector,
    law: ObservationLaw,
    arl0: float,
    *,
    seed: int = 0,
    runs: int = 4000,
) -> Calibration:
    """Threshold whose mean run length under ``law`` is ``arl0``; the same for the same arguments.

    runs: simulated streams (per bet, with a change of measure).
    """
    guaranteed_threshold(arl0)  # raises for an invalid run length
    plan = _tilts(detector, law)
    if plan:
        curve = tilted_curve(detector, law, plan, arl0, seed=seed, runs=runs)
        return _calibration(detector, law, arl0, seed, curve, "change of measure")
    if arl0 <= MOST_DIRECT:
        curve = arl_curve(detector, law, streams=runs, samples=math.ceil(arl0 / 2.0), seed=seed)
        return _calibration(detector, law, arl0, seed, curve, "simulation")
    return _extrapolated(detector, law, arl0, seed, runs)


def block_threshold(
    detector: StreamDetector, series: Floats, arl0: float, *, length: int, seed: int = 0, runs: int = 4000
) -> Calibration:
    """Threshold for observations that depend on each other, from a recorded healthy ``series`` float64 [n].

    length: of a block, several times the correlation and the delay. Calibrated to ``BLOCK_MARGIN`` times
    ``arl0``. Of log-evidence never below ``log arl0``: what dependence adds is waited for, but a short series
    that happened to be calm takes nothing away.
    """
    law = Blocks(series=series, length=length)
    found = calibrated_threshold(detector, law, BLOCK_MARGIN * arl0, seed=seed, runs=runs)
    floor = guaranteed_threshold(arl0) if isinstance(detector, (Betting, Gaussian, Rank)) else -math.inf
    threshold = max(found.threshold, floor)
    return replace(found, threshold=threshold, arl0=arl0, method=f"blocks of {length}, {found.method}")


def _calibration(
    detector: StreamDetector, law: ObservationLaw, arl0: float, seed: int, curve: ArlCurve, method: str
) -> Calibration:
    return Calibration(
        threshold=curve.threshold_at(arl0),
        arl0=arl0,
        method=method,
        error=curve.error_at(arl0),
        overlap_error=0.0,
        detector=detector.name,
        law=law.name,
        seed=seed,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tilt:
    """One bet's law: drawn from ``law``, with weight ``weight``; ``growth``: mean e-value under the null."""

    law: ObservationLaw
    weight: float
    growth: float


def _tilts(detector: StreamDetector, law: ObservationLaw) -> list[Tilt]:
    """The law under each bet of ``detector``; empty where no change of measure is known."""
    if isinstance(detector, Gaussian) and isinstance(law, Normal) and detector.start is Start.SUM:
        return _gaussian_tilts(detector, law)
    if isinstance(detector, Betting) and detector.start is Start.SUM:
        if isinstance(law, Ones) and law.persistence == 0.0:
            shares = np.array([1.0 - law.rate, law.rate])
            return _betting_tilts(detector, np.array([0.0, 1.0]), shares)
        if isinstance(law, Empirical):
            count = law.values.size
            shares = np.full(count, 1.0 / count) if law.weights is None else law.weights / law.weights.sum()
            return _betting_tilts(detector, law.values, shares)
    return []


def _gaussian_tilts(detector: Gaussian, law: Normal) -> list[Tilt]:
    if (detector.mean, detector.deviation) != (law.mean, law.deviation):
        return []
    return [
        Tilt(law=Normal(mean=law.mean + a * law.deviation, deviation=law.deviation), weight=w, growth=1.0)
        for a, w in zip(*(part.tolist() for part in detector.grid), strict=True)
    ]


def _betting_tilts(detector: Betting, values: Floats, shares: Floats) -> list[Tilt]:
    """Shares times e-values; empty where a tilted law would not drive the evidence up (ARL0 is then vast)."""
    factors = detector.e_values(values)
    tilts = []
    for place, weight in enumerate(detector.weights):
        tilted = shares * factors[:, place]
        growth = float(tilted.sum())
        tilts.append(Tilt(law=Empirical(values=values, weights=tilted), weight=weight, growth=growth))
    slowest = min(tilts, key=lambda tilt: tilt.growth)
    return tilts if slowest.growth > 0.98 else []


def tilted_curve(
    detector: StreamDetector, law: ObservationLaw, tilts: list[Tilt], arl0: float, *, seed: int, runs: int
) -> ArlCurve:
    """ARL0 against the threshold around ``arl0``, by change of measure (see the module)."""
    levels = np.linspace(max(math.log(arl0) - 4.0, 0.05), math.log(arl0) + 1.5, 111)
    rates = [_hazard(detector, law, tilt, levels, seed, index, runs) for index, tilt in enumerate(tilts)]
    rate = (np.array([tilt.weight for tilt in tilts])[:, None] * np.stack(rates)).sum(axis=0)
    use = rate > 0.0  # NaN: a level that healthy streams stand above most of the time
    arl = np.maximum.accumulate(1.0 / rate[use])
    # 1 / R at a crossing varies by its overshoot, at most by about its mean; shares of bets are known.
    return ArlCurve(threshold=levels[use], arl=arl, error=np.full(arl.size, 0.6 / math.sqrt(runs)))


def _hazard(
    detector: StreamDetector,
    law: ObservationLaw,
    tilt: Tilt,
    levels: Floats,
    seed: int,
    index: int,
    runs: int,
) -> Floats:
    """Mean of ``growth^steps / R`` at the first crossing of each level under one tilted law, [levels]."""
    rng = stream(seed, "change_of_measure", index)
    state, present = detector.initial(runs), np.ones(runs, dtype=np.bool_)
    for row in law.source(rng, runs)(_BURN_IN):
        detector.advance(state, row, present)
    reached = np.searchsorted(levels, state.statistic, side="right")  # crossed before the change: no alarm
    alive = np.cumsum(np.bincount(reached, minlength=levels.size + 1))[:-1]
    next_level, hazard = reached.astype(np.int64), np.zeros(levels.size)
    more, gain = tilt.law.source(rng, runs), 1.0
    for step in range(_MOST_STEPS):
        if step % 64 == 0:
            block = more(64)
        gain *= tilt.growth
        detector.advance(state, block[step % 64], present)
        first_crossings(next_level, levels, state.statistic, gain, hazard)
        if step % 16 == 0 and int(next_level.min()) == levels.size:
            break
    return np.where(alive >= runs / 2, hazard / np.maximum(alive, 1), np.nan)


def _extrapolated(
    detector: StreamDetector, law: ObservationLaw, arl0: float, seed: int, runs: int
) -> Calibration:
    """Line through (threshold, log ARL0) over the upper decade that can be simulated."""
    low = arl_curve(detector, law, streams=runs, samples=500, seed=seed)
    high = arl_curve(detector, law, streams=runs, samples=15_000, seed=seed + 1)
    lower, upper = _line(low, 500.0, 3e3), _line(high, 8e3, 1e5)
    probe = high.threshold_at(3e4)
    overlap = abs(float(np.polyval(lower, probe)) - math.log(3e4))
    threshold = float((math.log(arl0) - upper[1]) / upper[0])
    error = high.error_at(3e4) * (1.0 + math.log(arl0 / 3e4))
    base = _calibration(detector, law, 3e4, seed, high, "extrapolation")
    return replace(base, threshold=threshold, arl0=arl0, error=error, overlap_error=overlap)


def _line(curve: ArlCurve, least: float, most: float) -> Floats:
    """Slope and intercept of log ARL0 in the threshold, over run lengths from ``least`` to ``most``."""
    use = (curve.arl >= least) & (curve.arl <= most)
    if int(use.sum()) < 2:
        raise ValueError("too few distinct thresholds to extrapolate; use more runs")
    picked = np.linspace(0, int(use.sum()) - 1, min(int(use.sum()), 60)).astype(np.int64)
    return np.asarray(np.polyfit(curve.threshold[use][picked], np.log(curve.arl[use][picked]), 1))
