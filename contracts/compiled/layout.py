"""The axes of every array: which kernels, slices, replicas and probe metrics, in which order.

All fleets that are advanced together share one layout, so an array has a leading batch axis ``B`` and
then axes named here: ``K`` kernels, ``S`` slices, ``R`` replicas, ``M`` probe metrics, ``C`` clauses.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetLayout:
    """Names and order of the array axes."""

    kernels: tuple[str, ...]  # [K]
    slices: tuple[str, ...]  # [S]
    replicas: tuple[str, ...]  # [R]
    replica_kernel: NDArray[np.int64]  # [R] index of the kernel that the replica runs
    probe_metrics: tuple[str, ...]  # [M] "<metric>@<estimator>", e.g. "kl_mean@full_vocab"
    known_good: int  # index of the certified kernel that a fallback goes to
    zones: tuple[str, ...] = ()  # [R] zone of each replica; empty: not known

    @property
    def shape(self) -> tuple[int, int, int]:
        """``(K, S, R)``."""
        return len(self.kernels), len(self.slices), len(self.replicas)
