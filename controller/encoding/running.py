"""Clauses in the observation of learned policies: excess by family, and nearness of the running window."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import CompiledContract, FleetLayout
from contracts.jit import compiled
from controller.cells import by_cell, some_of
from controller.detect.clauses import probe_clauses
from controller.detect.sums import COUNT, OVER, TOTAL

#: A limit of 0 is read as this: the first observation beyond it is far beyond.
LEAST_LIMIT = 1e-9
#: Clause families in the order of ``Observation.family_excess``.
FAMILIES = "NSRO"
#: Excess shown for a clause in alarm with a present excess of 0.
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


@compiled
def _family_excess(worst, alarm, excess, family):
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


class _Limits(NamedTuple):
    """Limits of the probe clauses of a contract."""

    clauses: NDArray[np.int64]  # [C], their places
    is_rate: NDArray[np.bool_]  # [C], a share of observations over the threshold is limited, not their mean
    limit: NDArray[np.float64]  # [C], of the share or of the mean
    sense: NDArray[np.float64]  # [C], 1: at most, -1: at least
    applies: NDArray[np.bool_]  # [C, S]


def running_ratio(
    window: NDArray[np.float64], included: NDArray[np.bool_], layout: FleetLayout, contract: CompiledContract
) -> NDArray[np.float64]:
    """How near the running window is to breaking a probe clause, float64 [B, K, S]: 1 is at the limit.

    window: float64 [B, R, S, C, 4], sums of the window so far; included: bool [B, R], replicas that speak
    for their kernel. The worst clause decides; 0 without an observation. No verdict: few observations say
    little.
    """
    worst = np.zeros((window.shape[0], len(layout.kernels), window.shape[2]))
    _running_ratio(worst, window, included, layout.replica_kernel, _limits(contract))
    return worst


@lru_cache(maxsize=64)
def _limits(contract: CompiledContract) -> _Limits:
    return _Limits(
        clauses=probe_clauses(contract),
        is_rate=contract.is_rate,
        limit=np.where(contract.is_rate, contract.rate_limit, np.abs(contract.threshold)),
        sense=contract.sense,
        applies=np.ascontiguousarray(contract.applies),
    )


@compiled
def _running_ratio(worst, window, included, owner, limits):
    sums = np.zeros((worst.shape[1], worst.shape[2], len(limits.clauses), 2))
    for b in range(window.shape[0]):
        _pool_window(sums, window, included, owner, limits, b)
        _worst_shares(worst, sums, limits, b)


@compiled
def _pool_window(sums, window, included, owner, limits, b):
    """Fill ``sums`` [K, S, C', 2] of fleet b: observations of each clause, and those over or their sum."""
    sums[:] = 0.0
    for r in range(window.shape[1]):
        if not included[b, r]:
            continue
        for s in range(window.shape[2]):
            for i in range(len(limits.clauses)):
                c = limits.clauses[i]
                sums[owner[r], s, i, 0] += window[b, r, s, c, COUNT]
                sums[owner[r], s, i, 1] += window[b, r, s, c, OVER if limits.is_rate[c] else TOTAL]


@compiled
def _worst_shares(worst, sums, limits, b):
    for k in range(sums.shape[0]):
        for s in range(sums.shape[1]):
            for i in range(sums.shape[2]):
                c = limits.clauses[i]
                at_most = limits.is_rate[c] or limits.sense[c] > 0.0
                # Nothing of a limit is used up; most clauses are spared two divisions.
                idle = at_most and sums[k, s, i, 1] == 0.0
                if not idle and sums[k, s, i, 0] > 0.0 and limits.applies[c, s]:
                    value = sums[k, s, i, 1] / sums[k, s, i, 0]
                    worst[b, k, s] = max(worst[b, k, s], _share(value, limits.limit[c], at_most))


@compiled
def _share(value, limit, at_most):
    """How near ``value`` is to a limit that it may reach ``at_most``, or must at least."""
    if at_most:
        return value / max(limit, LEAST_LIMIT)
    return limit / max(value, LEAST_LIMIT)
