"""A contract as arrays: what the controller and the simulator's ground truth compute with.

``contracts.compile.compile_contract`` builds it from a ``KernelContract`` and a ``FleetLayout``.

How a clause becomes one number per observation unit (a probe prompt or a request):

* a *mean* metric (``kl_mean``): the unit's value, clipped at ``clip``; judged ``mean <= threshold``;
* a *percentile* metric (``kl_p99``, ``latency_ms_p99``): the indicator ``value > threshold``, judged
  ``rate <= 1 - XX / 100``;
* a *per-unit* metric (``kl``) with budget rho > 0: the same indicator, judged ``rate <= rho``; with
  rho = 0 (hard) judged ``rate <= null_rate``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray


class Source(IntEnum):
    """Where a clause's observation units come from."""

    PROBE = 0  # ProbeSamples.values[..., column]
    LATENCY = 1  # FleetTelemetry.latency_le[..., column, edge]
    FAILED = 2  # failed / (answered + failed)
    FINGERPRINT = 3  # 1 - fingerprint_match
    TRACE_FIELDS = 4  # 1 - trace_fields_ratio
    KV_USED = 5  # kv_used_ratio
    OFFLINE = 6  # judged by `selvage contract evaluate` only, never online


class Level(IntEnum):
    """State of one (kernel, slice): what the two thresholds of the contract say of H."""

    NORMAL = 0
    GUARD = 1
    FALLBACK = 2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CompiledContract:
    """Clause arrays, one entry per clause (C), for the slices of one layout (S).

    Compared and hashed by identity, so that what follows from a contract can be kept beside it.

    source, column, edge: int64 [C]; ``column`` is a probe metric or latency family, ``edge`` the
        histogram edge at or above the threshold (-1 elsewhere).
    threshold: float64 [C], in the metric's unit; sense: float64 [C], +1 for "at most", -1 "at least".
    is_rate: bool [C], judged as an exceedance rate against ``rate_limit`` float64 [C] instead of a mean.
    clip: float64 [C], values are clipped here before averaging (inf: not).
    budget: float64 [C], rho; hard: bool [C]; level: int64 [C], 1..3; family: one letter per clause.
    weight: float64 [C], omega of the health sum; applies: bool [C, S].
    guard_threshold, fallback_threshold: tau1, tau2 of the health H.
    window_s: default tumbling window; min_samples: units below which a window says nothing;
        alarm_confidence: one-sided confidence of a window alarm.
    false_switch_budget_per_slice_month: what sequential detectors may cost at most under their null.
    shed_when_uncertified: where no certified kernel lives, shed (True) or serve known-good (False).
    ejection_cap_ratio: largest share of a kernel's replicas in quarantine; stale_after_s: telemetry
        older than this is stale; slo_ms: float64 [S, F] request objectives per latency family.
    priority: int64 [S], shed the lowest first.
    """

    name: str
    sha256: str
    slices: tuple[str, ...]
    clause_ids: tuple[str, ...]
    family: tuple[str, ...]
    source: NDArray[np.int64]
    column: NDArray[np.int64]
    edge: NDArray[np.int64]
    threshold: NDArray[np.float64]
    sense: NDArray[np.float64]
    is_rate: NDArray[np.bool_]
    rate_limit: NDArray[np.float64]
    clip: NDArray[np.float64]
    budget: NDArray[np.float64]
    hard: NDArray[np.bool_]
    level: NDArray[np.int64]
    weight: NDArray[np.float64]
    applies: NDArray[np.bool_]
    guard_threshold: float
    fallback_threshold: float
    window_s: float
    min_samples: int
    alarm_confidence: float
    shed_when_uncertified: bool
    ejection_cap_ratio: float
    stale_after_s: float
    slo_ms: NDArray[np.float64]
    priority: NDArray[np.int64]
    false_switch_budget_per_slice_month: float = 1.0
