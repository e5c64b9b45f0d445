"""How numbers are scaled for learned policies, and how those of replicas become one per kernel."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from contracts.jit import compiled
from controller.ports import Observation

#: Ages and times since something are shown as ``log(1 + t) / log(1 + LONGEST_AGE_S)``.
LONGEST_AGE_S = 3600.0
#: Rates are shown as ``log(1 + r) / log(1 + LARGEST_RPS)``.
LARGEST_RPS = 1000.0
#: Healths, loads and evidence above this many times their limit look alike.
MOST_RATIO = 4.0
#: Certified losses are shown as ``log(1 + l / LEAST_LOSS) / log(1 + MOST_LOSS / LEAST_LOSS)``.
LEAST_LOSS, MOST_LOSS = 0.001, 0.1
#: Failures in a row above this look alike; the controller itself acts at five.
MOST_FAILURES = 10.0

_LOG_LONGEST, _LOG_LARGEST = np.log1p(LONGEST_AGE_S), np.log1p(LARGEST_RPS)

Values = NDArray[np.float64]


def log_time(seconds: Values) -> Values:
    """Times in seconds (inf: never) on a logarithmic scale, 0 now and 1 from ``LONGEST_AGE_S`` on."""
    bounded = np.minimum(np.maximum(seconds, 0.0), LONGEST_AGE_S)
    return np.asarray(np.log1p(bounded) / _LOG_LONGEST)


def log_rate(rps: Values) -> Values:
    """Rates in requests per second on a logarithmic scale, 1 at ``LARGEST_RPS``."""
    return np.asarray(np.log1p(rps) / _LOG_LARGEST)


def per_kernel(observation: Observation, values: NDArray[np.generic]) -> Values:
    """Mean [B, K] of ``values`` [B, R] over the kernel's replicas."""
    mean = np.zeros(observation.ready.shape)
    _mean_of_members(mean, np.ascontiguousarray(values), observation.replica_kernel)
    return mean


def worst_of_replicas(observation: Observation, values: NDArray[np.generic]) -> Values:
    """Largest [B, K] of ``values`` [B, R] >= 0 over the kernel's replicas."""
    worst = np.zeros(observation.ready.shape)
    _worst_of_members(worst, np.ascontiguousarray(values), observation.replica_kernel)
    return worst


@compiled
def _mean_of_members(mean, values, owner):
    """A kernel without replicas has 0."""
    count = np.zeros(mean.shape[1], np.int64)
    for r in range(len(owner)):
        count[owner[r]] += 1
    for b in range(mean.shape[0]):
        for r in range(len(owner)):
            mean[b, owner[r]] += values[b, r]
        for k in range(mean.shape[1]):
            mean[b, k] /= max(count[k], 1)


@compiled
def _worst_of_members(worst, values, owner):
    for b in range(worst.shape[0]):
        for r in range(len(owner)):
            worst[b, owner[r]] = max(worst[b, owner[r]], values[b, r])
