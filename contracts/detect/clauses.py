"""From a compiled contract to the detector of each clause: nothing to choose, nothing to forget.

| clause | unit y of the stream | null | detector |
|---|---|---|---|
| rate clause (percentile, soft, hard), limit rho > 0 | 1: unit is over | P <= rho | betting on exceedances |
| hard rate clause, limit 0 | 1: unit is over | never | alarm at the first one, no ARL0 |
| mean clause, "at most" m | the value, clipped | mean <= m | betting on a mean |
| mean clause, "at least" m | upper - value, never below 0 | mean <= upper - m | betting on a mean |

Units of probes are independent prompts, so their thresholds are guaranteed. Units of traffic and gauges
(one per scrape: the share of its requests over the threshold) follow each other's queues: their thresholds
are calibrated by blocks (``laws.Blocks``).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from contracts.compiled import CompiledContract, Source
from contracts.detect.eprocess import MEAN_BETS, MEAN_WEIGHTS, Betting, exceedances
from contracts.detect.protocol import Flags, Floats

#: Recovery of a clause with limit 0 shows that its rate is below this; no finite sample shows 0.
AT_ONCE_RATE = 0.05
#: When the health of a mean clause is tested, units are read up to so many times its limit: without a short
#: range no few units show health. Damage by rarer, larger units is the business of the rate clauses.
HEALTH_REACH = 5.0


class Kind(IntEnum):
    """What watches a clause."""

    NONE = 0  # offline, or a limit that nothing can break
    AT_ONCE = 1  # one unit over is an alarm
    BETTING = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ClausePlan:
    """One entry per clause (C), G bets.

    kind: int64 [C]. is_rate, mirrored, guaranteed: bool [C]; guaranteed: probe units, no calibration needed.
    null_mean: float64 [C] of the unit y (1 where there is no betting). upper: float64 [C], y = upper -
    value where mirrored. clip: float64 [C], y is clipped here. scale: float64 [C], the clause's own limit,
    which relative excess is measured in. bets, weights: float64 [C, G]. health_null, health_upper: float64
    [C], of the recovery test "the mean is still at least health_null", units read up to health_upper.
    """

    kind: NDArray[np.int64]
    is_rate: Flags
    mirrored: Flags
    guaranteed: Flags
    null_mean: Floats
    upper: Floats
    clip: Floats
    scale: Floats
    bets: Floats
    weights: Floats
    health_null: Floats
    health_upper: Floats

    def detector(self, clause: int) -> Betting:
        """Detector of one clause's units y; ValueError where the clause has none."""
        if self.kind[clause] != Kind.BETTING:
            raise ValueError(
                f"clause {clause} is watched by {Kind(int(self.kind[clause])).name}, not by betting"
            )
        return Betting(
            null_mean=float(self.null_mean[clause]), bets=tuple(self.bets[clause].tolist()),
            weights=tuple(self.weights[clause].tolist()), clip=float(self.clip[clause]),
        )  # fmt: skip


def plan_clauses(contract: CompiledContract) -> ClausePlan:
    """The table of this module as arrays."""
    mirrored = ~contract.is_rate & (contract.sense < 0.0)
    finite = np.isfinite(contract.clip)
    upper = np.where(mirrored & finite, contract.clip, 1.0)
    at_most = np.where(mirrored, upper - contract.threshold, contract.threshold)
    null_mean = np.where(contract.is_rate, contract.rate_limit, at_most)
    kind = np.where(null_mean > 0.0, int(Kind.BETTING), int(Kind.AT_ONCE))
    unbreakable = contract.is_rate & (contract.rate_limit >= 1.0)
    kind[unbreakable | (contract.source == Source.OFFLINE)] = int(Kind.NONE)
    betting = kind == Kind.BETTING
    clip = np.where(contract.is_rate | mirrored | (contract.clip <= null_mean), np.inf, contract.clip)
    bets = [
        _bets(contract, clause, float(null_mean[clause]), bool(betting[clause]))
        for clause in range(kind.size)
    ]
    limit = np.where(contract.is_rate, contract.rate_limit, np.abs(contract.threshold))
    groups = len(MEAN_BETS)
    health_null = np.where(betting, null_mean, AT_ONCE_RATE)
    reach = np.minimum(np.where(mirrored, upper, clip), HEALTH_REACH * health_null)
    return ClausePlan(
        kind=kind.astype(np.int64), is_rate=contract.is_rate.copy(), mirrored=mirrored,
        guaranteed=contract.source == Source.PROBE, null_mean=np.where(betting, null_mean, 1.0), upper=upper,
        clip=clip, scale=np.where(limit > 0.0, limit, 1.0),
        bets=np.array([b for b, _ in bets], dtype=np.float64).reshape(-1, groups),
        weights=np.array([w for _, w in bets], dtype=np.float64).reshape(-1, groups),
        health_null=health_null, health_upper=np.where(contract.is_rate | ~betting, 1.0, reach),
    )  # fmt: skip


def _bets(
    contract: CompiledContract, clause: int, null_mean: float, betting: bool
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Bets and weights of one clause; those of a mean where nothing is bet."""
    if not (betting and contract.is_rate[clause]):
        return MEAN_BETS, MEAN_WEIGHTS
    rates = exceedances(null_mean)
    return rates.bets, rates.weights
