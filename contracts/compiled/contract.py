"""``CompiledContract`` and ``FleetLayout``: a contract as arrays, for the controller and the ground truth.

``contracts.compiled.build.compile_contract`` builds it from a ``KernelContract`` and a ``FleetLayout``.

How a clause becomes one number per observation (a probe prompt or a request):

* a *mean* metric (``kl_mean``): the observation's value, clipped at ``clip``; judged ``mean <= threshold``;
* a *percentile* metric (``kl_p99``, ``latency_ms_p99``): the indicator ``value > threshold``, judged
  ``rate <= 1 - XX / 100``;
* a *per-observation* metric (``kl``) with budget rho > 0: the same indicator, judged ``rate <= rho``; with
  rho = 0 (hard) judged ``rate <= null_rate``.

All fleets that are advanced together share one layout, so an array has a leading batch axis ``B`` and then
axes that the layout names: ``K`` kernels, ``S`` slices, ``R`` replicas, ``M`` probe metrics, ``C`` clauses.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from contracts.telemetry import HISTOGRAM_EDGES_MS


class Level(IntEnum):
    """Level of one (kernel, slice): its health H against the contract's guard and fallback thresholds."""

    NORMAL = 0
    GUARD = 1
    FALLBACK = 2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CompiledContract:
    """Clause arrays, one entry per clause (C), for the slices of one layout (S).

    Compared and hashed by identity, so that values derived from a contract can be cached by it.
    """

    name: str
    sha256: str  # hex, of the canonical document
    slices: tuple[str, ...]  # [S] the layout's
    clause_ids: tuple[str, ...]  # [C]
    family: tuple[str, ...]  # [C] N, S, R or O

    # What a clause measures, and how its observations are judged.
    source: NDArray[np.int64]  # [C] a ``Source``
    column: NDArray[np.int64]  # [C] index of the probe metric or latency family, -1 elsewhere
    edge: NDArray[np.int64]  # [C] histogram edge at or above the threshold, -1 elsewhere
    threshold: NDArray[np.float64]  # [C] in the metric's unit
    sense: NDArray[np.float64]  # [C] +1 for "at most", -1 for "at least"
    is_rate: NDArray[np.bool_]  # [C] judged by the share of observations beyond the threshold, not by a mean
    rate_limit: NDArray[np.float64]  # [C] largest such share, 1 (no limit) for a mean
    clip: NDArray[np.float64]  # [C] values are clipped here before averaging, inf: not

    # What follows from a breach.
    budget: NDArray[np.float64]  # [C] rho, tolerated share of observations, 0 for a hard clause
    hard: NDArray[np.bool_]  # [C]
    level: NDArray[np.int64]  # [C] severity, 1..3
    weight: NDArray[np.float64]  # [C] omega of the health sum
    applies: NDArray[np.bool_]  # [C, S]
    guard_threshold: float  # tau1 of the health H
    fallback_threshold: float  # tau2 of the health H
    shed_when_uncertified: bool  # without a certified kernel: shed, else serve the known-good one
    slo_ms: NDArray[np.float64]  # [S, F] request objectives per latency family, inf: none
    priority: NDArray[np.int64]  # [S] the lowest is shed first

    # How much evidence an alarm needs.
    window_s: float  # of the tumbling windows
    min_samples: int  # observations below which a window says nothing
    alarm_confidence: float  # one-sided, of a window's alarm
    false_switch_budget_per_slice_month: float  # of sequential detectors, at most, under their null
    stale_after_s: float  # telemetry older than this is stale
    ejection_cap_ratio: float  # largest share of a kernel's replicas in quarantine


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
    edges_ms: tuple[float, ...] = HISTOGRAM_EDGES_MS  # [E] rising, of latency histograms; see ``edges_for``

    @property
    def shape(self) -> tuple[int, int, int]:
        """``(K, S, R)``."""
        return len(self.kernels), len(self.slices), len(self.replicas)
