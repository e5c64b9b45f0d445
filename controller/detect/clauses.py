"""From a compiled contract to the detector of each clause; there is nothing to configure.

| clause | observation y | null | detector |
|---|---|---|---|
| rate clause (percentile, soft, hard), limit rho > 0 | 1: over | P <= rho | betting on exceedances |
| hard rate clause, limit 0 | 1: over | never | alarm at the first one, no ARL0 |
| mean clause, "at most" m | the value, clipped | mean <= m | betting on a mean |
| mean clause, "at least" m | upper - value, never below 0 | mean <= upper - m | betting on a mean |
| step-time clause, m | e-value of the log of the ratio over m | ``step_time``'s | betting on a mean of 1 |

Observations of probes are independent prompts, so their thresholds are guaranteed. Observations of traffic
and gauges (one per scrape: the share of its requests over the threshold) are correlated through queues, so
their thresholds are calibrated by blocks (``laws.Blocks``).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import CompiledContract
from contracts.telemetry import Source
from controller.detect.step_time import HEALTHY_RANGE
from controller.detect.streams.eprocess import MEAN_BETS, MEAN_WEIGHTS, Betting, exceedances
from controller.detect.streams.protocol import Flags, Floats

#: Largest value in the recovery test of a clause without a clip, in limits; without a bounded range, no
#: finite sample shows that a mean is kept.
UNCLIPPED_RANGE = 50.0


class Kind(IntEnum):
    """Test of a clause."""

    NONE = 0  # offline, or a limit that cannot be broken
    AT_ONCE = 1  # one observation over the threshold is an alarm
    BETTING = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ClausePlan:
    """Test of each clause; C clauses, G bets."""

    #: int64 [C], a ``Kind`` each.
    kind: NDArray[np.int64]
    #: bool [C].
    is_rate: Flags
    #: bool [C], an observation is ``upper - value``.
    mirrored: Flags
    #: bool [C], observations of probes: no calibration needed.
    guaranteed: Flags
    #: float64 [C], mean of an observation where the clause is just kept (1 where there is no betting).
    null_mean: Floats
    #: float64 [C], upper end of mirrored values, in the metric's unit.
    upper: Floats
    #: float64 [C], upper bound of an observation.
    clip: Floats
    #: float64 [C], the clause's own limit: the unit of relative excess.
    scale: Floats
    #: float64 [C, G], bets on the mean.
    bets: Floats
    #: float64 [C, G], their weights; sum 1.
    weights: Floats
    #: float64 [C], upper bound of an observation in the recovery test of "the mean is still at least
    #: null_mean": 1 for shares, the upper end of mirrored values, the clip of others.
    health_range: Floats

    def detector(self, clause: int) -> Betting:
        """StreamDetector of one clause's observations y; ValueError where the clause has none."""
        if self.kind[clause] != Kind.BETTING:
            raise ValueError(
                f"clause {clause} is tested by {Kind(int(self.kind[clause])).name}, not by betting"
            )
        return Betting(
            null_mean=float(self.null_mean[clause]),
            bets=tuple(self.bets[clause].tolist()),
            weights=tuple(self.weights[clause].tolist()),
            clip=float(self.clip[clause]),
        )


def plan_clauses(contract: CompiledContract) -> ClausePlan:
    """The table of this module as arrays."""
    mirrored = ~contract.is_rate & (contract.sense < 0.0)
    finite = np.isfinite(contract.clip)
    upper = np.where(mirrored & finite, contract.clip, 1.0)
    at_most = np.where(mirrored, upper - contract.threshold, contract.threshold)
    null_mean = np.where(contract.is_rate, contract.rate_limit, at_most)
    own_clock = (contract.source == Source.STEP_TIME) & ~contract.is_rate
    null_mean = np.where(own_clock, 1.0, null_mean)
    kind = np.where(null_mean > 0.0, int(Kind.BETTING), int(Kind.AT_ONCE))
    unbreakable = contract.is_rate & (contract.rate_limit >= 1.0)
    kind[unbreakable | (contract.source == Source.OFFLINE)] = int(Kind.NONE)
    betting = kind == Kind.BETTING
    unclipped = contract.is_rate | mirrored | own_clock | (contract.clip <= null_mean)
    clip = np.where(unclipped, np.inf, contract.clip)
    bets = [
        _bets(contract, clause, float(null_mean[clause]), bool(betting[clause]))
        for clause in range(kind.size)
    ]
    limit = np.where(contract.is_rate, contract.rate_limit, np.abs(contract.threshold))
    limit = np.where(own_clock, 1.0, limit)
    groups = len(MEAN_BETS)
    null_mean = np.where(betting, null_mean, 1.0)
    return ClausePlan(
        kind=kind.astype(np.int64),
        is_rate=contract.is_rate.copy(),
        mirrored=mirrored,
        guaranteed=(contract.source == Source.PROBE) | own_clock,
        null_mean=null_mean,
        upper=upper,
        clip=clip,
        scale=np.where(limit > 0.0, limit, 1.0),
        bets=np.array([b for b, _ in bets], dtype=np.float64).reshape(-1, groups),
        weights=np.array([w for _, w in bets], dtype=np.float64).reshape(-1, groups),
        health_range=_health_range(contract, null_mean, clip, np.where(mirrored, upper, np.inf)),
    )


