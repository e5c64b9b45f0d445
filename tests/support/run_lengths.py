"""Exact limits of a run length to a false alarm, from alarms that were counted."""

from __future__ import annotations

import math

from scipy.special import gammaincinv

from controller.detect.calibration.simulate import FalseAlarms


def arl_at_least(found: FalseAlarms, confidence: float) -> float:
    """Lower limit of the mean run length, from the exact Poisson limit of the count."""
    return found.samples / float(gammaincinv(found.alarms + 1, confidence))


def arl_at_most(found: FalseAlarms, confidence: float) -> float:
    """Upper limit of the mean run length (inf: no alarm seen)."""
    return found.samples / float(gammaincinv(found.alarms, 1.0 - confidence)) if found.alarms else math.inf
