"""What learned policies are shown of the clauses: excess by family, and how near the running window is."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numba import njit
from numpy.typing import NDArray

from contracts.compiled import CompiledContract
from controller.detectors import COUNT, OVER, TOTAL, probe_clauses
from controller.flags_compiled import by_cell, some_of

#: A limit of 0 is read as this: the first unit beyond it is far beyond.
LEAST_LIMIT = 1e-9
#: Clause families in the order of ``Observation.family_excess``.
FAMILIES = "NSRO"
#: Shown of a clause in alarm whose excess has gone back to 0.
LEAST_EXCESS = 0.01


def family_excess(
    alarm: NDArray[np.bool_], excess: NDArray[np.float64], contract: CompiledContract
) -> NDArray[np.float64]:
    """Largest excess in alarm by family, float64 [B, K, S, 4], of ``alarm`` and ``excess`` [B, K, S, C].

    0 where no clause of the family is in alarm, at least ``LEAST_EXCESS`` where one is.
    """
    worst = np.zeros((*alarm.shape[:3], len(FAMILIES)))
    _family_excess(worst, np.ascontiguousarray(alarm), np.ascontiguousarray(excess), _families(contract))
    return worst


@lru_cache(maxsize=64)
def _families(contract: CompiledContract) -> NDArray[np.int64]:
    return np.array([FAMILIES.index(letter) for letter in contract.family], dtype=np.int64)


@njit(cache=True, error_model="numpy")
def _family_excess(worst, alarm, excess, family):  # type: ignore[no-untyped-def]  # pragma: no cover
    fleets, kernels, slices, clauses = alarm.shape
    cells = by_cell(alarm)
    for b in range(fleets):
        for k in range(kernels):
            if not some_of(cells, b, k):
                continue
            for s in range(slices):
                for c in range(clauses):
                    if alarm[b, k, s, c]:
                        shown = max(excess[b, k, s, c], LEAST_EXCESS)
                        worst[b, k, s, family[c]] = max(worst[b, k, s, family[c]], shown)


def running_ratio(
    window: NDArray[np.float64], included: NDArray[np.bool_], replica_kernel: NDArray[np.int64],
    kernels: int, contract: CompiledContract,
) -> NDArray[np.float64]:  # fmt: skip
    """How near the running window is to breaking a probe clause, float64 [B, K, S]: 1 is at the limit.

    window: float64 [B, R, S, C, 4], sums of the window so far; included: bool [B, R], replicas that speak
    for their kernel. The worst clause decides; 0 without a unit. No verdict: few units say little.
    """
    worst = np.zeros((window.shape[0], kernels, window.shape[2]))
    _running_ratio(
        worst, window, included, replica_kernel, probe_clauses(contract), contract.is_rate, _limit(contract),
        contract.sense, np.ascontiguousarray(contract.applies),
    )  # fmt: skip
    return worst


@lru_cache(maxsize=64)
def _limit(contract: CompiledContract) -> NDArray[np.float64]:
    return np.where(contract.is_rate, contract.rate_limit, np.abs(contract.threshold))


@njit(cache=True, error_model="numpy")
def _running_ratio(  # type: ignore[no-untyped-def]  # pragma: no cover
    worst, window, included, owner, clauses, is_rate, limit, sense, applies
):
    batch, replicas, slices, _, _ = window.shape
    kernels, probed = worst.shape[1], len(clauses)
    sums = np.zeros((kernels, slices, probed, 2))  # units, and of them those over or their sum
    for b in range(batch):
        sums[:] = 0.0
        for r in range(replicas):
            if not included[b, r]:
                continue
            for s in range(slices):
                for i in range(probed):
                    c = clauses[i]
                    sums[owner[r], s, i, 0] += window[b, r, s, c, COUNT]
                    sums[owner[r], s, i, 1] += window[b, r, s, c, OVER if is_rate[c] else TOTAL]
        for k in range(kernels):
            for s in range(slices):
                for i in range(probed):
                    c, at_most = clauses[i], is_rate[clauses[i]] or sense[clauses[i]] > 0.0
                    # Nothing of a limit is used up; most clauses are spared two divisions.
                    idle = at_most and sums[k, s, i, 1] == 0.0
                    if not idle and sums[k, s, i, 0] > 0.0 and applies[c, s]:
                        value = sums[k, s, i, 1] / sums[k, s, i, 0]
                        worst[b, k, s] = max(worst[b, k, s], _share(value, limit[c], at_most))


@njit(cache=True, error_model="numpy")
def _share(value, limit, at_most):  # type: ignore[no-untyped-def]  # pragma: no cover
    """How near ``value`` is to a limit that it may reach ``at_most``, or must at least."""
    if at_most:
        return value / max(limit, LEAST_LIMIT)
    return limit / max(value, LEAST_LIMIT)