def _health_range(contract: CompiledContract, null_mean: Floats, clip: Floats, upper: Floats) -> Floats:
    """float64 [C], ``ClausePlan.health_range``; ``upper``: that of mirrored values, inf elsewhere."""
    reach = UNCLIPPED_RANGE * null_mean
    known = np.where(np.isfinite(upper), upper, np.where(np.isfinite(clip), clip, reach))
    known = np.where(contract.is_rate | (contract.source != Source.PROBE), 1.0, known)
    known = np.where((contract.source == Source.STEP_TIME) & ~contract.is_rate, HEALTHY_RANGE, known)
    return np.asarray(np.where(known > null_mean, known, reach))


def _bets(
    contract: CompiledContract, clause: int, null_mean: float, betting: bool
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Bets and weights of one clause; those of a mean where there is no betting."""
    if not (betting and contract.is_rate[clause]):
        return MEAN_BETS, MEAN_WEIGHTS
    rates = exceedances(null_mean)
    return rates.bets, rates.weights


@lru_cache(maxsize=64)
def moves_traffic(contract: CompiledContract) -> NDArray[np.bool_]:
    """bool [C]: clauses whose alarm moves traffic; soft L1 clauses only inform."""
    return np.asarray((contract.level >= 2) | contract.hard)


@lru_cache(maxsize=64)
def applies(contract: CompiledContract) -> NDArray[np.bool_]:
    """bool [S, C]: the clause is judged on the slice, online."""
    return np.ascontiguousarray(contract.applies.T & (contract.source != Source.OFFLINE))


@lru_cache(maxsize=64)
def probe_clauses(contract: CompiledContract) -> NDArray[np.int64]:
    """int64: places of the clauses on probes."""
    return np.flatnonzero(contract.source == Source.PROBE)


@lru_cache(maxsize=64)
def from_traffic(contract: CompiledContract) -> NDArray[np.bool_]:
    """bool [C]: clauses with observations from served traffic only; without traffic there is no evidence."""
    return np.asarray((contract.source == Source.LATENCY) | (contract.source == Source.FAILED))


@lru_cache(maxsize=64)
def failing_clauses(contract: CompiledContract) -> NDArray[np.int64]:
    """int64: places of the clauses on failed attempts."""
    return np.flatnonzero(contract.source == Source.FAILED)


@lru_cache(maxsize=64)
def identity_clauses(contract: CompiledContract) -> NDArray[np.int64]:
    """int64: places of the clauses on the build of a server (its fingerprint)."""
    return np.flatnonzero(contract.source == Source.FINGERPRINT)


@lru_cache(maxsize=64)
def own_clock(contract: CompiledContract) -> NDArray[np.bool_]:
    """bool [C]: clauses on a replica's own clock, which depends on no peer, queue or load."""
    return np.asarray((contract.source == Source.STEP_TIME) & ~contract.is_rate)


@lru_cache(maxsize=64)
def clock_clauses(contract: CompiledContract) -> NDArray[np.int64]:
    """int64: places of the clauses of ``own_clock``."""
    return np.flatnonzero(own_clock(contract))


@lru_cache(maxsize=64)
def slow_clauses(contract: CompiledContract) -> NDArray[np.int64]:
    """int64: places of the clauses on own clocks and on latencies."""
    return np.flatnonzero(own_clock(contract) | (contract.source == Source.LATENCY))


@lru_cache(maxsize=64)
def needs_traffic(contract: CompiledContract) -> NDArray[np.bool_]:
    """bool [C]: clauses without observations while there is no traffic; their alarms expire without it."""
    return from_traffic(contract) | own_clock(contract)


@lru_cache(maxsize=64)
def replica_places(contract: CompiledContract) -> NDArray[np.bool_]:
    """bool [S, C]: slices to which evidence that a replica breaks a clause is booked.

    Clause on traffic: only the first slice that it applies to. Servers know no slices, so the observations of
    a replica cover all its requests. Any other clause: every slice that it applies to.
    """
    known = applies(contract)
    first = known & (np.cumsum(known, axis=0) == 1)
    return np.where(from_traffic(contract), first, known)


@lru_cache(maxsize=64)
def zero_tolerance(contract: CompiledContract) -> NDArray[np.bool_]:
    """bool [C]: a hard rate clause with limit 0, where one observation over the threshold is an alarm."""
    return contract.hard & contract.is_rate & (contract.rate_limit <= 0.0)


@lru_cache(maxsize=64)
def zero_tolerance_places(contract: CompiledContract) -> NDArray[np.int64]:
    """int64: places of the clauses of ``zero_tolerance``."""
    return np.flatnonzero(zero_tolerance(contract))
