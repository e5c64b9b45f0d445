"""Paired form: each probe prompt against this replica's own certified value of that prompt.

The sharpest signal there is, because the spread between prompts cancels. It says that a replica is not
what was certified, not that the clause is broken: information that calls for more probes, never a switch.

``paired_score`` turns a value into a standard normal under the null "certified value times
``exp(repeat_noise * z)``". Where the stated repeat noise is 0, any difference scores infinity and
the detector alarms at once; with noise it is a known-law detector, calibrated or guaranteed under that law.
"""

from __future__ import annotations

import math

import numpy as np

from contracts.detect.eprocess import Gaussian
from contracts.detect.protocol import Floats

#: Shifts of the paired score that are bet on: a fault far above the noise scores in the tens.
PAIRED_SHIFTS: tuple[float, ...] = (0.5, 1.0, 2.0, 5.0)
PAIRED_WEIGHTS: tuple[float, ...] = (0.2, 0.25, 0.3, 0.25)


def paired_detector() -> Gaussian:
    """Two-sided: a kernel that got closer to the reference is not the certified one either."""
    return Gaussian(shifts=PAIRED_SHIFTS, weights=PAIRED_WEIGHTS, two_sided=True)


def paired_score(value: Floats, certified: Floats, repeat_noise: float) -> Floats:
    """Score of each ``value`` [N] against its ``certified`` [N] one; NaN where either was not measured.

    repeat_noise: relative standard deviation of a repeat (of the logarithm), >= 0.
    """
    if not (repeat_noise >= 0.0 and math.isfinite(repeat_noise)):
        raise ValueError(f"expected a repeat noise >= 0, got {repeat_noise}")
    unknown = np.isnan(value) | np.isnan(certified)
    same = value == certified
    with np.errstate(divide="ignore", invalid="ignore"):
        distance = np.log(value / certified)
        score = distance / repeat_noise if repeat_noise > 0.0 else np.copysign(np.inf, distance)
    # A value of 0, or one of the other sign, is no multiple of the certified one: another value outright.
    score = np.where(np.isnan(score), np.copysign(np.inf, value - certified), score)
    return np.where(unknown, np.nan, np.where(same, 0.0, score))
