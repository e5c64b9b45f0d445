"""Thresholds of log-evidence: which one is guaranteed, and how compiled code tests for it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.jit import compiled
from controller.detect.streams.protocol import Floats

#: Levels this close to a threshold are compared by their logarithm, as the statistic is.
_NEAR = 1.0 - 1e-9


#: One threshold of log-evidence as ``reaches`` reads it.
LOG_THRESHOLD = np.dtype(
    [
        ("near", np.float64),  # evidence from which on its logarithm is looked at; inf: never
        ("log", np.float64),  # log-evidence of an alarm; inf: never
    ]
)


def log_threshold(thresholds: Floats) -> NDArray[Any]:
    """``thresholds`` [...] of log-evidence as records [...] for compiled code; inf stays."""
    records = np.empty(np.shape(thresholds), dtype=LOG_THRESHOLD)
    records["near"], records["log"] = np.exp(thresholds) * _NEAR, thresholds
    return records


@compiled
def reaches(level, threshold):
    """The logarithm of evidence ``level`` is at or above ``threshold``, a record of ``LOG_THRESHOLD``.

    A logarithm is taken only where it can matter.
    """
    return level >= threshold.near and math.log(level) >= threshold.log


def guaranteed_threshold(arl0: float) -> float:
    """Log-evidence at which the mean run length is at least ``arl0`` observations, under the detector's null.

    For ``Betting``, ``Gaussian`` and online ``Rank`` with sum or best start. Raises ValueError for an
    ``arl0`` that is no run length.
    """
    if not 1.0 < arl0 < 1e100:
        raise ValueError(f"expected an ARL0 of more than one observation, got {arl0}")
    return math.log(arl0)


def guaranteed_thresholds(arl0: Floats) -> Floats:
    """``guaranteed_threshold`` of every ``arl0`` [...]; inf (no stream) stays."""
    levels = np.full(arl0.shape, math.inf)
    finite = np.isfinite(arl0)
    levels[finite] = [guaranteed_threshold(float(value)) for value in arl0[finite]]
    return levels
