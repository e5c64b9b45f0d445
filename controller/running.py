"""How near the running window is to breaking a clause, before it is full: evidence for learned policies."""

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
