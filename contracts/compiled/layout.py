"""The axes of every array: which kernels, slices, replicas and probe metrics, in which order.

All fleets that are advanced together share one layout, so an array has a leading batch axis ``B`` and
then axes named here: ``K`` kernels, ``S`` slices, ``R`` replicas, ``M`` probe metrics, ``C`` clauses.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

#: Upper bucket edges of every latency histogram, in ms; the last bucket is open. Chosen to cover
#: inter-token times of a few ms and end-to-end times of minutes.
HISTOGRAM_EDGES_MS: tuple[float, ...] = (
    5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 250.0, 500.0, 1000.0, 2000.0,
    4000.0, 8000.0, 15000.0, 30000.0, 60000.0, 120000.0,
)  # fmt: skip

#: Latency families of a histogram, in array order (vLLM: e2e_request_latency_seconds,
#: time_to_first_token_seconds, inter_token_latency_seconds).
LATENCY_FAMILIES: tuple[str, ...] = ("latency_ms", "ttft_ms", "inter_token_ms")


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
