"""What learned policies are shown of the clauses: excess by family, and how near the running window is."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from contracts.compiled import CompiledContract, Source
from controller.detectors import COUNT, OVER, TOTAL

#: A limit of 0 is read as this: the first unit beyond it is far beyond.
LEAST_LIMIT = 1e-9
#: A plain integer, because compiled code does not know the enumeration.
PROBE = int(Source.PROBE)
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
    family = np.array([FAMILIES.index(letter) for letter in contract.family], dtype=np.int64)
    _family_excess(worst, np.ascontiguousarray(alarm), np.ascontiguousarray(excess), family)
    return worst


@njit(cache=True)
def _family_excess(worst, alarm, excess, family):  # type: ignore[no-untyped-def]  # pragma: no cover
    fleets, kernels, slices, clauses = alarm.shape
    for b in range(fleets):
        for k in range(kernels):
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
    limit = np.where(contract.is_rate, contract.rate_limit, np.abs(contract.threshold))
    _running_ratio(
        worst, window, included, replica_kernel, contract.source, contract.is_rate, limit, contract.sense,
        np.ascontiguousarray(contract.applies),
    )  # fmt: skip
    return worst


@njit(cache=True)
def _running_ratio(  # type: ignore[no-untyped-def]  # pragma: no cover
    worst, window, included, owner, source, is_rate, limit, sense, applies
):
    batch, replicas, slices, clauses, _ = window.shape
    sums = np.zeros((worst.shape[1], 3))
    for b in range(batch):
        for s in range(slices):
            for c in range(clauses):
                if source[c] != PROBE or not applies[c, s]:
                    continue
                sums[:] = 0.0
                for r in range(replicas):
                    if included[b, r]:
                        sums[owner[r], 0] += window[b, r, s, c, COUNT]
                        sums[owner[r], 1] += window[b, r, s, c, TOTAL]
                        sums[owner[r], 2] += window[b, r, s, c, OVER]
                for k in range(worst.shape[1]):
                    if sums[k, 0] <= 0.0:
                        continue
                    value = sums[k, 2 if is_rate[c] else 1] / sums[k, 0]
                    if is_rate[c] or sense[c] > 0.0:
                        ratio = value / max(limit[c], LEAST_LIMIT)
                    else:
                        ratio = limit[c] / max(value, LEAST_LIMIT)
                    worst[b, k, s] = max(worst[b, k, s], ratio)
